"""Who gets a board: priorities, fair shares, aging, and what those who wait are told."""

from __future__ import annotations

import pytest
from tracker_kit import World

from weft.rpc.tracker.reasons import seconds
from weft.rpc.tracker.scheduler import Refusal
from weft.rpc.tracker.shares import HALF_LIFE_SECONDS, Shares
from weft.rpc.tracker.status import status_of


def test_a_free_board_is_given_at_once_and_only_once() -> None:
    world = World()
    board = world.board()
    first, second = world.ask("ann"), world.ask("bob")
    assert world.got(first).board is board and not second.is_served
    world.release(first)
    assert world.got(second).board is board and world.scheduler.requests == {second.number: second}


def test_higher_priorities_come_first() -> None:
    world = World()
    world.board()
    first = world.ask("holder")
    low, high, middle = world.ask("low", priority=-1), world.ask("high", priority=7), world.ask("middle")
    served = []
    for request in (first, high, middle, low):
        assert request.is_served
        served.append(request.name)
        world.release(request)
    assert served == ["holder", "high", "middle", "low"]


def test_a_request_of_low_priority_gets_its_turn() -> None:
    """However many of a higher priority come, each one with a name that has used nothing."""
    world = World(aging_seconds=100, lease_seconds=1000)
    world.board()
    current = world.ask("first", priority=5)
    low = world.ask("low")
    for turn in range(100):
        following = world.ask(f"other {turn}", priority=5)
        world.wait(10)
        world.release(current)
        if low.is_served:
            break
        current = following
    waited = world.clock.now - low.since
    assert low.is_served and 500 <= waited <= 520


def test_clients_of_one_priority_share_by_time() -> None:
    """One asks for long jobs and always has many requests in the queue, the other for short ones."""
    world = World(lease_seconds=1000)
    world.board()
    used = {"greedy": 0.0, "modest": 0.0}
    lengths = {"greedy": 30.0, "modest": 10.0}
    waiting = [world.ask("greedy") for _ in range(8)] + [world.ask("modest")]
    for _ in range(60):
        (current,) = [r for r in waiting if r.is_served]
        world.wait(lengths[current.name])
        used[current.name] += lengths[current.name]
        waiting.remove(current)
        waiting.append(world.ask(current.name))
        world.release(current)
    assert 0.8 < used["greedy"] / used["modest"] < 1.25


def test_boards_that_are_free_at_one_moment_go_round() -> None:
    world = World(settle_seconds=5)
    for name in "abcd":
        world.board(name)
    requests = [world.ask("ann") for _ in range(4)] + [world.ask("bob") for _ in range(4)]
    assert world.served(requests) == []
    world.wait(6)
    assert sorted(world.served(requests)) == ["ann", "ann", "bob", "bob"]


def test_what_is_held_now_counts() -> None:
    world = World(lease_seconds=1000)
    world.board("a")
    held = world.ask("ann")
    world.wait(500)
    first, second = world.ask("ann"), world.ask("bob")
    world.board("b")
    assert second.is_served and not first.is_served and held.is_served


def test_old_use_is_forgotten() -> None:
    shares = Shares()
    shares.charge("ann", 100.0, 0.0, new_key="pi4")
    assert shares.used("ann", HALF_LIFE_SECONDS) == pytest.approx(50.0)
    shares.charge("ann", 10.0, HALF_LIFE_SECONDS)
    assert shares.used("ann", HALF_LIFE_SECONDS) == pytest.approx(60.0) and shares.served_at("ann") == 0.0
    assert shares.served_at("ann", "pi4") == 0.0 and shares.served_at("ann", "zen4") == float("-inf")
    shares.charge("bob", 1.0, HALF_LIFE_SECONDS)
    shares.forget(8 * HALF_LIFE_SECONDS)
    assert [name for name, _ in shares.table(8 * HALF_LIFE_SECONDS)] == ["ann"]
    shares.forget(100 * HALF_LIFE_SECONDS)
    assert shares.table(0.0) == [] and shares.served_at("ann") == float("-inf")


def test_a_short_lease_is_charged_a_second_and_a_long_one_its_time() -> None:
    world = World(lease_seconds=1000)
    world.board()
    for held, used in ((0.25, 1.0), (20.0, 21.0)):
        request = world.ask("ann")
        world.wait(held / 2, steps=4)
        world.clock.now += held / 2
        world.release(request)
        assert world.scheduler.shares.used("ann", world.clock.now) == pytest.approx(used, rel=0.05)


def test_the_name_of_a_board_is_a_key_too() -> None:
    world = World()
    a, b = world.board("a"), world.board("b")
    assert world.got(world.ask("ann", key="b")).board is b
    assert world.got(world.ask("bob", key="pi4")).board is a
    waiting = world.ask("cat", key="b")
    world.wait(1)
    assert waiting.position == 1 and "b (ann for 1 s)" in world.scheduler.why(waiting)


def test_positions_count_rivals_only() -> None:
    world = World()
    world.board("a", key="pi4")
    world.board("z", key="zen4")
    world.ask("holder", key="pi4"), world.ask("holder", key="zen4")
    first, other, second = world.ask("ann"), world.ask("bob", key="zen4"), world.ask("cat", key="a", priority=-2)
    world.wait(1)
    assert [r.position for r in (first, other, second)] == [1, 1, 2] and second.ahead == ("ann",)
    before = first.version, second.version
    world.scheduler.cancel(first.number, first.client)
    world.wait(1)
    assert second.position == 1 and second.version > before[1] and second in world.scheduler.news
    with pytest.raises(Refusal, match="no such request"):
        world.scheduler.asked(first.number, first.client)


def test_versions_change_with_news_only() -> None:
    world = World(probe_seconds=0)
    world.board()
    world.ask("holder")
    waiting = world.ask("ann")
    assert waiting.version == 0
    world.wait(1)
    version = waiting.version
    assert version == 1
    world.wait(5, steps=5)
    assert waiting.version == version
    world.board("b")
    assert waiting.is_served and waiting.version == version + 1


def test_who_waits_is_told_why() -> None:
    world = World(rest_seconds=300)
    a, b, c, d = (world.board(n) for n in "abcd")
    holder = world.ask("ann")
    world.scheduler.disconnected("nobody")
    assert world.got(holder).board is a
    b.failure = "cannot connect to it: refused"
    c.health.rests_until, c.health.lost_in_a_row = world.clock.now + 90, 3
    world.pool.disconnected(d, d.link)
    first = world.ask("bob", priority=2)
    second = world.ask("cat")
    world.clock.now += 10
    world.scheduler.tick()
    why = world.scheduler.why(second)
    assert "4 boards with the key 'pi4'" in why and "1 in use: a (ann for 10 s)" in why
    assert "1 unreachable: b (cannot connect to it: refused)" in why
    assert "1 resting: c (3 jobs lost in a row, for 80 s)" in why and "1 gone: d (for 10 s)" in why
    assert why.endswith("ahead: bob (priority 2)") and second.position == 2
    assert "ahead" not in world.scheduler.why(first)


def test_many_ahead_are_counted_and_many_boards_too() -> None:
    world = World()
    for name in "abcdefg":
        world.board(name)
        world.ask(f"holder of {name}")
    waiting = [world.ask(f"n{i}") for i in range(9)]
    world.wait(1)
    why = world.scheduler.why(waiting[-1])
    assert why.endswith("ahead: n0, n1, n2 and 5 more") and "7 in use: " in why and " and 3 more; " in why


def test_many_holders_of_one_board_are_counted() -> None:
    world = World()
    world.board(capacity=6)
    for i in range(6):
        world.ask(f"n{i}")
    waiting = world.ask("ann")
    assert "a (n0 for 0 s, n1 for 0 s, n2 for 0 s, n3 for 0 s, 2 more)" in world.scheduler.why(waiting)
    row = status_of(world.scheduler).boards[0]
    assert (row.in_use, row.capacity) == (6, 6) and [h.name for h in row.holders] == [f"n{i}" for i in range(6)]


def test_an_unknown_key_is_told_with_those_there_are() -> None:
    world = World()
    request = world.ask("ann", key="pi5")
    world.wait(1)
    assert "no board is registered at all" in world.scheduler.why(request)
    world.board("a"), world.board("b"), world.board("z", key="zen4")
    world.wait(1)
    why = world.scheduler.why(request)
    assert why.startswith("no board has the key 'pi5'; did you mean 'pi4'? there are: pi4 (2 boards), zen4 (1 board)")
    world.board("p", key="pi5")
    assert request.is_served
    for i in range(12):
        world.board(chr(ord("c") + i), key=f"k{i:02}")
    assert "k11 (1 board) and 3 more" in world.scheduler.why(world.ask("bob", key="x"))


def test_the_queue_has_an_end() -> None:
    world = World(queue=3, requests_per_client=2)
    world.ask("ann"), world.ask("ann")
    with pytest.raises(Refusal, match="one connection has at most 2"):
        world.ask("ann")
    world.ask("bob")
    with pytest.raises(Refusal, match="the queue is full: 3 requests wait"):
        world.ask("cat")
    world.scheduler.disconnected("ann")
    world.ask("cat")


def test_a_request_and_its_lease_count_once() -> None:
    world = World(requests_per_client=2)
    world.board()
    assert world.ask("ann").is_served
    world.ask("ann")
    with pytest.raises(Refusal, match="at most 2"):
        world.ask("ann")


def test_requests_belong_to_their_connection() -> None:
    world = World()
    request = world.ask("ann", client="one")
    for number, client in ((request.number, "two"), (request.number + 1, "one")):
        with pytest.raises(Refusal):
            world.scheduler.cancel(number, client)
    world.scheduler.cancel(request.number, "one")
    assert not world.scheduler.requests


def test_waiting_for_a_lost_tracker_counts() -> None:
    world = World()
    world.board()
    world.ask("holder")
    late = world.scheduler.request("one", "pi4", "ann", 0)
    early = world.scheduler.request("two", "pi4", "bob", 0, waited=50.0)
    assert [r.name for r in world.scheduler.waiting()] == [early.name, late.name]


def test_a_thousand_requests_for_a_hundred_boards() -> None:
    world = World(settle_seconds=1, boards=200)
    for i in range(100):
        entry_name = chr(ord("a") + i % 26) + str(i)
        board = world.board(entry_name)
        board.entry = type(board.entry)(entry_name, "pi4", "10.0.0.1", 9000 + i)
    names = [f"user {i % 10}" for i in range(1000)]
    requests = [world.ask(n, client=i) for i, n in enumerate(names)]
    world.wait(2)
    served = world.served(requests)
    boards = len(world.pool.boards)
    assert len(served) == boards and max(served.count(n) for n in set(names)) <= boards // 10 + 1


@pytest.mark.parametrize(
    ("value", "shown"), [(-1, "0 s"), (119, "119 s"), (120, "2 min"), (7100, "118 min"), (7200, "2 h")]
)
def test_times_for_people(value: float, shown: str) -> None:
    assert seconds(value) == shown
