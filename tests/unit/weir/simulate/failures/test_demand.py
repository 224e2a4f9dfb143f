"""What of a log is simulated."""

from pathlib import Path

import orjson
import pytest
from event_kit import T0, delivery, sample
from law_kit import request

from streaming.contract.errors import WeirError
from weir.simulate.failures import demand
from weir.simulate.failures.demand import BIN_MS, Demand


def of(*events: dict[str, object]) -> Demand:
    """A log of some events."""
    found = Demand()
    for event in events:
        found.take(orjson.dumps(event), "")
    return found


def test_the_worst_time_is_where_most_is_wanted() -> None:
    """The earliest of them, of whole ten minutes; none where nothing is."""
    begin = T0 // BIN_MS * BIN_MS - T0
    log = of(
        request("a", begin, 5), request("b", begin + BIN_MS, 3), request("c", begin + 2 * BIN_MS, 3),
        request("d", begin + 9 * BIN_MS, 5),
    )  # fmt: skip
    assert log.worst_ms("mutation", BIN_MS) == T0 + begin
    assert log.worst_ms("mutation", 2 * BIN_MS) == T0 + begin
    assert of(*[request("b", begin + BIN_MS, 9)]).worst_ms("mutation", BIN_MS) == T0 + begin + BIN_MS
    assert log.worst_ms("dispatch", BIN_MS) == 0


def test_the_worst_time_of_a_short_log_is_when_it_begins() -> None:
    """Eight minutes into its ten: a simulation of fewer minutes found no events of it."""
    first = T0 // BIN_MS * BIN_MS - T0 + 485_000
    assert of(request("a", first, 5), request("b", first + 1_000, 5)).worst_ms("mutation", BIN_MS) == (
        T0 + first - 5_000
    )


def test_dry_runs_want_nothing() -> None:
    """Nor do requests without items, ticks and signs of life."""
    log = of(
        request("a", 0, 5, validate_only=True), request("b", 0), {"type": "tick", "ts": T0},
        {"type": "alive", "ts": T0, "proxy": "p"}, sample("s", 0, 10),
    )  # fmt: skip
    assert [law for law, events in log.of.items() if events] == ["concurrency"]


def test_samples_of_one_event_are_told_apart() -> None:
    """But for those that cannot be used."""
    event = {"type": "latency", "id": "l", "ts": T0, "partition": "b", "samples": [
        [0, 5, 3, False], [0, 0, 3, False], [0, 7, 4, True],
    ]}  # fmt: skip
    log = of(event)
    samples = [sample for one in log.of["concurrency"] for sample in one.samples]
    assert [(one.rtt_ns, one.inflight, one.did_drop) for one in samples] == [
        (5, 3, False), (7, 4, True),
    ]  # fmt: skip


def test_who_wants_least_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are too many events, and whoever wants most is there however many they are."""
    log = of(
        *(request(f"a{n}", n, 9) for n in range(4)), *(request(f"b{n}", n, 1, user="bob") for n in range(2)),
        request("c", 0, 5, user="carol"),
    )  # fmt: skip
    kept, left_out = log.between("mutation", T0, T0 + 10)
    assert (len(kept), left_out) == (7, 0)
    for most, users in ((6, {"alice", "carol"}), (5, {"alice", "carol"}), (2, {"alice"})):
        monkeypatch.setattr(demand, "SIMULATED_MAX", most)
        kept, left_out = log.between("mutation", T0, T0 + 10)
        assert {event.user for event in kept} == users and left_out == 7 - len(kept)
    assert log.between("mutation", T0 + 3, T0 + 3) == ([], 0)


def test_groups_that_use_least_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a report with more than can be looked at in each step."""
    usage = {f"g{n}": {"publishedMsg": n} for n in range(5)}
    log = of({"type": "group_usage", "id": "u", "ts": T0, "broker": "b", "period_ms": 1_000, "usage": usage})
    monkeypatch.setattr(demand, "GROUPS_MAX", 2)
    (report,), _ = log.between("shares", T0, T0 + 1)
    assert [group for group, _ in report.usage] == ["g3", "g4"]


def test_parts_of_what_may_be_in_flight_are_no_traffic() -> None:
    """A million a second for each partition: they were the busiest groups, and said when most is wanted."""
    usage = {"inflight/broker-1": {"publishedMsg": 900_000}, "g": {"publishedMsg": 5}}
    log = of({"type": "group_usage", "id": "u", "ts": T0, "broker": "b", "period_ms": 1_000, "usage": usage})
    assert [[group for group, _ in one.usage] for one in log.of["shares"]] == [["g"]]


def test_a_log_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With its name."""
    file = tmp_path / "log.jsonl"
    file.write_bytes(b"".join(orjson.dumps(delivery(n)) + b"\n" for n in range(4)))
    assert len(Demand.read([str(file)]).of["dispatch"]) == 4
    monkeypatch.setattr(demand, "EVENTS_MAX", 3)
    with pytest.raises(WeirError, match=r"log\.jsonl: the log has more than 3 events"):
        Demand.read([str(file)])
