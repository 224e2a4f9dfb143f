"""What the foreign suites' runner makes of their output (docs/testing.md)."""

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import franz_go
import kafka_python
import librdkafka
import pytest
from outcomes import Difference, Outcome, Outcomes, counts, differences
from suite import PASSWORD, USER, Access, Suite

from weir.jars.folders import ROOT

PASSED, FAILED, SKIPPED, MISSING = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED, Outcome.MISSING
GO = """
=== RUN   TestGroup
=== RUN   TestGroup/range
=== RUN   TestOld
=== RUN   TestHung
    --- PASS: TestGroup/range (1.00s)
--- FAIL: TestGroup (1.00s)
--- SKIP: TestOld (0.00s)
"""
PYTEST = """
PASSED test/integration/test_a.py::test_one[None]
FAILED test/integration/test_a.py::test_two - kafka.errors.Oops
ERROR test/integration/test_a.py::test_three
SKIPPED [1] test/testutil.py:52: no such library
"""
TABLE = """
[0001_multiobj /  0.000s] ================= Test 0001_multiobj PASSED =================
\x1b[32m| 0001_multiobj                            |     PASSED |   1.159s | \x1b[0m
\x1b[31m| 0103_transactions                        |     FAILED | 115.395s | an assertion\x1b[0m
\x1b[33m| 0053_stats                               |    SKIPPED |   0.000s | no RapidJSON\x1b[0m
\x1b[33m| 0004_conf |    SKIPPED |   0.000s | Filtered due to negative test flags\x1b[0m
\x1b[34m| 0090_idempotence                         |    RUNNING |   9.000s | \x1b[0m
"""


@pytest.mark.parametrize(
    ("suite", "module", "text", "found"),
    [
        (
            franz_go.FranzGo, franz_go, GO,
            {"TestGroup": FAILED, "TestGroup/range": PASSED, "TestOld": SKIPPED, "TestHung": MISSING},
        ),
        (
            kafka_python.KafkaPython, kafka_python, PYTEST,
            {
                "test/integration/test_a.py::test_one[None]": PASSED,
                "test/integration/test_a.py::test_two": FAILED,
                "test/integration/test_a.py::test_three": FAILED,
            },
        ),
        (
            librdkafka.Librdkafka, librdkafka, TABLE,
            {
                "0001_multiobj": PASSED, "0103_transactions": FAILED, "0053_stats": SKIPPED,
                "0090_idempotence": MISSING,
            },
        ),
    ],
)  # fmt: skip
def test_outcomes_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, suite: type[Suite], module: object, text: str,
    found: Outcomes,
) -> None:
    """Each suite's own way to say it; what began and did not end is missing."""
    monkeypatch.setattr(module, "said", lambda *_: text)
    assert suite(tmp_path).run(Access("127.0.0.1:1"), tmp_path / "log") == found


@pytest.mark.parametrize(
    ("suite", "module"),
    [
        (franz_go.FranzGo, franz_go),
        (kafka_python.KafkaPython, kafka_python),
        (librdkafka.Librdkafka, librdkafka),
    ],
)  # fmt: skip
def test_clients_are_told_whom_to_trust_and_how_to_log_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, suite: type[Suite], module: object
) -> None:
    """Each in its own form, and nothing of it where there is no TLS."""
    given: list[str] = []
    monkeypatch.setattr(module, "said", lambda *words: given.append(str(words)) or "")
    told = tmp_path / "test.conf"
    for ca in ("", "/trusted.pem"):
        suite(tmp_path).run(Access("127.0.0.1:1", ca), tmp_path / "log")
        given[-1] += told.read_text() if told.exists() else ""
    plain, tls = given
    assert all(word in tls for word in ("/trusted.pem", USER, PASSWORD))
    assert PASSWORD not in plain


def test_only_what_is_worse_differs() -> None:
    """Worse is skipped instead of passed, or failed or missing instead of either."""
    straight = {"a": PASSED, "b": PASSED, "c": FAILED, "d": SKIPPED, "e": FAILED, "f": SKIPPED, "g": PASSED}
    through = {"a": PASSED, "b": SKIPPED, "c": PASSED, "d": FAILED, "f": PASSED}
    assert differences(straight, through) == [
        Difference("b", PASSED, SKIPPED),
        Difference("d", SKIPPED, FAILED),
        Difference("g", PASSED, MISSING),
    ]
    assert counts(straight) == "3 passed, 2 failed, 2 skipped"


def test_what_is_worse_by_design_is_named(tmp_path: Path) -> None:
    """By its bare name, whatever its file and parameters; no other test."""
    suite = kafka_python.KafkaPython(tmp_path)
    (name,) = suite.by_design
    assert suite.reason(f"test/integration/test_a.py::{name}[None]") == suite.by_design[name]
    assert not suite.reason(f"test/integration/test_a.py::{name}_too")


@pytest.mark.parametrize("words", [[], ["all"]])
@pytest.mark.parametrize("program", ["suites", "matrix"])
def test_without_a_name_all_are_run(program: str, words: list[str], tmp_path: Path) -> None:
    """Python 3.11 holds the default against the choices as if it were a name: that ended both."""
    main: Any = runpy.run_path(str(ROOT / "tests" / program / "__main__.py"))["main"]
    ran: list[str] = []

    def run(name: str, *_: object) -> list[Any]:
        ran.append(name)
        return []

    suites = dict.fromkeys("ab", lambda _: SimpleNamespace(fetch=list))
    own = {
        "suites": {"FOLDER": tmp_path, "run": run, "SUITES": suites},
        "matrix": {"KAFKAS": {"a": ""}, "PULSAR": "b", "run": run, "rows": lambda *_: [], "keep": list},
    }
    main.__globals__.update(own[program])
    assert main(words) == 0 and ran == ["a", "b"]
