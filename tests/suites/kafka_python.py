"""kafka-python's own integration tests, as its source distribution carries them."""

import json
import re
import sys
import tarfile
from collections.abc import Collection
from pathlib import Path
from types import MappingProxyType

from outcomes import Outcome, Outcomes
from suite import PASSWORD, PINS, USER, Access, Suite, said, tool
from tls_kit import Way

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
# A plugin of pytest's: fixtures know TLS and logins only of brokers that they start.
_LOGIN = """
import json
import os

from test.integration.fixtures import KafkaFixture

LOGIN, OWN = json.loads(os.environ["LOGIN"]), KafkaFixture._enrich_client_params
KafkaFixture._enrich_client_params = lambda self, params, **others: OWN(self, params, **others, **LOGIN)
"""
# They start brokers of their own, with SASL or TLS.
_LEFT_OUT = ("test_sasl_integration.py", "test_ssl_integration.py")


class KafkaPython(Suite):
    """The version that Weir itself uses."""

    name = f"kafka-python {_VERSION}"
    brokers = 1
    limit_s = 300.0
    by_design = MappingProxyType({
        "test_describe_configs_broker_resource_returns_configs": "advertised.listeners is hidden"
    })  # fmt: skip

    def fetch(self) -> None:
        """Download the source by its hash and unpack it."""
        if not self._source.exists():
            self._unpack()
        for name, text in {"test/__init__.py": "", "test/service.py": _SERVICE, "login.py": _LOGIN}.items():
            (self._source / name).write_text(text)

    def _unpack(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        pins = ["--no-build-isolation", "--no-binary", ":all:", "--require-hashes", "-r"]
        tool([*pip, *pins, str(PINS / "kafka-python.txt")], self.folder)
        with tarfile.open(self.folder / f"kafka_python-{_VERSION}.tar.gz") as archive:
            archive.extractall(self.folder, filter="data")

    def run(self, access: Access, log: Path, only: Collection[str] = ()) -> Outcomes:
        """With KAFKA_URI its fixtures take a broker that is there."""
        command = [
            sys.executable, "-m", "pytest", *(only or ["test/integration"]), "-rA", "-q", "--no-header",
            "-o", "addopts=", "-o", "filterwarnings=", "-o", "log_level=WARNING", "-p", "no:cacheprovider",
            *(f"--ignore=test/integration/{name}" for name in _LEFT_OUT),
        ]  # fmt: skip
        more = {
            "KAFKA_URI": f"kafka://{access.bootstrap.partition(',')[0]}", "KAFKA_VERSION": "4.1.0",
            "KAFKA_ROOT": str(self.folder), "PYTHONPATH": str(self._source),
        }  # fmt: skip
        if access.ca:
            command += ["-p", "login"]
            more["LOGIN"] = json.dumps(Way.login(access.ca, USER, PASSWORD).python)
        text = said(command, self._source, log, self.limit_s, more)
        return {name: _OUTCOMES[kind] for kind, name in _LINE.findall(text)}

    @property
    def _source(self) -> Path:
        return self.folder / f"kafka_python-{_VERSION}"
