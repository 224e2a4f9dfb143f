"""`weir policy log` without a broker."""

import orjson
import pytest

from streaming.kafka_io.policy_topic import PolicyLog
from weir import cli
from weir.commands import policy


def test_records_that_cannot_be_used_are_told_beside_the_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, so that each line of `--json` is a change."""
    log = PolicyLog()
    log.take(b"{", 1_000)
    log.take(orjson.dumps({"type": "policy", "path": "broker", "value": None}), 2_000)
    monkeypatch.setattr("streaming.kafka_io.policy_topic.read_policies", lambda _cluster, **_: log)
    assert cli.main(["policy", "log", "--json"]) == 0
    told = capsys.readouterr()
    assert orjson.loads(told.out)["entry"] == "broker"
    assert told.err.startswith("# 1 records could not be used, such as: ")


def test_a_reason_is_read_as_the_admin_api_reads_it() -> None:
    """Without what stands around it."""
    assert policy._reason("  größer, Ticket 7 ") == "größer, Ticket 7"
