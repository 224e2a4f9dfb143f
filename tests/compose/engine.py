"""What runs the containers: docker, or podman with docker-compose on its socket; found, asked and pulsed."""

import contextlib
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

INSTALL: Final = (
    "docker with a running daemon and its compose plugin; or on Debian: apt-get install podman docker-compose"
)
ASK_LIMIT_S: Final = 60.0
_SOCKET_LIMIT_S: Final = 20.0
_PULSE_S: Final = 3.0
_POLL_S: Final = 0.2
SYSTEMD: Final = Path("/run/systemd/private")
"""Podman has its health checks run by it, so where it is not we run them."""


class Failed(Exception):
    """Something is not as it must be; its text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One that works here.

    Attributes:
        name: docker or podman.
        compose: the words of its compose.
        env: what both are to find in their environment.
    """

    name: str
    compose: tuple[str, ...]
    env: Mapping[str, str]

    def ask(self, *words: str, limit_s: float = ASK_LIMIT_S) -> str:
        """Output of one command of the engine; raises Failed with what it said."""
        return output([self.name, *words], self.env, limit_s)

    def inspect(self, container: str) -> dict[str, Any]:
        """All that the engine says of a container."""
        found: dict[str, Any] = json.loads(self.ask("inspect", container))[0]
        return found

    def run_in(self, container: str, *words: str) -> str:
        """Output of a command in a container."""
        return self.ask("exec", container, *words)


def output(words: Sequence[str], env: Mapping[str, str], limit_s: float, cwd: Path | None = None) -> str:
    """Output of a command; raises Failed with the end of what it said, or that it took too long."""
    told = " ".join(words[:6])
    try:
        done = subprocess.run(
            words, env=dict(env), cwd=cwd, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise Failed(f"`{told}` took longer than {limit_s:.0f} s") from late
    if done.returncode:
        last = " | ".join((done.stderr or done.stdout).strip().splitlines()[-6:])
        raise Failed(f"`{told}` ended with status {done.returncode}: {last}")
    return done.stdout


@contextlib.contextmanager
def found(wanted: str, folder: Path) -> Iterator[Engine | str]:
    """An engine that works, or the reason why there is none.

    Args:
        wanted: docker or podman; empty: whichever works.
        folder: for podman's socket.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith(("COMPOSE_", "WEIR_"))}
    reasons = []
    if wanted in ("", "docker"):
        reason, compose = _docker(env)
        if compose:
            yield Engine(name="docker", compose=compose, env=env)
            return
        reasons.append(reason)
    if wanted in ("", "podman"):
        reason = _podman(env)
        if not reason:
            with _socket(env, folder) as served:
                yield Engine(name="podman", compose=("docker-compose",), env=served)
            return
        reasons.append(reason)
    yield "; ".join(reasons) or f"ENGINE={wanted} is not known"


def _docker(env: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    if not shutil.which("docker"):
        return "there is no docker", ()
    if not _works(["docker", "info"], env):
        return "docker has no daemon", ()
    if _works(["docker", "compose", "version"], env):
        return "", ("docker", "compose")
    return ("", ("docker-compose",)) if shutil.which("docker-compose") else ("docker has no compose", ())


def _podman(env: Mapping[str, str]) -> str:
    missing = [tool for tool in ("podman", "docker-compose") if not shutil.which(tool)]
    if missing:
        return f"there is no {' and no '.join(missing)}"
    return "" if _works(["podman", "info"], env) else "podman does not work"


def _works(words: Sequence[str], env: Mapping[str, str]) -> bool:
    with contextlib.suppress(Failed):
        output(words, env, ASK_LIMIT_S)
        return True
    return False


@contextlib.contextmanager
def _socket(env: Mapping[str, str], folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which docker-compose finds podman, while it serves."""
    socket = folder / "podman.sock"
    words = ["podman", "system", "service", "--time=0", f"unix://{socket}"]
    with (folder / "podman.log").open("wb") as log:
        service = subprocess.Popen(words, env=dict(env), stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _SOCKET_LIMIT_S
        while not socket.exists():
            if service.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"podman does not serve: {(folder / 'podman.log').read_text()[-300:]}")
            time.sleep(_POLL_S)
        yield {**env, "DOCKER_HOST": f"unix://{socket}"}
    finally:
        service.terminate()
        service.wait(ASK_LIMIT_S)


class Pulse:
    """Runs the health checks of a project's containers where podman has nobody to do it; a context manager.

    Args:
        engine: whose containers.
        project: the compose project.
    """

    def __init__(self, engine: Engine, project: str) -> None:
        self._engine, self._project = engine, project
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        if self._engine.name == "podman" and not SYSTEMD.exists():
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        label = f"label=com.docker.compose.project={self._project}"
        while not self._stop.wait(_PULSE_S):
            with contextlib.suppress(Failed):
                for name in self._engine.ask("ps", "--filter", label, "--format", "{{.Names}}").split():
                    if self._stop.is_set():
                        return
                    # One that is not well, or has no check, is no failure of ours.
                    with contextlib.suppress(Failed):
                        self._engine.ask("healthcheck", "run", name)
