"""What a foreign suite is to the runner, and how its programs are run."""

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from outcomes import Outcomes

PINS = Path(__file__).parent / "pins"
USER, PASSWORD = "suites", "suites-secret"


@dataclass(frozen=True, slots=True)
class Access:
    """How clients reach a cluster.

    Attributes:
        bootstrap: where they connect.
        ca: file with who to trust: they speak TLS and log in as USER by SCRAM-SHA-512; empty: they do not.
    """

    bootstrap: str
    ca: str = ""


class Suite(ABC):
    """A client's own tests, fetched from a registry, never committed here.

    Attributes:
        name: of the client, with its version.
        brokers: how many it wants.
        limit_s: of one run of all tests; what was not done by then is missing.
        by_design: tests, by their bare names, that the proxy is meant to make worse, and why.

    Args:
        folder: where it is unpacked and built.
    """

    name: str
    brokers = 3
    limit_s: float
    by_design: Mapping[str, str] = MappingProxyType({})

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def reason(self, test: str) -> str:
        """Why a test is to be worse through the proxy; empty: it is not."""
        return self.by_design.get(test.rpartition("::")[2].partition("[")[0], "")

    @abstractmethod
    def fetch(self) -> None:
        """Get and build it, if that is not done yet.

        Raises:
            subprocess.CalledProcessError: a tool failed; what it said is on the terminal.
            ValueError: what came is not what is pinned.
        """

    @abstractmethod
    def run(self, access: Access, log: Path, only: Collection[str] = ()) -> Outcomes:
        """Run it, or only these of its tests.

        Args:
            access: how its clients reach a cluster.
            log: gets all that it says.
            only: names of tests as in the result.
        """


def tool(command: Sequence[str], folder: Path) -> None:
    """Run a program that has to succeed."""
    print("  $", " ".join(command), flush=True)
    subprocess.run(command, cwd=folder, check=True)


def said(command: Sequence[str], folder: Path, log: Path, limit_s: float, more: Mapping[str, str]) -> str:
    """Run a suite's program at a low priority and return what it said, also if it failed or took too long."""
    with log.open("w", errors="replace") as output:
        try:
            subprocess.run(
                ["nice", *command], cwd=folder, env={**os.environ, **more}, stdout=output, stderr=output,
                stdin=subprocess.DEVNULL, timeout=limit_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            output.write(f"\nended after {limit_s:.0f} s\n")
    return log.read_text(errors="replace")
