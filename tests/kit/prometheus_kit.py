"""A real Prometheus, Debian's, that scrapes what a test runs, with configuration and rules of compose/."""

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml
from monitoring_kit import COMPOSE
from stack_kit import until

from weir.stack.kafka import free_port

_STARTS_S = 30.0
_ASK_S = 30.0


class Prometheus:
    """One Prometheus; a context manager.

    Args:
        folder: for its data and configuration.
        targets: job of compose/prometheus/prometheus.yml, or another -> HOST:PORT, several with commas
            between; a job of the file that is not named is not scraped.
        scrape_s: how often it looks at each.
    """

    def __init__(self, folder: Path, targets: Mapping[str, str], scrape_s: int = 1) -> None:
        self._folder, self._port = folder, free_port()
        given = yaml.safe_load((COMPOSE / "prometheus" / "prometheus.yml").read_text())
        jobs = {job["job_name"]: job for job in given["scrape_configs"]}
        given["global"] = {
            "scrape_interval": f"{scrape_s}s", "scrape_timeout": f"{scrape_s}s", "evaluation_interval": "5s",
        }  # fmt: skip
        given["rule_files"] = [str(COMPOSE / "prometheus" / "rules.yml")]
        given["scrape_configs"] = [_job(jobs.get(name, {}), name, at) for name, at in targets.items()]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(given))
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, expr: str) -> list[dict[str, Any]]:
        """The series of an expression now."""
        return self._ask("query", {"query": expr})

    def ask_range(self, expr: str, since: float, until: float, step_s: float) -> list[dict[str, Any]]:
        """Its series over a time, seconds since the epoch, each with `values`: time and value."""
        return self._ask("query_range", {"query": expr, "start": since, "end": until, "step": step_s})

    def _ask(self, what: str, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        url = f"http://127.0.0.1:{self._port}/api/v1/{what}?{urllib.parse.urlencode(question)}"
        try:
            with urllib.request.urlopen(url, timeout=_ASK_S) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{question}: {error.read().decode()}") from error
        return found

    def __enter__(self) -> Self:
        words = [
            "prometheus", f"--config.file={self._folder / 'prometheus.yml'}", "--log.level=warn",
            f"--storage.tsdb.path={self._folder / 'data'}", f"--web.listen-address=127.0.0.1:{self._port}",
        ]  # fmt: skip
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            until(self._ready, what="Prometheus is ready", limit_s=_STARTS_S)
        except AssertionError:
            self._process.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(5)

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "prometheus.log").read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _job(given: Mapping[str, Any], name: str, address: str) -> dict[str, Any]:
    """A job as it stands in the file, but for its address."""
    kept = {key: value for key, value in given.items() if key in ("job_name", "relabel_configs")}
    labels = [each.get("labels", {}) for each in given.get("static_configs", [])]
    return {
        "job_name": name,
        **kept,
        "static_configs": [{"targets": address.split(","), "labels": (labels or [{}])[0]}],
    }
