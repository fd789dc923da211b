"""Remote machines: a protocol, a server in C, and a client that measures and runs code there.

    with weft.rpc.connect("127.0.0.1:9190", key="weft.key") as session:
        artifact = weft.compile_artifact("model.onnx", target=session.target())
        exe = session.load(artifact)
        y = exe(x)
        print(exe.benchmark(x))

    with weft.rpc.request("tracker.local:9180", key="pi4") as lease:
        session = lease.connect()

docs/remote.md says how to run a server, docs/tracker.md how to share boards, docs/rpc-protocol.md defines the protocol.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "Lease": "lease",
    "LinkError": "errors",
    "LocalServer": "local",
    "RemoteError": "errors",
    "RemoteExecutable": "executable",
    "RemoteKernel": "kernel",
    "Session": "session",
    "connect": "session",
    "request": "board_request",
}

__all__ = [
    "Lease",
    "LinkError",
    "LocalServer",
    "RemoteError",
    "RemoteExecutable",
    "RemoteKernel",
    "Session",
    "connect",
    "request",
]

if TYPE_CHECKING:
    from weft.rpc.board_request import request
    from weft.rpc.errors import LinkError, RemoteError
    from weft.rpc.executable import RemoteExecutable
    from weft.rpc.kernel import RemoteKernel
    from weft.rpc.lease import Lease
    from weft.rpc.local import LocalServer
    from weft.rpc.session import Session, connect


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(import_module(f"weft.rpc.{_PUBLIC[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'weft.rpc' has no attribute '{name}'")
