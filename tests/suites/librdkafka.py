"""librdkafka's own tests, as they lie in the source that the npm package node-rdkafka bundles."""

import hashlib
import os
import re
import tarfile
from collections.abc import Collection
from pathlib import Path

from outcomes import Outcome, Outcomes
from suite import PASSWORD, USER, Access, Suite, said, tool
from tls_kit import Way

_PACKAGE = "node-rdkafka"
_VERSION = "3.6.1"
_SHA512 = (
    "b1fa536eb4f7e78dbd72cd1113c61bf5abc65fd062451be957b6b0790b2084a4"
    "e3b6b5593f78c1aca38f22d59702a1dbf1da328774a4b86b945412e08a0d5246"
)
_LINE = re.compile(r"^\| (\d{4}_\w+)\s+\|\s+(PASSED|FAILED|SKIPPED|RUNNING|DNS)", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m|\x1b\(B")
_OUTCOMES = {
    "PASSED": Outcome.PASSED, "FAILED": Outcome.FAILED, "SKIPPED": Outcome.SKIPPED,
    "RUNNING": Outcome.MISSING, "DNS": Outcome.MISSING,
}  # fmt: skip


class Librdkafka(Suite):
    """Needs gcc, g++, make and the headers of zlib and OpenSSL."""

    name = f"librdkafka 2.12.0 ({_PACKAGE} {_VERSION})"
    limit_s = 600.0

    def fetch(self) -> None:
        """Pack the package, check its hash, build library and tests."""
        if self._program.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        tool(["npm", "pack", "--silent", f"{_PACKAGE}@{_VERSION}"], self.folder)
        archive = self.folder / f"{_PACKAGE}-{_VERSION}.tgz"
        if hashlib.sha512(archive.read_bytes()).hexdigest() != _SHA512:
            archive.unlink()
            raise ValueError(f"{archive.name} is not what is pinned")
        with tarfile.open(archive) as packed:
            packed.extractall(self.folder, filter="data")
        for script in ("configure", "lds-gen.py", "mklove/Makefile.base"):
            (self._source / script).chmod(0o755)
        cores = f"-j{os.cpu_count()}"
        tool(["./configure"], self._source)
        tool(["make", cores, "libs"], self._source)
        tool(["make", cores, "-C", "tests", "build"], self._source)

    def run(self, access: Access, log: Path, only: Collection[str] = ()) -> Outcomes:
        """Those that need a broker, in their quick form, four at a time, without emulated networks."""
        told = {"metadata.broker.list": access.bootstrap, "test.topic.random": "true"}
        told |= {"broker.address.family": "v4"}
        if access.ca:
            told |= Way.login(access.ca, USER, PASSWORD).rdkafka
        (self.folder / "test.conf").write_text("".join(f"{name}={value}\n" for name, value in told.items()))
        more = {
            "RDKAFKA_TEST_CONF": str(self.folder / "test.conf"), "TEST_KAFKA_VERSION": "4.1.0",
            "LD_LIBRARY_PATH": f"{self._source / 'src'}:{self._source / 'src-cpp'}",
        }  # fmt: skip
        command = [str(self._program), "-Q", "-E", "-L"]
        if not only:
            return _read(said([*command, "-p4"], self._program.parent, log, self.limit_s, more))
        found: dict[str, Outcome] = {}
        for name in only:
            text = said([*command, name], self._program.parent, log, self.limit_s, more)
            found[name] = _read(text).get(name, Outcome.MISSING)
        return found

    @property
    def _source(self) -> Path:
        return self.folder / "package" / "deps" / "librdkafka"

    @property
    def _program(self) -> Path:
        return self._source / "tests" / "test-runner"


def _read(text: str) -> Outcomes:
    """The table at the end, without tests that need no broker."""
    lines = [line for line in _COLOUR.sub("", text).splitlines() if "negative test flags" not in line]
    found = _LINE.findall("\n".join(lines))
    return {name: _OUTCOMES[kind] for name, kind in found if not name.endswith("_mock")}
