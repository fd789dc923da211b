"""Boards and leases: how they begin, end, are lost, rest and come back."""

from __future__ import annotations

import pytest
from tracker_kit import World

from weft.rpc.tracker.board import BoardEntry, BoardState, GrantState, Health, JobOutcome
from weft.rpc.tracker.limits import TrackerLimits
from weft.rpc.tracker.scheduler import Claim, Refusal, Scheduler
from weft.support.errors import UserError


def state(world: World, board: object) -> BoardState:
    return board.state(world.clock.now)  # type: ignore[attr-defined]


def claim(world: World, lease: int, name: str = "ann", port: int = 9190, held: float = 5.0) -> Claim:
    return Claim(lease, f"10.0.0.{ord('a')}", port, "pi4", name, 0, held)


# ---- leases that end -------------------------------------------------------------------------------------------------


def test_a_lease_that_is_not_renewed_ends() -> None:
    world = World(lease_seconds=30, hold_seconds=0)
    world.board()
    first, second = world.ask("ann"), world.ask("bob")
    for _ in range(5):
        world.wait(25)
        assert world.scheduler.renew(world.got(first).number, "ann") == 30
    world.wait(29)
    assert not second.is_served
    number = world.got(first).number
    world.wait(2)
    assert second.is_served
    with pytest.raises(Refusal, match="was not renewed for 30 seconds") as caught:
        world.scheduler.renew(number, "ann")
    assert caught.value.number == 40


def test_no_lease_is_held_for_ever() -> None:
    world = World(lease_seconds=30, hold_seconds=100)
    board = world.board()
    first = world.ask("ann")
    lefts = []
    for _ in range(4):
        world.wait(24)
        lefts.append(world.scheduler.renew(world.got(first).number, "ann"))
    assert lefts == [30, 30, 28, 4]
    world.wait(5)
    assert not board.grants and board.health.lost == board.health.done == 0


def test_a_lost_connection_gives_everything_back() -> None:
    world = World()
    a, b = world.board("a"), world.board("b")
    held, waiting = [world.ask("ann"), world.ask("ann")], world.ask("ann")
    other = world.ask("bob")
    assert a.grants and b.grants and held[0].is_served
    world.scheduler.disconnected("ann")
    assert other.is_served and len(a.grants) + len(b.grants) == 1
    assert waiting.number not in world.scheduler.requests


def test_a_lease_belongs_to_its_connection() -> None:
    world = World()
    world.board()
    number = world.got(world.ask("ann")).number
    for step in (
        lambda: world.scheduler.renew(number, "bob"),
        lambda: world.scheduler.release(number, "bob", JobOutcome.DONE, ""),
        lambda: world.scheduler.renew(number ^ 1, "ann"),
    ):
        with pytest.raises(Refusal):
            step()
    assert world.scheduler.renew(number, "ann") > 0


def test_a_board_takes_as_many_as_it_says() -> None:
    world = World()
    board = world.board(capacity=3)
    requests = [world.ask(f"n{i}") for i in range(4)]
    assert [r.is_served for r in requests] == [True, True, True, False] and state(world, board) is BoardState.BUSY
    world.release(requests[1])
    assert requests[3].is_served


# ---- machines that check tickets -------------------------------------------------------------------------------------


def test_a_ticket_is_told_before_the_lease() -> None:
    world = World()
    board = world.board(tickets=True)
    request = world.ask("ann")
    assert request.grant is not None and not request.is_served and world.pool.has_orders(board)
    ((name, value),) = world.pool.take_orders(board).items()
    number = request.grant.number
    assert name == f"grant.{number:016x}" and value == f"{request.grant.ticket} 10" and len(request.grant.ticket) == 32
    assert not world.pool.has_orders(board) and world.pool.take_orders(board) == {}
    world.pool.report(board, {number})
    world.scheduler.settle()
    assert world.got(request).state is GrantState.HELD


def accept(world: World, board: object, request: object) -> int:
    """The machine takes the ticket of a request; its number."""
    world.pool.take_orders(board)  # type: ignore[arg-type]
    number = request.grant.number  # type: ignore[attr-defined]
    world.pool.report(board, set(board.grants))  # type: ignore[arg-type, attr-defined]
    world.scheduler.settle()
    return int(number)


def test_a_session_counts_until_it_is_gone() -> None:
    world = World()
    board = world.board(tickets=True)
    first, second = world.ask("ann"), world.ask("bob")
    number = accept(world, board, first)
    assert world.pool.poll_seconds(board) == world.scheduler.limits.heartbeat_seconds
    world.release(first)
    assert world.pool.take_orders(board) == {f"end.{number:016x}": "the lease is over"} and second.grant is None
    world.pool.report(board, {number})
    world.scheduler.settle()
    assert second.grant is None and world.pool.poll_seconds(board) < 1
    world.pool.report(board, set())
    world.scheduler.settle()
    assert second.grant is not None and board.health.done == 1


def test_an_end_that_is_not_obeyed_is_told_again() -> None:
    world = World(order_seconds=10)
    board = world.board(tickets=True)
    request = world.ask("ann")
    number = accept(world, board, request)
    world.release(request)
    for _ in range(3):
        assert list(world.pool.take_orders(board)) == [f"end.{number:016x}"]
        world.pool.untold.clear()
        world.wait(11)
        assert world.pool.untold == {board}
    assert state(world, board) is BoardState.BUSY


def test_a_machine_that_does_not_take_a_ticket_is_silent_and_another_one_is_found() -> None:
    world = World(order_seconds=10, rest_seconds=1000)
    a, b = world.board("a", tickets=True), world.board("b", tickets=True)
    request = world.ask("ann")
    first = request.grant.board  # type: ignore[union-attr]
    world.pool.take_orders(first)
    other = b if first is a else a
    world.pool.disconnected(other, other.link)
    world.wait(11, alive=False)
    assert request.grant is None and state(world, first) is BoardState.SILENT and first.health.lost == 1
    assert "silent" in world.scheduler.why(request)
    world.board(other.entry.name, tickets=True)
    assert request.grant is not None and request.grant.board is other  # type: ignore[attr-defined]


def test_a_machine_that_refuses_tickets_comes_to_rest() -> None:
    world = World(rest_seconds=100)
    board = world.board(tickets=True)
    request = world.ask("ann")
    for _ in range(2):
        assert request.grant is not None
        world.pool.take_orders(board)
        world.pool.report(board, set())
        world.scheduler.settle()
        assert request.grant is None
        world.probe()
    assert state(world, board) is BoardState.RESTING
    assert request.number in world.scheduler.requests


def test_an_offer_that_is_withdrawn_before_it_is_told_leaves_nothing() -> None:
    world = World()
    board = world.board(tickets=True)
    request = world.ask("ann")
    world.scheduler.cancel(request.number, "ann")
    assert not board.grants and not world.pool.has_orders(board)
    second = world.ask("ann")
    world.pool.take_orders(board)
    world.scheduler.disconnected("ann")
    assert second.grant is not None and list(world.pool.take_orders(board)) == [f"end.{second.grant.number:016x}"]
    assert board.health.done == board.health.lost == 0


# ---- health ----------------------------------------------------------------------------------------------------------


def test_a_board_is_probed_before_its_first_job() -> None:
    world = World()
    board = world.scheduler.register(BoardEntry("a", "pi4", "10.0.0.1", 9190), (), object())
    request = world.ask("ann")
    assert state(world, board) is BoardState.CHECKING and world.pool.due_probes() == [board]
    assert world.pool.due_probes() == []
    world.pool.probed(board, "cannot connect to it: no route")
    world.scheduler.settle()
    assert state(world, board) is BoardState.UNREACHABLE and not request.is_served
    pauses = []
    for _ in range(8):
        start = world.clock.now
        while not (due := world.pool.due_probes()):
            world.clock.now += 0.5
            world.pool.heard(board)
        pauses.append(world.clock.now - start)
        world.pool.probed(due[0], "still not")
    assert board.failed_probes == 9 and "unreachable: a (still not)" in world.scheduler.why(request)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    world.wait(60)
    assert request.is_served and board.failed_probes == 0


def test_boards_with_jobs_are_left_alone() -> None:
    world = World(probe_seconds=60, hold_seconds=0, lease_seconds=1e6)
    board = world.board()
    world.wait(61)
    assert board.probe_at == world.clock.now + 60
    request = world.ask("ann")
    world.clock.now += 1000
    world.pool.heard(board)
    assert world.pool.due_probes() == []
    world.release(request)
    assert world.pool.due_probes() == [board] and state(world, board) is BoardState.CHECKING


def test_without_probes_boards_are_trusted() -> None:
    world = World(probe_seconds=0)
    board = world.board()
    world.release(world.ask("ann"), outcome=1)
    assert state(world, board) is BoardState.READY and world.pool.due_probes() == []


def test_a_silent_machine_gets_no_jobs_until_it_is_heard() -> None:
    world = World(heartbeat_seconds=5)
    board = world.board()
    world.wait(15, alive=False)
    assert state(world, board) is BoardState.READY
    world.wait(1, alive=False)
    request = world.ask("ann")
    assert state(world, board) is BoardState.SILENT and not request.is_served
    assert "silent: a (not heard for 16 s)" in world.scheduler.why(request)
    world.pool.report(board, set())
    assert state(world, board) is BoardState.CHECKING
    world.probe()
    assert request.is_served


def test_boards_that_lose_jobs_rest_longer_each_time() -> None:
    world = World(rest_seconds=10, longest_rest_seconds=60)
    board = world.board()
    rests = []
    for _ in range(6):
        request = world.ask("ann")
        world.release(request, outcome=1)
        world.probe()
        rests.append(max(0, round(board.health.rests_until - world.clock.now)))
        world.wait(rests[-1] + 0.5)
        assert state(world, board) is BoardState.READY
    assert rests == [0, 10, 20, 40, 60, 60] and board.health.lost == 6
    world.release(world.ask("ann"))
    assert board.health.lost_in_a_row == 0 and not board.health.is_on_trial


def test_a_board_that_has_rested_gets_one_job_at_a_time() -> None:
    world = World(rest_seconds=10)
    board = world.board(capacity=4)
    board.health.lost_in_a_row = 2
    first, second = world.ask("ann"), world.ask("bob")
    assert first.is_served and not second.is_served
    third = world.ask("cat")
    world.release(first)
    assert second.is_served and third.is_served


def test_better_boards_come_first() -> None:
    world = World()
    a, b, c = (world.board(n) for n in "abc")
    a.health.record(JobOutcome.LOST, 0.0, TrackerLimits())
    first = world.got(world.ask("ann")).board
    second = world.got(world.ask("bob")).board
    assert {first, second} == {b, c} and world.got(world.ask("cat")).board is a


def test_a_lost_job_asks_for_a_probe() -> None:
    world = World()
    board = world.board(capacity=2)
    first, second = world.ask("ann"), world.ask("bob")
    assert world.pool.due_probes() == []
    world.release(first, outcome=1)
    assert state(world, board) is BoardState.CHECKING and second.is_served
    assert not world.ask("cat").is_served
    assert world.pool.due_probes() == [board]  # though it has a job: it is in doubt


def test_boards_that_are_idle_for_long_come_first() -> None:
    world = World()
    boards = [world.board(n) for n in "abc"]
    used = []
    for turn in range(6):
        request = world.ask(f"n{turn}")
        used.append(world.got(request).board)
        world.wait(1)
        world.release(request)
    assert used == boards * 2


def test_what_is_over_leaves_nothing_behind() -> None:
    world = World()
    world.board("a"), world.board("b", tickets=True)
    requests = [world.ask(f"n{i}", client="ann") for i in range(3)]
    world.scheduler.disconnected("ann")
    scheduler, pool = world.scheduler, world.pool
    assert not scheduler.requests and not pool.grants and not scheduler._charged
    assert not pool.over and not pool.begun and not pool.failed and all(r.number for r in requests)


def test_the_rate_of_lost_jobs() -> None:
    health, limits = Health(), TrackerLimits()
    assert health.loss_rate == 0.0
    for _ in range(50):
        health.record(JobOutcome.DONE, 0.0, limits)
    health.record(JobOutcome.ABANDONED, 0.0, limits)
    assert health.loss_rate == 0.0
    health.record(JobOutcome.LOST, 0.0, limits)
    one = health.loss_rate
    health.record(JobOutcome.LOST, 0.0, limits)
    assert 0.09 < one < 0.11 and one < health.loss_rate < 0.2 and (health.done, health.lost) == (50, 2)


def test_what_a_client_does_wrong_is_not_the_boards_fault() -> None:
    world = World(lease_seconds=10)
    board = world.board()
    world.ask("ann")
    world.wait(11)
    world.ask("bob")
    world.scheduler.disconnected("bob")
    assert not board.grants and board.health == Health()


# ---- machines that go and come ---------------------------------------------------------------------------------------


def test_a_machine_that_comes_back_keeps_its_leases() -> None:
    world = World(return_seconds=15)
    for tickets in (False, True):
        board = world.board("a" if tickets else "b", key="t" if tickets else "u", tickets=tickets)
        request = world.ask("ann", key=board.entry.key)
        number = accept(world, board, request) if tickets else world.got(request).number
        world.pool.disconnected(board, board.link)
        world.wait(10)
        assert state(world, board) is BoardState.GONE
        assert world.board(board.entry.name, board.entry.key, tickets=tickets, held=[number]) is board
        assert world.scheduler.renew(number, "ann") > 0 and board.health.lost == 0


def test_a_machine_that_registers_again_starts_afresh() -> None:
    world = World()
    board = world.board()
    board.failure, board.failed_probes = "cannot connect to it", 5
    assert world.board() is board and state(world, board) is BoardState.READY and board.failed_probes == 0


def test_boards_are_told_apart_by_their_address() -> None:
    entries = [BoardEntry("m", "k", address, port) for address, port in (("::1", 80), ("10.0.0.1", 80), ("h", 8))]
    assert [e.endpoint for e in entries] == ["[::1]:80", "10.0.0.1:80", "h:8"]


def test_the_reasons_of_old_leases_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.rpc.tracker.scheduler._REMEMBERED_ENDS", 2)
    world = World()
    world.board()
    numbers = []
    for _ in range(3):
        request = world.ask("ann")
        numbers.append(world.got(request).number)
        world.release(request)
    for number, says in zip(numbers, ("not known here", "given back", "given back"), strict=True):
        with pytest.raises(Refusal, match=says):
            world.scheduler.renew(number, "ann")


def test_the_end_of_an_old_connection_does_not_take_away_the_new_one() -> None:
    world = World()
    board = world.board()
    old = board.link
    world.board()
    world.pool.disconnected(board, old)
    assert state(world, board) is BoardState.READY


def test_a_machine_that_does_not_come_back_loses_its_jobs() -> None:
    world = World(return_seconds=15, memory_seconds=100)
    board = world.board()
    number = world.got(world.ask("ann")).number
    world.pool.disconnected(board, board.link)
    world.wait(16)
    assert board.health.lost == 1 and not world.pool.grants
    with pytest.raises(Refusal, match="the machine is gone"):
        world.scheduler.renew(number, "ann")
    assert "1 gone: a (for 16 s)" in world.scheduler.why(world.ask("bob"))
    world.wait(100)
    assert not world.pool.boards


def test_a_restarted_machine_has_lost_its_jobs() -> None:
    world = World()
    board = world.board(tickets=True)
    request = world.ask("ann")
    number = accept(world, board, request)
    world.board(tickets=True)
    assert board.health.lost == 1 and not board.grants
    with pytest.raises(Refusal, match="it was restarted"):
        world.scheduler.renew(number, "ann")


def test_offers_to_a_machine_that_leaves_go_to_others_at_once() -> None:
    world = World()
    a = world.board("a", tickets=True)
    request = world.ask("ann")
    number = request.grant.number  # type: ignore[union-attr]
    world.pool.take_orders(a)
    world.board("b")
    world.pool.disconnected(a, a.link)
    world.scheduler.settle()
    assert request.is_served and world.got(request).board is not a
    world.board("a", tickets=True, held=[number])
    assert world.pool.take_orders(a) == {f"end.{number:016x}": "the lease is over"}


def test_there_is_room_for_so_many_machines() -> None:
    world = World(boards=2)
    a = world.board("a")
    world.board("b")
    with pytest.raises(Refusal, match="there are 2 machines"):
        world.board("c")
    world.pool.disconnected(a, a.link)
    world.board("c")
    assert [b.entry.name for b in world.pool.boards.values()] == ["b", "c"]


# ---- trackers that are restarted -------------------------------------------------------------------------------------


def test_a_restarted_tracker_finds_sessions_and_their_clients() -> None:
    world = World(settle_seconds=6, return_seconds=15)
    board = world.board(tickets=True, held=[77])
    other = world.ask("bob")
    assert "waits 6 s for those who held boards before" in world.scheduler.why(other)
    assert world.scheduler.resume(claim(world, 77), "ann") == 30
    world.wait(20, steps=4)
    assert not other.is_served and board.grants[77].name == "ann"
    assert board.grants[77].since == pytest.approx(world.clock.now - 25)
    world.scheduler.renew(77, "ann")
    world.scheduler.release(77, "ann", JobOutcome.DONE, "")
    assert world.pool.take_orders(board)
    world.pool.report(board, set())
    world.scheduler.settle()
    assert other.grant is not None


def test_a_session_whose_client_does_not_come_back_is_ended() -> None:
    world = World(return_seconds=15)
    board = world.board(tickets=True, held=[77])
    request = world.ask("ann")
    world.wait(14)
    assert "somebody whose client has not come back" in world.scheduler.why(request)
    world.wait(2)
    assert world.pool.take_orders(board) == {f"end.{77:016x}": "the lease is over"}
    with pytest.raises(Refusal):
        world.scheduler.resume(claim(world, 77), "ann")


def test_a_client_may_be_there_before_its_machine() -> None:
    world = World(settle_seconds=6, lease_seconds=30)
    waiting = world.ask("bob")
    world.scheduler.resume(claim(world, 77), "ann")
    assert "no board is registered" in world.scheduler.why(waiting)
    world.wait(3)
    board = world.board(tickets=False)
    world.wait(5)
    assert not waiting.is_served and board.grants[77].name == "ann"
    world.scheduler.release(77, "ann", JobOutcome.DONE, "")
    assert waiting.is_served and board.health.done == 1


def test_a_claim_for_a_machine_that_never_comes_ends() -> None:
    world = World(return_seconds=15, lease_seconds=1000)
    world.scheduler.resume(claim(world, 77), "ann")
    world.wait(16)
    assert not world.pool.boards and not world.pool.grants
    with pytest.raises(Refusal, match="the machine is gone"):
        world.scheduler.renew(77, "ann")


def test_a_machine_that_does_not_know_the_session_ends_the_claim() -> None:
    world = World()
    world.scheduler.resume(claim(world, 77), "ann")
    board = world.board(tickets=True, held=[])
    assert not board.grants
    with pytest.raises(Refusal, match="restarted"):
        world.scheduler.renew(77, "ann")


def test_who_lost_the_connection_takes_a_free_board_up_again_but_not_one_that_is_taken() -> None:
    world = World()
    board = world.board()
    number = world.got(world.ask("ann", client="old")).number
    world.scheduler.disconnected("old")
    assert world.scheduler.resume(claim(world, number), "new") == 30 and number in board.grants
    before = world.scheduler.shares.used("ann", world.clock.now)
    world.clock.now += 20
    world.scheduler.disconnected("new")
    assert world.scheduler.shares.used("ann", world.clock.now) == pytest.approx(before + 20, rel=0.05)
    world.ask("bob")
    with pytest.raises(Refusal, match="its client is gone"):
        world.scheduler.resume(claim(world, number), "newer")


def test_a_lease_moves_to_the_new_connection_of_its_client() -> None:
    world = World()
    world.board()
    number = world.got(world.ask("ann", client="old")).number
    world.scheduler.resume(claim(world, number), "new")
    world.scheduler.disconnected("old")
    assert world.scheduler.renew(number, "new") > 0
    with pytest.raises(Refusal):
        world.scheduler.resume(claim(world, number, port=1), "new")


def test_claims_are_limited() -> None:
    world = World(boards=1, requests_per_client=2)
    world.scheduler.resume(claim(world, 1), "ann")
    with pytest.raises(Refusal, match="too many machines"):
        world.scheduler.resume(claim(world, 2, port=2), "ann")
    world.scheduler.resume(claim(world, 2), "ann")
    with pytest.raises(Refusal, match="at most 2"):
        world.scheduler.resume(claim(world, 3), "ann")


# ---- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"heartbeat_seconds": 0},
        {"lease_seconds": -1},
        {"queue": 0},
        {"payload_bytes": 100},
        {"aging_seconds": float("nan")},
        {"links": 1 << 40},
    ],
)
def test_limits_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))) as caught:
        TrackerLimits(**wrong)  # type: ignore[arg-type]
    assert caught.value.code == "N030" and caught.value.hint


def test_some_limits_may_be_none() -> None:
    assert Scheduler(TrackerLimits(settle_seconds=0, probe_seconds=0, hold_seconds=0)).settling == 0
