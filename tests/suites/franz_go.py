"""franz-go's own tests of its client, package kgo, as its Go module carries them."""

import re
from collections.abc import Collection
from pathlib import Path

from outcomes import Outcome, Outcomes
from suite import PINS, Suite, said, tool

_PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
_LINE = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
_BEGUN = re.compile(r"^=== RUN\s+(\S+)", re.MULTILINE)
_OUTCOMES = {"PASS": Outcome.PASSED, "FAIL": Outcome.FAILED, "SKIP": Outcome.SKIPPED}


class FranzGo(Suite):
    """Versions and sums are those of pins/go.mod and pins/go.sum."""

    name = "franz-go 1.22.2"
    limit_s = 900.0

    def fetch(self) -> None:
        """Compile the tests of the module in the cache."""
        if not self._program.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            tool(["go", "test", "-mod=readonly", "-c", "-o", str(self._program), _PACKAGE], PINS)

    def run(self, bootstrap: str, log: Path, only: Collection[str] = ()) -> Outcomes:
        """Fewer records than by default, which are half a million a test."""
        command = [str(self._program), "-test.v", f"-test.timeout={self.limit_s - 10:.0f}s"]
        if only:
            tops = sorted({name.partition("/")[0] for name in only})
            command.append(f"-test.run=^({'|'.join(tops)})$")
        text = said(
            command, self.folder, log, self.limit_s,
            {
                "KGO_SEEDS": bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "20000",
                "KGO_TEST_MAX_TOPIC_PARTS": "7", "KGO_LOG_LEVEL": "none",
            },
        )  # fmt: skip
        begun = dict.fromkeys(_BEGUN.findall(text), Outcome.MISSING)
        return begun | {name: _OUTCOMES[kind] for kind, name in _LINE.findall(text)}

    @property
    def _program(self) -> Path:
        return self.folder / "kgo.test"
