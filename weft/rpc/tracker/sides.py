"""What a tracker answers: to machines on their connections, and to clients on theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.rpc.errors import FrameError, RemoteError
from weft.rpc.frames import Message, MessageType
from weft.rpc.payload import PayloadReader, text
from weft.rpc.tracker import messages
from weft.rpc.tracker.board import Board, JobOutcome
from weft.rpc.tracker.connection import Connection
from weft.rpc.tracker.scheduler import BAD_VALUE, Refusal, Scheduler
from weft.rpc.tracker.status import status_of
from weft.rpc.tracker.waiting import BoardRequest

_MALFORMED: Final = 1
_UNKNOWN_TYPE: Final = 2
MAX_AWAIT_SECONDS: Final = 60.0
MAX_REASON_CHARACTERS: Final = 200


class Side:
    """The tracker's side of one connection: a method for each type of message."""

    def __init__(self, scheduler: Scheduler, connection: Connection) -> None:
        self.scheduler = scheduler
        self.connection = connection
        self.is_over = False
        """Whether the other side has taken its leave."""
        self._answers: dict[int, Callable[[int, bytes], None]] = {
            MessageType.PING: self._ping,
            MessageType.CLOSE: self._close,
        }

    def handle(self, message: Message) -> None:
        """Answer one message, now or late. Raises FrameError for what ends the connection."""
        self.connection.answer_now()
        if message.request == 0:
            raise FrameError("a request has the number 0")
        answer = self._answers.get(message.type)
        if answer is None:
            self.connection.error(message.request, _UNKNOWN_TYPE, f"this side knows no {message.name}")
            return
        try:
            answer(message.request, message.payload)
        except Refusal as error:
            self.connection.error(message.request, error.number, error.message)
        except FrameError:
            raise
        except RemoteError as error:
            self.connection.error(message.request, _MALFORMED, error.message)

    def gone(self) -> None:
        """The connection has ended."""
        raise NotImplementedError

    def _ping(self, request: int, payload: bytes) -> None:
        self.connection.reply(request)

    def _close(self, request: int, payload: bytes) -> None:
        self.connection.reply(request)
        self.is_over = True


class MachineSide(Side):
    """The connection of a machine."""

    def __init__(self, scheduler: Scheduler, connection: Connection) -> None:
        super().__init__(scheduler, connection)
        self.board: Board | None = None
        self.is_new = False
        """Whether it has just registered, and nobody has taken note."""
        self.replaced: MachineSide | None = None
        """The connection on which the same machine was registered before; somebody has to close it."""
        self._answers |= {MessageType.REGISTER: self._register, MessageType.REPORT: self._report}

    def send_orders(self) -> None:
        """Give the late answer to REPORT if there is something to say."""
        if self.board is not None and self.connection.owes_answer and self.scheduler.pool.has_orders(self.board):
            self.connection.answer_now()

    def gone(self) -> None:
        if self.board is not None:
            self.scheduler.pool.disconnected(self.board, self)
            self.scheduler.settle()

    def _register(self, request: int, payload: bytes) -> None:
        lines = PayloadReader(payload).text()
        entry = messages.board_entry(lines, self.connection.address)
        held = messages.leases(lines.get("held", ""))
        if self.board is not None and self.board.entry.endpoint != entry.endpoint:
            raise Refusal(BAD_VALUE, "one connection registers one machine")
        former = self.scheduler.pool.boards.get(entry.endpoint)
        if former is not None and isinstance(former.link, MachineSide) and former.link is not self:
            self.replaced = former.link
        self.board = self.scheduler.register(entry, held, self)
        self.is_new = True
        seconds = self.scheduler.limits.heartbeat_seconds
        self.connection.reply(request, text({"heartbeat_seconds": f"{seconds:g}"}))

    def _report(self, request: int, payload: bytes) -> None:
        board = self._registered()
        held = messages.leases(PayloadReader(payload).text().get("held", ""))
        if self.scheduler.pool.report(board, set(held)):
            self.scheduler.settle()
        self.connection.answer_late(self.scheduler.pool.poll_seconds(board), lambda: self._give_orders(request))
        self.send_orders()

    def _give_orders(self, request: int) -> None:
        board = self._registered()
        self.connection.reply(request, text(self.scheduler.pool.take_orders(board)))

    def _registered(self) -> Board:
        if self.board is None or self.board.link is not self:
            raise Refusal(BAD_VALUE, "the machine is not registered on this connection")
        return self.board

    def _ping(self, request: int, payload: bytes) -> None:
        if self.board is not None and self.board.link is self:
            self.scheduler.pool.heard(self.board)
        super()._ping(request, payload)


class ClientSide(Side):
    """The connection of a client."""

    def __init__(self, scheduler: Scheduler, connection: Connection) -> None:
        super().__init__(scheduler, connection)
        self._awaited: BoardRequest | None = None
        self._answers |= {
            MessageType.REQUEST: self._request,
            MessageType.AWAIT: self._await,
            MessageType.RENEW: self._renew,
            MessageType.RELEASE: self._release,
            MessageType.CANCEL: self._cancel,
            MessageType.RESUME: self._resume,
            MessageType.STATUS: self._status,
        }

    def tell(self, request: BoardRequest) -> None:
        """There is news of a request: give the late answer if it is about that."""
        if self._awaited is request and self.connection.owes_answer:
            self.connection.answer_now()

    def gone(self) -> None:
        self.scheduler.disconnected(self)

    def _request(self, request: int, payload: bytes) -> None:
        lines = PayloadReader(payload).text()
        made = self.scheduler.request(
            self,
            messages.name_in(lines, "key"),
            messages.name_in(lines, "name"),
            messages.priority_in(lines),
            messages.seconds_in(lines, "waited"),
        )
        self.connection.reply(request, made.number.to_bytes(8, "little"))

    def _await(self, request: int, payload: bytes) -> None:
        number, version, seconds = messages.await_operands(payload)
        self._awaited = self.scheduler.asked(number, self)
        self.connection.answer_late(min(seconds, MAX_AWAIT_SECONDS), lambda: self._tell_state(request, number))
        if self._awaited.version != version:
            self.connection.answer_now()

    def _tell_state(self, request: int, number: int) -> None:
        self._awaited = None
        try:
            asked = self.scheduler.asked(number, self)
        except Refusal as error:
            self.connection.error(request, error.number, error.message)
            return
        if asked.is_served and asked.grant is not None:
            answer = messages.granted(asked.grant, asked.version, self.scheduler.limits.lease_seconds)
        else:
            answer = messages.still_waiting(asked.version, asked.position, self.scheduler.why(asked))
        self.connection.reply(request, answer)

    def _renew(self, request: int, payload: bytes) -> None:
        self._reply_seconds(request, self.scheduler.renew(messages.number_operand(payload), self))

    def _resume(self, request: int, payload: bytes) -> None:
        claim = messages.claim(PayloadReader(payload).text())
        self._reply_seconds(request, self.scheduler.resume(claim, self))

    def _reply_seconds(self, request: int, seconds: float) -> None:
        self.connection.reply(request, text({"seconds": f"{seconds:.3f}"}))

    def _release(self, request: int, payload: bytes) -> None:
        read = PayloadReader(payload)
        lease, outcome, why = read.u64(), read.u8(), read.string()
        read.finish()
        if outcome not in (JobOutcome.DONE, JobOutcome.LOST):
            raise Refusal(BAD_VALUE, "the outcome of a job is 0 or 1")
        reason = "".join(c for c in why if c.isprintable())[:MAX_REASON_CHARACTERS]
        self.scheduler.release(lease, self, JobOutcome(outcome), reason)
        self.connection.reply(request)

    def _cancel(self, request: int, payload: bytes) -> None:
        self.scheduler.cancel(messages.number_operand(payload), self)
        self.connection.reply(request)

    def _status(self, request: int, payload: bytes) -> None:
        answer = status_of(self.scheduler).to_json()
        self.connection.reply(request, answer)
