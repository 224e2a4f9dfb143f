"""franz-go's own tests of its client, package kgo, as its Go module carries them."""

import json
import re
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

from outcomes import Outcome, Outcomes
from suite import PASSWORD, PINS, USER, Access, Suite, said, tool

_MODULE = "github.com/twmb/franz-go"
# Its tests can all be told TLS, but only two a login: in a copy all have both.
_TOLD, _HAVE = "DialTLSConfig(testCert))", "DialTLSConfig(testCert), SASL(saslScram))"
_OWN_DIALER = "TestIssue769"
"""Its client has a dialer of its own, which none may have with TLS; its panic would end all tests."""
_LINE = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
_BEGUN = re.compile(r"^=== RUN\s+(\S+)", re.MULTILINE)
_OUTCOMES = {"PASS": Outcome.PASSED, "FAIL": Outcome.FAILED, "SKIP": Outcome.SKIPPED}


class FranzGo(Suite):
    """Versions and sums are those of pins/go.mod and pins/go.sum."""

    name = "franz-go 1.22.2"
    limit_s = 900.0

    def fetch(self) -> None:
        """Compile the tests in a copy of the module in the cache."""
        if self._program.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        found = subprocess.run(
            ["go", "mod", "download", "-json", _MODULE], cwd=PINS, stdout=subprocess.PIPE, check=True
        )
        source = self.folder / "source"
        shutil.rmtree(source, ignore_errors=True)
        tool(["cp", "-r", "--no-preserve=mode", json.loads(found.stdout)["Dir"], str(source)], self.folder)
        helpers = source / "pkg" / "kgo" / "helpers_test.go"
        text = helpers.read_text()
        if text.count(_TOLD) != 1:
            raise ValueError(f"{helpers.name} has not one {_TOLD}")
        helpers.write_text(text.replace(_TOLD, _HAVE))
        tool(["go", "test", "-mod=readonly", "-c", "-o", str(self._program), "./pkg/kgo"], source)

    def run(self, access: Access, log: Path, only: Collection[str] = ()) -> Outcomes:
        """Fewer records than by default, which are half a million a test."""
        command = [str(self._program), "-test.v", f"-test.timeout={self.limit_s - 10:.0f}s"]
        if only:
            tops = sorted({name.partition("/")[0] for name in only})
            command.append(f"-test.run=^({'|'.join(tops)})$")
        login = {}
        if access.ca:
            login = {"KGO_TEST_TLS": f"ca:{access.ca}", "KGO_TEST_SCRAM": f"{USER}:{PASSWORD}:512"}
            command.append(f"-test.skip=^{_OWN_DIALER}$")
        text = said(
            command, self.folder, log, self.limit_s,
            {
                "KGO_SEEDS": access.bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "20000",
                "KGO_TEST_MAX_TOPIC_PARTS": "7", "KGO_LOG_LEVEL": "none", **login,
            },
        )  # fmt: skip
        begun = dict.fromkeys(_BEGUN.findall(text), Outcome.MISSING)
        return begun | {name: _OUTCOMES[kind] for kind, name in _LINE.findall(text)}

    @property
    def _program(self) -> Path:
        return self.folder / "kgo-login.test"
