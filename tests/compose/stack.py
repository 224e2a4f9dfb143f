"""The stack as someone has it who has the compose folder and the images alone."""

import contextlib
import json
import secrets
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from engine import Engine, Failed, output

from weir.stack.kafka import port_is_free

PARTS: Final = ("kafka", "job", "proxy", "admin", "collect", "prometheus")
UP_LIMIT_S: Final = 420.0
HEAL_LIMIT_S: Final = 180.0
DOWN_LIMIT_S: Final = 120.0
_HTTP_LIMIT_S: Final = 10.0
_POLL_S: Final = 1.0
_PORTS: Final = 20
_BROKERS: Final = 8
_SETTINGS: Final = """\
kafka:
  bootstrap: kafka:19192
  client: {sasl.password: "${dir:/run/secrets:kafka_password}"}
job:
  kafka_options:
    kafka.sasl.jaas.config: >-
      org.apache.kafka.common.security.plain.PlainLoginModule required
      username="weir" password="${dir:/run/secrets:kafka_password}";
"""
SETTINGS: Final = "/etc/weir/weir.yaml"


class Stack:
    """One project of compose.

    Args:
        engine: what runs it.
        source: the compose folder, of which a copy is used.
        folder: for the copy.
        images: what .env says of images.
        ports: the first of twenty that are free.
    """

    def __init__(
        self, engine: Engine, source: Path, folder: Path, images: dict[str, str], ports: int
    ) -> None:
        self.engine, self.folder, self.project = engine, folder / "weir", f"weir{ports}"
        shutil.copytree(source, self.folder, ignore=shutil.ignore_patterns("secrets", ".env", "k8s"))
        self.proxy = f"127.0.0.1:{ports}"
        self._admin, self._prometheus = ports + _BROKERS + 1, ports + _BROKERS + 2
        self._values = {
            "COMPOSE_PROFILES": "local",
            "COMPOSE_PROJECT_NAME": self.project,
            "WEIR_PORT": str(ports),
            "WEIR_PORT_LAST": str(ports + _BROKERS),
            "WEIR_ADMIN_PORT": str(self._admin),
            "PROMETHEUS_PORT": str(self._prometheus),
            **images,
        }
        self.set()
        # One that is read by all parts and needed by none, to see whether it shows anywhere.
        (self.folder / "secrets").mkdir()
        (self.folder / "secrets" / "kafka_password").write_text(f"{secrets.token_hex(16)}\n")
        (self.folder / "weir.yaml").write_text(_SETTINGS)

    def set(self, **values: str) -> None:
        """Write .env, these of its values changed."""
        self._values |= values
        (self.folder / ".env").write_text("".join(f"{key}={value}\n" for key, value in self._values.items()))

    def compose(self, *words: str, limit_s: float) -> str:
        """Output of one command of compose."""
        return output([*self.engine.compose, *words], self.engine.env, limit_s, self.folder)

    def container(self, part: str) -> str:
        """Its container's name."""
        label = f"label=com.docker.compose.project={self.project}"
        service = f"label=com.docker.compose.service={part}"
        names = self.engine.ask("ps", "-a", "--filter", label, "--filter", service, "--format", "{{.Names}}")
        if len(names.split()) != 1:
            raise Failed(f"{part} has containers {names.split()}; expected one")
        return names.strip()

    def secret(self, name: str) -> str:
        """What its file holds."""
        return (self.folder / "secrets" / name).read_text().strip()

    def token(self) -> str:
        """Of the admin API."""
        return self.secret("admin_tokens").partition("token: ")[2].partition(",")[0]

    def wait_well(self, limit_s: float) -> float:
        """Wait until all parts are well; returns how long it took, s."""
        begun = time.monotonic()
        while True:
            unwell = [f"{part} is {state}" for part in PARTS if (state := self._state(part)) != "well"]
            if not unwell:
                return time.monotonic() - begun
            if time.monotonic() - begun > limit_s:
                raise Failed(f"not well after {limit_s:.0f} s: {'; '.join(unwell)}")
            time.sleep(_POLL_S)

    def _state(self, part: str) -> str:
        try:
            state = self.engine.inspect(self.container(part))["State"]
        except Failed as error:
            return str(error)
        # Podman before version 4.4 has another name for it.
        health = (state.get("Health") or state.get("Healthcheck") or {}).get("Status") or "healthy"
        if state["Status"] == "running" and health == "healthy" and self._answers(part):
            return "well"
        return f"{state['Status']}, {health}"

    def _answers(self, part: str) -> bool:
        if part != "prometheus":
            return True
        with contextlib.suppress(OSError):
            urllib.request.urlopen(
                f"http://127.0.0.1:{self._prometheus}/-/ready", timeout=_HTTP_LIMIT_S
            ).close()
            return True
        return False

    def admin_status(self, token: str | None) -> int:
        """The status with which the admin API answers who shows this token."""
        url = f"http://127.0.0.1:{self._admin}/admin/v2/resourcegroups"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
        try:
            with urllib.request.urlopen(request, timeout=_HTTP_LIMIT_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            return refused.code

    def metric(self, query: str) -> list[dict[str, Any]]:
        """What Prometheus has for it."""
        url = f"http://127.0.0.1:{self._prometheus}/api/v1/query?query={urllib.parse.quote(query)}"
        with urllib.request.urlopen(url, timeout=_HTTP_LIMIT_S) as answer:
            rows: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return rows

    def decisions(self) -> list[dict[str, Any]]:
        """All decisions on requests, the oldest first."""
        tail = f"timeout -s INT 12 weir tail --from -2h --type admission --json --settings {SETTINGS}"
        lines = self.engine.run_in(self.container("collect"), "sh", "-c", f"{tail}; true").splitlines()
        return [json.loads(line) for line in lines]

    def batches(self) -> list[int]:
        """Numbers of the batches that the checkpoint says are done."""
        names = self.engine.run_in(
            self.container("job"), "sh", "-c", "ls /var/lib/weir/checkpoint/*/commits | cat"
        ).split()
        return sorted(int(name) for name in names if name.isdigit())


def free_ports() -> int:
    """The first of twenty ports that nobody listens on; raises Failed if there are none."""
    for first in range(32_000, 32_200, _PORTS):
        if all(map(port_is_free, range(first, first + _PORTS))):
            return first
    raise Failed("no twenty free ports from 32000 on")


def until(asked: Callable[[], str], limit_s: float) -> None:
    """Wait until it says nothing any more; raises Failed with what it says last."""
    deadline = time.monotonic() + limit_s
    while said := asked():
        if time.monotonic() > deadline:
            raise Failed(f"after {limit_s:.0f} s still: {said}")
        time.sleep(_POLL_S)
