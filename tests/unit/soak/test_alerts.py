"""An alert that fires is explained by what befell before, and what has to fire does (tests/soak)."""

from pathlib import Path

from soak_alerts import DEMANDED, EXPLAINED, note_alerts, patience
from soak_checks import check
from soak_histories import AWAY, GOOD, down, fired, share, without
from soak_history import Entry, History, Recorder
from soak_schedule import LONG


def test_an_alert_is_demanded_where_there_was_time_for_it() -> None:
    """Not of a short fault, nor of one at the end of the watch."""
    silent = [one for one in without("alert", 0) if one["kind"] != "watched"]
    watched = {"kind": "watched", "begun": 0, "ended": 60_000}

    assert check(History.of([*silent, watched]))["alerts"] == []
    assert check(History.of([*GOOD, down(2_000_000, 9.0)]))["alerts"] == []


def test_a_share_expires_only_where_there_is_one() -> None:
    """One that joins, as the job stands still, was told before that it is no member any more."""
    still = {**down(2_000_000, LONG["stop", "jvm"]), "what": "stop", "target": "jvm"}
    began = [*GOOD, still, fired("WeirJobStopped", 2_200_000)]
    watched = [one | {"ended": 3_600_000} if one["kind"] == "watched" else one for one in began]

    for decided, silent in (([], []), ([share(1), share(2, None)], []), ([share(1)], ["WeirSharesExpired"])):
        said = check(History.of([*watched, *decided]))["alerts"]
        assert [one.split()[0] for one in said] == silent, decided


def test_what_kafka_did_not_take_may_be_lost_sight_of() -> None:
    """An event that waited for a minute, so a local decision too; of the job's end alone none is."""
    lost = fired("WeirLocalDecisionsLost", 60_000, "one")

    assert check(History.of([*GOOD, lost]))["alerts"]
    assert check(History.of([*GOOD, lost, AWAY]))["alerts"] == []


def test_the_tables_name_alerts_and_faults_that_are_there() -> None:
    """Each long fault has to raise some, and may."""
    assert set(DEMANDED) == set(LONG)
    assert {name for names in DEMANDED.values() for name in names} <= set(EXPLAINED) < set(patience())
    assert patience()["WeirBrokerUnreachable"] == (300_000, 300_000)


def test_each_time_in_which_an_alert_fired_is_noted(tmp_path: Path) -> None:
    """Prometheus gives a value for each step while it fires."""

    class Watched:
        def ask_range(self, *_: object) -> list[Entry]:
            labels = {"alertname": "WeirJobDown", "severity": "critical", "instance": "h:1"}
            return [{"metric": labels, "values": [[at, "1"] for at in (10, 15, 20, 90, 95)]}]

    with Recorder(tmp_path / "h") as told:
        note_alerts(Watched(), told, {"h:1": "job"}, 0, 100_000)  # type: ignore[arg-type]  # what it asks

    noted = History.read(tmp_path / "h")["alert"]
    assert [(one["part"], one["begun"], one["ended"]) for one in noted] == [
        ("job", 10_000, 20_000), ("job", 90_000, 95_000)
    ]  # fmt: skip
