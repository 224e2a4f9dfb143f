"""The other proxies of Kafka that can be measured here."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from benchmarks.kit.sides import LEAST, PEER, Tls
from benchmarks.peers.build import Unavailable
from benchmarks.peers.haproxy import haproxy, version
from benchmarks.peers.kroxylicious import build, built, kroxylicious
from weir.stack.kafka import free_port


@dataclass(slots=True)
class KafkaProxies:
    """HAProxy and Kroxylicious, if they are here.

    Attributes:
        least: version of HAProxy; empty: it is not here.
        kroxylicious: it is built.
        skipped: why not, of those that are not.
    """

    least: str = ""
    kroxylicious: bool = False
    skipped: list[str] = field(default_factory=list)

    @classmethod
    def here(cls, smoke: bool) -> Self:
        """Those that are installed, or fetched and built now."""
        found = cls()
        try:
            found.least = version()
        except Unavailable as reason:
            found.skipped.append(str(reason))
        try:
            if smoke and not built():
                raise Unavailable("kroxylicious: not fetched, and a smoke run fetches nothing")
            build()
            found.kroxylicious = True
        except Unavailable as reason:
            found.skipped.append(str(reason))
        return found

    def behind(self) -> dict[int, int]:
        """Port of a broker's listener behind HAProxy -> port of HAProxy; empty: it is not here."""
        return {free_port(): free_port()} if self.least else {}

    @contextmanager
    def running(
        self, kafka: str, behind: Mapping[int, int], folder: Path, tls: Tls | None = None
    ) -> Iterator[dict[str, tuple[int, str]]]:
        """Run them; process id and HOST:PORT for clients, by side."""
        others = [(LEAST, partial(haproxy, *ports, folder)) for ports in behind.items()]
        if self.kroxylicious:
            others.append((PEER, partial(kroxylicious, kafka, folder, tls)))
        found = {}
        with ExitStack() as running:
            for side, other in others:
                try:
                    found[side] = running.enter_context(other())
                except Unavailable as reason:
                    self.skipped.append(str(reason))
            yield found
