"""Builds the peers and the load client with Go, each version pinned: `python -m benchmarks.peers.build`.

Nothing is installed outside `.weir/bench/` and Go's own caches, and no package of the system. Which proxy the
modules come through is the user's own setting of Go.
"""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from weir.jars.folders import ROOT
from weir.stack.process import Child

FOLDER: Final = ROOT / ".weir" / "bench"
_SOURCES: Final = Path(__file__).resolve().parent
_SAID_LINES: Final = 3
_ALONE_LIMIT_S: Final = 1_800.0
_START_LIMIT_S: Final = 30.0
_STOP_LIMIT_S: Final = 10.0
_POLL_S: Final = 0.1


class Unavailable(Exception):
    """A peer cannot be run here; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Something that Go builds.

    Attributes:
        name: of the program and of its file.
        version: of its module; empty for our own client.
        module: its module's path; empty for our own client.
        package: the package of its `main`.
        sums: its lines of go.sum as far as they are pinned here; Go checks the rest in its own way.
    """

    name: str
    version: str = ""
    module: str = ""
    package: str = "."
    sums: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Where it is put."""
        return FOLDER / (f"{self.name}-{self.version}" if self.version else self.name)

    def built(self) -> bool:
        """Whether it is there; our own client also has to be newer than its sources."""
        if not self.path.exists():
            return False
        made = self.path.stat().st_mtime
        sources = [*_SOURCES.glob("*.go"), *_SOURCES.glob("go.*")]
        return bool(self.module) or all(source.stat().st_mtime <= made for source in sources)


# The sums are those of the tag's files, computed from its repository: Go's checksum database does not hold
# this version everywhere.
GUBERNATOR: Final = Program(
    name="gubernator",
    version="v2.13.0",
    module="github.com/gubernator-io/gubernator/v2",
    package="github.com/gubernator-io/gubernator/v2/cmd/gubernator",
    sums=(
        "github.com/gubernator-io/gubernator/v2 v2.13.0 h1:kvY3ppEpKBnUCKGLXBXO9QT/HQTpQVTwLzpQe6asOu0=",
        "github.com/gubernator-io/gubernator/v2 v2.13.0/go.mod "
        "h1:jHkFFXCkRmxI5/4HOK052gls1uXiYzcvtrmCzhsIY+0=",
    ),
)
# The project makes no releases that Go can name; this is a commit of January 2026.
RATELIMIT: Final = Program(
    name="ratelimit",
    version="v1.4.1-0.20260122083618-3fb702589d36",
    module="github.com/envoyproxy/ratelimit",
    package="github.com/envoyproxy/ratelimit/src/service_cmd",
    sums=(
        "github.com/envoyproxy/ratelimit v1.4.1-0.20260122083618-3fb702589d36 "
        "h1:nEi1OH2qhE8NtcuBgO/uKpTw/P0nVu4i8mZvL6oD9CQ=",
        "github.com/envoyproxy/ratelimit v1.4.1-0.20260122083618-3fb702589d36/go.mod "
        "h1:n61Cm3Lex7sdo0PcQ4UMO12rYb4VT9XZaYC1bA+BUFc=",
    ),
)
CLIENT: Final = Program(name="client")


def build(program: Program, until: float, say: Callable[[str], None]) -> Path:
    """Build a program if it is not there yet.

    Args:
        program: which.
        until: when to give up, on time.monotonic; what Go has compiled by then it keeps for the next try.
        say: told what is done before a long wait.

    Raises:
        Unavailable: no Go, out of time, or the build failed; with the end of what Go said.
    """
    if program.built():
        return program.path
    go = shutil.which("go")
    if go is None:
        raise Unavailable(f"{program.name}: there is no go command")
    say(f"building {program.name} {program.version}".rstrip())
    command = [go, "build", "-trimpath", "-o", str(program.path), program.package]
    folder = _SOURCES
    if program.module:
        # A module of its own for each, so that every peer gets the dependencies that it asks for.
        folder = FOLDER / f"build-{program.name}"
        folder.mkdir(parents=True, exist_ok=True)
        needs = f"require {program.module} {program.version}"
        (folder / "go.mod").write_text(f"module build\n\ngo 1.24\n\n{needs}\n")
        (folder / "go.sum").write_text("".join(f"{line}\n" for line in program.sums))
        command.insert(2, "-mod=mod")
    _run(program, command, folder, until)
    return program.path


def _run(program: Program, command: list[str], folder: Path, until: float) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    log = FOLDER / f"{program.name}.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
        try:
            status = process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"{program.name}: not built in time; `python -m benchmarks.peers.build` builds it beforehand"
            ) from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if status:
        said = [line for line in log.read_text().splitlines() if "downloading" not in line]
        raise Unavailable(f"{program.name}: the build failed: {' '.join(said[-_SAID_LINES:])}")


@contextmanager
def listening(
    child: Child, listen: str, ask: Callable[[], object] | None = None, limit_s: float = _START_LIMIT_S
) -> Iterator[tuple[int, str]]:
    """Run a peer.

    Args:
        child: in a session of its own, as our proxy: by sessions Linux shares cores out (autogroup).
        listen: HOST:PORT for clients.
        ask: raises OSError or Unavailable while it does not answer; None: a connection is all that is asked
            for.
        limit_s: for its start.

    Returns:
        Its process id, and HOST:PORT for clients.

    Raises:
        Unavailable: it ended, or did not answer in time.
    """
    host, _, port = listen.rpartition(":")
    ask = ask or (lambda: socket.create_connection((host, int(port)), timeout=1.0).close())
    until = time.monotonic() + limit_s
    child.start()
    try:
        while True:
            try:
                ask()
                break
            except (OSError, Unavailable) as failure:
                if not child.alive() or time.monotonic() > until:
                    told = " | ".join([str(failure), *child.last_lines(5)])
                    raise Unavailable(f"{child.name} did not start: {told}") from failure
                time.sleep(_POLL_S)
        yield child.pid, listen
    finally:
        child.stop(_STOP_LIMIT_S)


def main() -> int:
    """Build all; returns the exit status."""
    failed = 0
    for program in (CLIENT, GUBERNATOR, RATELIMIT):
        try:
            print(build(program, time.monotonic() + _ALONE_LIMIT_S, lambda what: print(what, flush=True)))
        except Unavailable as reason:
            print(reason, file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
