"""A probe: whether a machine can be reached, knows the key and answers."""

from __future__ import annotations

import asyncio

from weft.rpc.auth import ConnectorHandshake, Role, Service
from weft.rpc.errors import FrameError, RemoteError
from weft.rpc.frames import DEFAULT_LIMIT, FrameReader, FrameWriter, Message, MessageType
from weft.rpc.payload import PayloadReader
from weft.rpc.tls import unverified_context
from weft.rpc.tracker.connection import STREAM_BYTES, closed

_ALL_IN_USE = 101


async def probe(address: str, port: int, key: bytes, timeout: float, tls: bool = False) -> str:
    """Ask a machine for a PING as a client would. Returns why that fails, or nothing if it works; a machine whose
    sessions are all in use answers, too. ``tls``: it speaks TLS; as a probe sends nothing secret, its certificate is
    not looked at."""
    try:
        async with asyncio.timeout(timeout):
            stream, writer = await asyncio.open_connection(
                address, port, limit=STREAM_BYTES, ssl=unverified_context() if tls else None
            )
            try:
                return await _ask(stream, writer, key)
            finally:
                writer.transport.abort()
                await closed(writer)
    except TimeoutError:
        return f"does not answer within {timeout:g} s"
    except RemoteError as error:
        return error.message
    except (OSError, ValueError) as error:  # ValueError: a name that no resolver takes
        return f"cannot connect to it: {getattr(error, 'strerror', None) or error}"


async def _ask(stream: asyncio.StreamReader, writer: asyncio.StreamWriter, key: bytes) -> str:
    frames, made = FrameReader(), FrameWriter()
    side = ConnectorHandshake(key, Role.CLIENT, DEFAULT_LIMIT)
    greeting = await _message(stream, frames)
    if greeting.type == MessageType.REFUSAL:
        return _refused(greeting)
    if greeting.type != MessageType.GREETING:
        raise FrameError(f"it sent {greeting.name}, not GREETING")
    writer.write(made.frame(MessageType.PROOF, 0, side.proof(greeting.payload, Service.MACHINE)))
    welcome = await _message(stream, frames)
    if welcome.type == MessageType.REFUSAL:
        return _refused(welcome)
    agreed = side.finish(welcome.payload)
    made.start(agreed.send_key)
    made.limit = agreed.limit
    frames.start(agreed.receive_key)
    frames.limit = DEFAULT_LIMIT
    for number, type in enumerate((MessageType.PING, MessageType.CLOSE), 1):
        writer.write(made.frame(type, number))
        reply = await _message(stream, frames)
        if (reply.type, reply.request) != (MessageType.REPLY, number):
            return f"it answered {type.name} with {reply.name}"
    return ""


def _refused(message: Message) -> str:
    read = PayloadReader(message.payload)
    code, said = read.u32(), read.string()
    return "" if code == _ALL_IN_USE else f"it refuses: {''.join(c for c in said if c.isprintable())[:80]}"


async def _message(stream: asyncio.StreamReader, frames: FrameReader) -> Message:
    while (message := frames.next()) is None:
        data = await stream.read(STREAM_BYTES)
        if not data:
            raise FrameError("it closed the connection")
        frames.feed(data)
    return message
