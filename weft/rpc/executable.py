"""A whole model on a remote machine."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, Final
from weakref import finalize

import numpy as np

from weft.rpc.channel import Channel, RequestError
from weft.rpc.errors import RemoteError
from weft.rpc.frames import MessageType
from weft.rpc.kernel import check_code, packed_timing
from weft.rpc.machine import RemoteMachine
from weft.rpc.memory import bytes_of, copy_out, free, load_code, unload_code, upload
from weft.rpc.payload import PayloadReader, string
from weft.runtime import Artifact, CodeObject, Device, Executable, Tensor, Variant
from weft.runtime.arguments import Arguments
from weft.runtime.elements import numpy_dtype
from weft.runtime.encode import constant_count, encode
from weft.runtime.executable import Timing
from weft.runtime.program import TensorSpec
from weft.runtime.threads import SYSTEM_FEATURES
from weft.support.arguments import NUMBER, WHOLE, checked
from weft.support.errors import ArtifactError

_MAX_RANK: Final = 64


class RemoteExecutable:
    """A compiled model that a remote machine has loaded; ``exe(x, …)`` runs it there.

    Inputs are given as for :class:`weft.Executable`, in order or by name; tensors on the session's device are used in
    place. Results are arrays in main memory.
    """

    def __init__(
        self, channel: Channel, machine: RemoteMachine, device: Device, artifact: Artifact, threads: int
    ) -> None:
        """Send code, constants and program. Raises RemoteError: N016 if the artifact has no code for the machine, N017
        if its program needs more than a machine without Python has, N011 if it is malformed."""
        check_plain(artifact)
        artifact.check_portable()
        self.artifact = artifact
        self._channel, self._machine, self._device = channel, machine, device
        self._arguments = Arguments(artifact.program)
        self._parts = _Parts(channel)
        self._finalizer = finalize(self, self._parts.give_up)
        try:
            self._parts.send(artifact, [_pick(code, machine) for code in artifact.codes], threads)
        except BaseException:  # an interrupt, too, leaves nothing there
            self._finalizer()
            raise

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes of the inputs."""
        return self.artifact.program.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes of the outputs."""
        return self.artifact.program.outputs

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the model on inputs in order, or by name: an array, or a tuple of arrays for several outputs.

        Raises InputError if an input does not fit, UserError as a local run does, RemoteError N013 if the run was
        stopped at the time limit of a request, LinkError if the link is lost.
        """
        held: list[Tensor | int] = []
        try:
            run = self._run_of(self._arguments.completed(inputs, named), held)
            answer = self._ask(MessageType.RUN, run)
        finally:
            self._release(held)
        results = self._results(answer)
        return results[0] if len(results) == 1 else results

    @checked("N018", RemoteError, seconds=NUMBER, repeat=WHOLE)
    def benchmark(self, *inputs: Any, seconds: float = 1.0, repeat: int = 10, **named: Any) -> Timing:
        """Latency of whole runs there, without the network: ``repeat`` measurements that take ``seconds`` together, or
        one run each if that is longer, after one run to warm up."""
        timing = packed_timing(repeat, seconds / max(repeat, 1))
        held: list[Tensor | int] = []
        try:
            run = self._run_of(self._arguments.completed(inputs, named), held)
            answer = self._ask(MessageType.TIME_RUN, run + timing)
        finally:
            self._release(held)
        return Timing(tuple(answer.f64() / 1e6 for _ in range(repeat)))

    def close(self) -> None:
        """Free everything there; this happens as well when nothing refers to the executable any more."""
        self._finalizer()

    def __repr__(self) -> str:
        state = "" if self._finalizer.alive and self._channel.lost is None else ", dead"
        return f"<RemoteExecutable {self.artifact.name} on {self._machine.name}{state}>"

    def _ask(self, type: MessageType, payload: bytes) -> PayloadReader:
        try:
            return self._channel.ask(type, payload, self._machine.request_seconds or math.inf)
        except RequestError as error:
            n = error.numbers
            if error.code != "N017" or n.status == 0:
                raise
            failed = self._arguments.fail(
                n.status, n.index, n.axis, n.instruction, n.expected, n.given, f"{n.message} (on {self._machine.name})"
            )
            raise failed from error

    def _run_of(self, inputs: Sequence[Any], held: list[Tensor | int]) -> bytes:
        """The content of a run; ``held`` gets what must live until it is over."""
        if not self._finalizer.alive:
            raise RemoteError(f"the executable of '{self.artifact.name}' was closed", code="N018", hint="load it again")
        parts = [struct.pack("<II", self._parts.number, len(inputs))]
        for i, value in enumerate(inputs):
            if isinstance(value, Tensor) and value.home is not None and value.device != self._device:
                value = value.numpy()
            tensor = self._arguments.convert(i, value)
            assert isinstance(tensor, Tensor)
            if tensor.home is not None:
                held.append(tensor)
                address = tensor.address
            else:
                address = upload(self._channel, bytes_of(tensor.numpy()))
                held.append(address)
            parts.append(struct.pack(f"<QI{len(tensor.shape)}Q", address, len(tensor.shape), *tensor.shape))
        return b"".join(parts)

    def _release(self, held: Sequence[Tensor | int]) -> None:
        for one in held:
            if isinstance(one, int):
                free(self._channel, one)

    def _results(self, answer: PayloadReader) -> tuple[np.ndarray[Any, Any], ...]:
        told = []
        for _ in range(answer.u32()):
            address, nbytes, ndim = answer.u64(), answer.u64(), answer.u32()
            told.append((address, nbytes, tuple(answer.u64() for _ in range(min(ndim, _MAX_RANK)))))
        try:
            return tuple(self._result(spec, *one) for spec, one in zip(self.outputs, told, strict=True))
        finally:
            for address, _, _ in told:
                free(self._channel, address)

    def _result(self, spec: TensorSpec, address: int, nbytes: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        dtype = numpy_dtype(spec.dtype)
        if math.prod(shape) * dtype.itemsize != nbytes:
            raise RemoteError(f"the output '{spec.name}' does not have the size that its shape says", code="N009")
        made = np.empty(shape, dtype)
        if nbytes:
            copy_out(self._channel, address, bytes_of(made))
        return made


class _Parts:
    """What a remote machine holds of one executable."""

    def __init__(self, channel: Channel) -> None:
        self.number = 0
        self._channel = channel
        self._codes: list[int] = []
        self._constants: list[int] = []

    def send(self, artifact: Artifact, codes: Sequence[Variant], threads: int) -> None:
        program = artifact.program
        channel = self._channel
        for code in codes:
            self._codes.append(load_code(channel, code.format, code.data, ""))
        content = []
        for kernel in program.kernels:
            if not 0 <= kernel.code < len(self._codes):
                raise ArtifactError(f"the artifact lacks the code of the kernel '{kernel.name}'", code="A008")
            content.append(struct.pack("<I", self._codes[kernel.code]) + string(kernel.name))
        constants = artifact.constants[: constant_count(program)]
        for constant in constants:
            self._constants.append(upload(channel, bytes_of(constant)))
            content.append(struct.pack("<QQ", self._constants[-1], constant.nbytes))
        words = encode(program)
        address = upload(channel, bytes_of(words))
        head = struct.pack("<QQIQII", address, words.nbytes, threads, 0, len(program.kernels), len(constants))
        try:
            self.number = channel.ask(MessageType.EXECUTABLE, head + b"".join(content)).u32()
        finally:
            free(channel, address)

    def give_up(self) -> None:
        """Free all of it, before the next request."""
        if self.number:
            self._channel.later(MessageType.DISCARD, struct.pack("<I", self.number))
        for number in self._codes:
            unload_code(self._channel, number)
        for address in self._constants:
            free(self._channel, address)


def checked_artifact(model: Any) -> Artifact:
    """The artifact of a model. Raises RemoteError N018 for anything else."""
    if isinstance(model, Executable):
        return model.artifact
    if isinstance(model, Artifact):
        return model
    raise RemoteError(
        f"a compiled model is needed, not a {type(model).__name__}",
        code="N018",
        hint="weft.compile_artifact(model, target=session.target())",
    )


def check_plain(artifact: Artifact) -> None:
    """Raise RemoteError N017 for a program that needs Python or other devices where it runs."""
    program = artifact.program
    what = None
    if any(t.is_value for t in (*program.inputs, *program.outputs)):
        what = "takes or gives values that are no plain tensors"
    elif program.hosts:
        what = f"has operators that only Python computes ({', '.join(sorted({h.name for h in program.hosts}))})"
    elif program.devices:
        what = f"uses devices of kind '{program.devices[0].kind}'"
    if what is not None:
        raise RemoteError(f"'{artifact.name}' {what}: a remote machine cannot run it", code="N017")


def _pick(code: CodeObject, machine: RemoteMachine) -> Variant:
    """The variant that uses the most features of a machine. Raises RemoteError N016 if none fits."""
    have = machine.features | SYSTEM_FEATURES
    loadable = [v for v in code.variants if v.format in machine.formats]
    fitting = [v for v in loadable if v.features <= have]
    if fitting:
        return max(fitting, key=lambda v: len(v.features))
    nearest = min(loadable or code.variants, key=lambda v: len(v.features - have))
    check_code(nearest.format, nearest.features, machine)
    raise AssertionError("a variant that fits was chosen before")
