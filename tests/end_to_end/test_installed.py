"""The wheel as who has nothing else has it: another folder, an empty environment, no Maven, no clone."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from served import files_of
from stack_kit import create, until

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("streaming", "enforcer", "weir")
STORE = Path.home() / ".m2" / "repository"
"""Where Maven keeps what `make setup` fetched: a repository in the usual layout."""
INSTALL_S, SETUP_S, READY_S, STOP_S = 600, 600, 180, 30

pytestmark = pytest.mark.soak


@pytest.fixture
def repository() -> Iterator[str]:
    """URL of a Maven repository without Maven."""
    with files_of(STORE) as url:
        yield url


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Programs of an environment with the wheel, built from a copy, and what it needs by its lock."""
    copy, out, environment = tmp_path / "copy", tmp_path / "out", tmp_path / "environment"
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True, timeout=60)
    shutil.rmtree(copy)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=INSTALL_S)
    pip = [environment / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
    lock = ROOT / "requirements-run.lock"
    subprocess.run([*pip, "--require-hashes", "-r", lock], check=True, timeout=INSTALL_S)
    subprocess.run([*pip, "--no-deps", *out.glob("*.whl")], check=True, timeout=INSTALL_S)
    return environment / "bin"


def test_a_quota_holds_with_the_wheel_alone(installed: Path, repository: str, tmp_path: Path) -> None:
    """weir setup from a repository, weir up, a client beyond its quota, a clean stop."""
    home = tmp_path / "elsewhere"
    home.mkdir()
    quota = "{entity: {user: null}, controller_mutation_rate: 1}"
    (home / "p.yaml").write_text(f"version: 1\nquotas: [{quota}]\n")
    (home / "s.yaml").write_text("local: {kafka_port: 0}\n")
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data"), "PATH": _path(tmp_path, installed)}
    for name in ("PYTHONPATH", "WEIR_JARS"):
        environment.pop(name, None)
    words = ["weir", "setup", "--repository", repository]
    subprocess.run(words, cwd=home, env=environment, check=True, timeout=SETUP_S)
    ready = home / "ready.json"
    words = ["weir", "up", "--policies", "p.yaml", "--settings", "s.yaml", "--ready-file", "ready.json"]
    words += [word for name in ("listen", "admin", "metrics") for word in (f"--{name}", "127.0.0.1:0")]
    with subprocess.Popen(words, cwd=home, env=environment) as up:
        try:
            until(ready.exists, what="weir up is ready", limit_s=READY_S)
            proxy = json.loads(ready.read_text())["proxy"]
            admin = KafkaAdminClient(bootstrap_servers=proxy, client_id="new")
            assert create(admin, {"first": 30})["first"][0] == 0
            assert create(admin, {"second": 1})["second"][0] == 89
            admin.close()
            words = ["weir", "healthy", "ready.json"]
            subprocess.run(words, cwd=home, env=environment, check=True, timeout=STOP_S)
            up.send_signal(signal.SIGINT)
            assert up.wait(STOP_S) == 0
        finally:
            up.kill()


def _path(folder: Path, installed: Path) -> str:
    """A path of programs with the environment's, and with a Maven that brings nothing."""
    maven = folder / "maven" / "mvn"
    maven.parent.mkdir()
    maven.write_text("#!/bin/sh\nexit 1\n")
    maven.chmod(0o755)
    return f"{installed}:{maven.parent}:{os.environ['PATH']}"
