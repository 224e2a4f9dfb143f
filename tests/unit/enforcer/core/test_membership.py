"""Who counts, and when a proxy hears too little."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mutation_kit import Desk

from enforcer.core.feeds.membership import MembershipFeed
from enforcer.core.membership import (
    ALIVE_MS,
    BEHIND_MS,
    PREDECESSOR_MS,
    PROXIES_MAX,
    UNACKNOWLEDGED_MS,
    Alive,
)
from streaming.kafka_io.brokers_clock import BrokersClock
from streaming.kafka_io.tail import Tail

T0 = 1_795_166_700_000


@pytest.fixture
def alive() -> Alive:
    """What a proxy knows of the others."""
    return Alive("p1")


def test_who_said_so_counts_for_15_seconds(alive: Alive) -> None:
    """By the times of records; our own move them on."""
    assert alive.count(away=False) == 1
    alive.heard("p1", T0)
    alive.heard("p2", T0)
    assert alive.count(away=False) == 2
    for late_ms in (5_000, 10_000, ALIVE_MS - 1):
        alive.heard("p1", T0 + late_ms)
    assert alive.count(away=False) == 2
    alive.heard("p1", T0 + ALIVE_MS)
    assert alive.count(away=False) == 1


def test_a_leader_whose_clock_goes_back_leaves_nobody_for_dead(alive: Alive) -> None:
    """It was ahead and is right again, or a new one is behind; from then on its times count."""
    for ts in (T0 + 2 * ALIVE_MS, T0):
        alive.heard("p1", ts)
        alive.heard("p2", ts + 500)
    assert alive.count(away=False) == 2
    for late_ms in (5_000, 10_000, ALIVE_MS):
        alive.heard("p1", T0 + 500 + late_ms)
    assert alive.count(away=False) == 1


def test_where_nobody_is_heard_nobody_has_missed_a_word(alive: Alive) -> None:
    """Kafka was away, or a leader's clock stepped on: whoever is read first afterwards is not alone."""
    for ts in (T0, T0 + 5_000):
        alive.heard("p1", ts)
        alive.heard("p2", ts)
    for late_ms, count in ((60_000, 2), (65_000, 2), (70_000, 1)):
        alive.heard("p1", T0 + late_ms)
        assert alive.count(away=False) == count


def test_who_hears_nobody_is_not_alone(alive: Alive) -> None:
    """Cut off from Kafka no time passes by records, and our own count no less."""
    alive.heard("p2", T0)
    assert alive.count(away=False) == 2
    assert alive.count(away=True) == 2


def test_who_leaves_counts_no_more(alive: Alive) -> None:
    """At once, and comes back when he says so."""
    alive.heard("p2", T0)
    alive.heard("p2", T0 + 1, leaving=True)
    assert alive.count(away=False) == 1
    alive.heard("p2", T0 + 2)
    assert alive.count(away=False) == 2


def test_the_job_away_keeps_him_until_his_events_are_decided(alive: Alive) -> None:
    """What he may have sent after his last word, too, unless he left."""
    alive.heard("p2", T0)
    alive.heard("p3", T0 + 5, leaving=True)
    alive.heard("p1", T0 + 10 * ALIVE_MS)
    assert alive.count(away=True) == 3
    alive.decided(T0 + 6)
    assert alive.count(away=True) == 2
    alive.decided(T0 + ALIVE_MS + 1)
    assert alive.count(away=True) == 1


def test_another_process_of_our_name_counts() -> None:
    """Else each of two would take all that there is for its own part."""
    first, second = Alive("p1", "a"), Alive("p1", "b")
    for alive in (first, second):
        alive.heard("p1", T0, instance="a")
        alive.heard("p1", T0 + 1_000, instance="b")
        assert alive.count(away=False) == 2
    # The older one goes on, and says so; the younger one must not.
    assert first.heard("p1", T0 + 1_500, instance="b") and not first.name_is_taken
    assert not second.name_is_taken
    assert second.heard("p1", T0 + 5_000, instance="a") and second.name_is_taken
    first.heard("p1", T0 + 6_000, instance="b", leaving=True)
    assert first.count(away=False) == 1


def test_who_was_killed_is_waited_for_until_it_has_missed_its_word() -> None:
    """It comes back under its name and takes its own place, at itself first, at the others after 15 s."""
    again, other = Alive("p1", "b"), Alive("p2", "x")
    for alive in (again, other):
        assert not alive.heard("p1", T0, instance="a")
        assert not alive.heard("p1", T0 + 3_000, instance="b")
        assert alive.count(away=False) == 3 - (alive is again)
    assert again.predecessor_ms(T0 + 4_000) == PREDECESSOR_MS - 4_000 and not again.name_is_taken
    assert again.predecessor_ms(T0 + ALIVE_MS) == 0
    for alive in (again, other):
        alive.heard("p1", T0 + PREDECESSOR_MS, instance="b")
    assert (again.count(away=True), other.count(away=True)) == (1, 3)
    other.heard("p1", T0 + ALIVE_MS, instance="b")
    assert other.count(away=True) == 2


def test_who_left_is_not_waited_for() -> None:
    """A restart in order comes back at once."""
    alive = Alive("p1", "b")
    alive.heard("p1", T0, instance="a")
    alive.heard("p1", T0 + 1, instance="a", leaving=True)
    alive.heard("p1", T0 + 2, instance="b")
    assert alive.predecessor_ms(T0 + 2) == 0 and alive.count(away=False) == 1


def test_so_many_are_counted(alive: Alive) -> None:
    """The one heard of longest ago leaves."""
    for number in range(PROXIES_MAX + 1):
        alive.heard(f"other{number}", T0)
    assert alive.count(away=False) == 1 + PROXIES_MAX


def test_blind_until_somebody_knows_us_and_we_know_what_was_decided(alive: Alive) -> None:
    """Both are needed before the first decision beside others."""
    alive.at_end(T0)
    alive.sent(T0)
    assert alive.blind(T0)
    alive.acknowledged(T0)
    assert not alive.blind(T0)
    assert Alive("p1").blind(T0)


def test_blind_when_behind(alive: Alive) -> None:
    """5 s without having been at the end."""
    alive.sent(T0)
    alive.acknowledged(T0)
    alive.at_end(T0)
    assert not alive.blind(T0 + BEHIND_MS - 1)
    assert alive.blind(T0 + BEHIND_MS)
    alive.at_end(T0 + BEHIND_MS)
    assert not alive.blind(T0 + BEHIND_MS)


def test_blind_when_nobody_takes_our_word(alive: Alive) -> None:
    """10 s after the first that was not acknowledged, however many follow."""
    alive.sent(T0)
    alive.acknowledged(T0)
    for late_ms in range(5_000, 500_000, 5_000):
        alive.sent(T0 + late_ms)
        alive.at_end(T0 + late_ms)
        assert alive.blind(T0 + late_ms) == (late_ms - 5_000 >= UNACKNOWLEDGED_MS)
    alive.acknowledged(T0 + 495_000)
    assert not alive.blind(T0 + 495_000)


async def test_a_law_that_cannot_ask_for_a_sign_ends_no_heartbeat() -> None:
    """Else the others would share out our part of each quota in 15 s, while we go on with it."""
    here = replace(Desk().context, ask_for_a_sign=cast(Any, None))
    here.membership.count = 2
    brokers, said = BrokersClock(here.clock.steady_ms, here.clock.wall_ms), list[str]()
    reports = cast(Any, SimpleNamespace(send_first=lambda _event, key, **_rest: said.append(key)))
    feed = MembershipFeed(here, reports, brokers, lambda *_: None)
    with pytest.raises(TypeError):
        feed._beat()
    assert said == [here.proxy_id] and feed._heart is not None
    feed._heart.cancel()


async def test_blind_when_there_is_no_room_for_our_word() -> None:
    """One that is dropped, since too many events wait, is heard by nobody either."""
    desk, taken, told = Desk(), True, list[Callable[[int], object]]()

    def send(_event: Mapping[str, Any], _key: str, topic: str = "", *, acked: Any = None) -> bool:
        if taken:
            told.append(acked)
        return taken

    here, reports = replace(desk.context, send_usage=send), cast(Any, SimpleNamespace(send_first=send))
    brokers = BrokersClock(here.clock.steady_ms, here.clock.wall_ms)
    feed = MembershipFeed(here, reports, brokers, lambda *_: None)
    feed.known.set()
    for now_ms, taken, blind in (  # noqa: B007 — `send` reads it
        (0, True, False), (5_000, False, False), (10_000, False, False), (15_000, False, True),
        (20_000, True, False),
    ):  # fmt: skip
        desk.now_ms = now_ms
        feed._say(leaving=False)
        while told:
            told.pop()(desk.wall_ms)
        here.membership.look()
        assert here.membership.blind == blind


async def test_who_cannot_listen_yet_does_at_its_next_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread was left as the first was acknowledged, no law began until a restart."""
    desk, told, begun = Desk(), list[Callable[[int], object]](), list[bool]()

    def send(_event: Mapping[str, Any], _key: str, topic: str = "", *, acked: Any = None) -> bool:
        told.append(acked)
        return True

    def start(_tail: object, _loop: object) -> None:
        begun.append(bool(begun))
        if not begun[-1]:
            raise RuntimeError("can't start new thread")

    here, reports = replace(desk.context, send_usage=send), cast(Any, SimpleNamespace(send_first=send))
    brokers = BrokersClock(here.clock.steady_ms, here.clock.wall_ms)
    feed = MembershipFeed(here, reports, brokers, lambda *_: None)
    monkeypatch.setattr(Tail, "start", start)
    for _ in range(3):
        feed._say(leaving=False)
        with suppress(RuntimeError):
            told.pop()(desk.wall_ms)
        assert feed.known.is_set() == any(begun)
    assert begun == [False, True]


def test_of_those_that_live_only_some_stand_before_the_same_brokers(alive: Alive) -> None:
    """Who speaks another protocol is counted apart; who does not say which counts everywhere."""
    for name, speaks in (("k", "kafka"), ("p", "pulsar"), ("a", "http"), ("old", "")):
        alive.heard(name, 1_000, speaks=speaks)
    assert alive.count(away=False) == 5
    assert alive.count_of(frozenset({"pulsar"})) == 3
    assert alive.count_of(frozenset({"pulsar", "kafka"})) == 4
    alive.heard("old", 1_100, leaving=True)
    alive.count(away=False)
    assert alive.count_of(frozenset({"http"})) == 2
