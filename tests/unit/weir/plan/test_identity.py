"""The proof that a log is to be trusted."""

import os
import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from law_kit import request
from plan_kit import file_of, planned, policies_of, quotas_of

from streaming.contract.errors import WeirError
from streaming.replay import replay_local
from weir.plan.identity import prove

ASKED = [request(f"a{n}", n * 100, 6) for n in range(4)]


def recorded(folder: Path, **changes: Any) -> list[dict[str, Any]]:
    """What was decided of ASKED."""
    own = policies_of(folder, "own.yaml", **quotas_of(alice=1))
    return [orjson.loads(line) for line in replay_local(own, [file_of(folder, "e.jsonl", *ASKED)]).decisions]


def proven(folder: Path, *decisions: dict[str, Any] | bytes) -> int | None:
    """Whether these are what the log gives."""
    file = file_of(folder, "d.jsonl", *decisions)
    return planned(folder, ASKED, quotas_of(alice=1), recorded=[file]).proven


def test_what_was_recorded_comes_out_again_in_whatever_order(tmp_path: Path) -> None:
    """Repeats, candidates and steps of actions stand aside, and the order of keys and lines says nothing."""
    said = recorded(tmp_path)
    turned = [dict(reversed(decision.items())) for decision in reversed(said)]
    beside = [
        said[0] | {"repeat": True, "ts": 1}, said[1] | {"candidate": "new.yaml", "outcome": "allow"},
        {"type": "backlog_action", "id": "x"},
    ]  # fmt: skip
    assert proven(tmp_path, *turned, *beside, said[0]) == len(said)


def test_the_first_difference_is_named(tmp_path: Path) -> None:
    """Where, which decision, and what it says; the earliest, though later ones differ too."""
    said = recorded(tmp_path)
    wrong = [*said[:2], said[2] | {"outcome": "allow"}, said[3] | {"tokens": 99.0}]
    with pytest.raises(WeirError) as error:
        proven(tmp_path, *wrong)
    text = str(error.value)
    assert "2 decisions differ" in text and "d.jsonl:3: admission a2" in text
    assert 'outcome: "allow", the log gives "reject"' in text


def test_a_difference_of_form_alone_is_named(tmp_path: Path) -> None:
    """Decisions that went through `jq` 1.6 have 5 for 5.0: that, and a null more, was a traceback."""
    said = recorded(tmp_path)
    for other, told in (
        (said[0] | {"limit": 1}, "recorded limit: 1, the log gives 1.0"),
        (said[0] | {"refunds": None}, "recorded refunds: null, the log gives nothing"),
    ):
        with pytest.raises(WeirError, match=told):
            proven(tmp_path, other, *said[1:])


def test_a_decision_without_its_event_and_an_event_without_its_decision_differ(tmp_path: Path) -> None:
    """Both ways: a log that lacks something decides otherwise."""
    said = recorded(tmp_path)
    with pytest.raises(WeirError, match="recorded, and the log does not give it"):
        proven(tmp_path, *said, said[0] | {"id": "stranger"})
    with pytest.raises(WeirError, match=r"admission a3 .* it was not recorded"):
        proven(tmp_path, *said[:3])


def test_limits_and_shares_may_be_fewer(tmp_path: Path) -> None:
    """The live job writes one a batch, and none that says nothing new."""
    limits = [{"type": "limit", "id": f"s{n}", "ts": n, "partition": "p", "limit": n} for n in range(3)]
    file = file_of(tmp_path, "d.jsonl", limits[1])
    assert prove([file], [orjson.dumps(one) for one in limits]) == 1


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    """So what differs is said without its words."""
    wrong = [said | {"tokens": 99.0} for said in recorded(tmp_path)]
    end, into = os.pipe()
    with os.fdopen(end), os.fdopen(into, "wb") as pipe:
        pipe.write(b"".join(orjson.dumps(one) + b"\n" for one in wrong))
        pipe.close()
        with pytest.raises(WeirError, match=r"4 decisions differ, the first one at \d+; a pipe is read once"):
            planned(tmp_path, ASKED, quotas_of(alice=1), recorded=[f"/dev/fd/{end}"])


def test_room_is_beside_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where temporary files are."""
    file = file_of(tmp_path, "d.jsonl", *recorded(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    near = str(tmp_path / "out.jsonl")
    assert planned(tmp_path, ASKED, quotas_of(alice=1), recorded=[file], near=near).proven == 4


def test_a_line_that_is_no_object_is_named(tmp_path: Path) -> None:
    """A file of something else proves nothing."""
    with pytest.raises(WeirError, match=r"d\.jsonl:1: not JSON"):
        proven(tmp_path, b"nonsense\n")


def test_a_time_beyond_all_times_is_a_difference(tmp_path: Path) -> None:
    """No machine's number holds it; it was a traceback."""
    first, *others = recorded(tmp_path)
    with pytest.raises(WeirError, match="1 decisions differ"):
        proven(tmp_path, first | {"ts": 2**63}, *others)
