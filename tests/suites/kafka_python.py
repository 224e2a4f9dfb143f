"""kafka-python's own integration tests, as its source distribution carries them."""

import re
import sys
import tarfile
from collections.abc import Collection
from pathlib import Path

from outcomes import Outcome, Outcomes
from suite import PINS, Suite, said, tool

_VERSION = "3.0.12"
_LINE = re.compile(r"^(PASSED|FAILED|ERROR) (\S+)", re.MULTILINE)
_OUTCOMES = {"PASSED": Outcome.PASSED, "FAILED": Outcome.FAILED, "ERROR": Outcome.FAILED}
# Left out of the distribution; only the brokers that the tests would start themselves need more of it.
_SERVICE = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port


class SpawnedService:
    pass
"""
# They start brokers of their own, with SASL or TLS.
_LEFT_OUT = ("test_sasl_integration.py", "test_ssl_integration.py")


class KafkaPython(Suite):
    """The version that Weir itself uses."""

    name = f"kafka-python {_VERSION}"
    brokers = 1
    limit_s = 300.0

    def fetch(self) -> None:
        """Download the source by its hash and unpack it."""
        if (self._source / "test" / "service.py").exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        pins = ["--no-build-isolation", "--no-binary", ":all:", "--require-hashes", "-r"]
        tool([*pip, *pins, str(PINS / "kafka-python.txt")], self.folder)
        with tarfile.open(self.folder / f"kafka_python-{_VERSION}.tar.gz") as archive:
            archive.extractall(self.folder, filter="data")
        (self._source / "test" / "__init__.py").touch()
        (self._source / "test" / "service.py").write_text(_SERVICE)

    def run(self, bootstrap: str, log: Path, only: Collection[str] = ()) -> Outcomes:
        """With KAFKA_URI its fixtures take a broker that is there."""
        command = [
            sys.executable, "-m", "pytest", *(only or ["test/integration"]), "-rA", "-q", "--no-header",
            "-o", "addopts=", "-o", "filterwarnings=", "-o", "log_level=WARNING", "-p", "no:cacheprovider",
            *(f"--ignore=test/integration/{name}" for name in _LEFT_OUT),
        ]  # fmt: skip
        text = said(
            command, self._source, log, self.limit_s,
            {
                "KAFKA_URI": f"kafka://{bootstrap.partition(',')[0]}", "KAFKA_VERSION": "4.1.0",
                "KAFKA_ROOT": str(self.folder), "PYTHONPATH": str(self._source),
            },
        )  # fmt: skip
        return {name: _OUTCOMES[kind] for kind, name in _LINE.findall(text)}

    @property
    def _source(self) -> Path:
        return self.folder / f"kafka_python-{_VERSION}"
