"""The same work straight to a broker, through the proxy and through another one, in turn: who is quicker."""

import ssl
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.kit.machine import cpu_s
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Row, percentile
from benchmarks.load.frames import Line
from weir.jars.folders import ROOT

DIRECT, PROXY, PEER = "straight to Kafka", "through the proxy", "through Kroxylicious"
LEAST: Final = "through HAProxy"
"""What any proxy must cost."""
_AHEAD: Final = "ahead"
_AS_MUCH: Final = ">= 1 x"
ADDED_US: Final = 50.0
"""The most that half of the round trips may take more than through that."""
_CERTIFICATES: Final = ROOT / "scripts" / "certificates.sh"
_CERTIFICATES_LIMIT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Certificates of one run, PEM files.

    Attributes:
        ca: who is trusted.
        certificate, key: of both proxies.
        broker: certificate and key of Kafka.
        client: properties of Kafka's own tools.
    """

    ca: str
    certificate: str
    key: str
    broker: str
    client: Path

    @classmethod
    def made_in(cls, folder: Path) -> Self:
        """New ones, by the script that a user has for a trial."""
        limit_s = _CERTIFICATES_LIMIT_S
        subprocess.run([_CERTIFICATES, folder], check=True, stdout=subprocess.DEVNULL, timeout=limit_s)
        ca, certificate, key, broker = (
            str(folder / name) for name in ("ca.pem", "proxy.pem", "proxy.key", "broker.keystore.pem")
        )
        client = folder / "client.properties"
        client.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={ca}\n")
        return cls(ca=ca, certificate=certificate, key=key, broker=broker, client=client)

    @property
    def context(self) -> ssl.SSLContext:
        """A client's."""
        return ssl.create_default_context(cafile=self.ca)

    @property
    def broker_properties(self) -> dict[str, str]:
        """The listener beside the plain one speaks it."""
        return {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SSL",
            "listener.name.sasl.ssl.keystore.type": "PEM",
            "listener.name.sasl.ssl.keystore.location": self.broker,
        }

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """Of our proxy."""
        own = {"certificate": self.certificate, "key": self.key}
        client = {"security.protocol": "SSL", "ssl.ca.location": self.ca}
        return {"proxy": {"tls": own, "upstream_tls": {"ca": self.ca}}, "kafka": {"client": client}}


@dataclass(slots=True)
class Sum:
    """Work done and time taken, over all rounds of one side."""

    amount: float = 0.0
    cpu_s: float = 0.0
    rates: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Work per second, of the median round: some of two cores' rounds are of half the speed."""
        return statistics.median(self.rates)


@dataclass(slots=True)
class Sides:
    """Measures each, and keeps the rows.

    Attributes:
        address: of each side, `HOST:PORT`.
        pids: what stands between client and Kafka, by side.
        rounds: in turn.
        look: called before each, raises if something has ended.
        progress, duration_s: told how far it is.
        tls: how all are spoken to.
        before: stands before what each row says.
        direct, peer: the sides that ours is beside.
    """

    address: dict[str, str]
    pids: dict[str, int]
    rounds: int
    look: Callable[[], None]
    progress: Progress
    duration_s: float
    tls: Tls | None = None
    before: str = ""
    direct: str = DIRECT
    peer: str = PEER
    rows: list[Row] = field(default_factory=list)
    series: dict[str, list[float]] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)

    @property
    def context(self) -> ssl.SSLContext | None:
        """Of clients that are ours."""
        return None if self.tls is None else self.tls.context

    def each(self, what: str, rounds: int = 0) -> Iterator[str]:
        """The sides in turn, in each round in another order: what else the machine does then hits all."""
        for number in range(rounds or self.rounds):
            for side in list(self.address)[:: -1 if number % 2 else 1]:
                self.tell(f"{what}, {side}")
                yield side

    def tell(self, what: str) -> None:
        """What begins now; raises if something has ended."""
        self.look()
        fraction = (time.monotonic() - self.begun) / self.duration_s
        self.progress.step(self.before + what, min(0.98, 0.02 + fraction))

    def measured(
        self, what: str, work: Callable[[str], tuple[float, float]], rounds: int = 0
    ) -> dict[str, Sum]:
        """Work of all sides; `work` gets an address and returns amount and seconds."""
        sums = {side: Sum() for side in self.address}
        for side in self.each(what, rounds):
            before = self._cpu_s(side)
            amount, seconds = work(self.address[side])
            total = sums[side]
            total.amount += amount
            total.rates.append(amount / seconds)
            total.cpu_s += self._cpu_s(side) - before
        return sums

    def ping(self, name: str, request: bytes, count: int, rounds: int) -> None:
        """Round trips one by one.

        Args:
            name: of the request.
            request: framed.
            count: a round, after a tenth as many that are not counted.
            rounds: each over a new connection.
        """
        samples: dict[str, list[float]] = {side: [] for side in self.address}
        spent = dict.fromkeys(self.address, 0.0)
        for side in self.each(f"{name} one by one", rounds):
            line = Line(self.address[side], self.context)
            line.round_trips_us(request, count // 10)
            before = self._cpu_s(side)
            samples[side] += line.round_trips_us(request, count)
            spent[side] += self._cpu_s(side) - before
            line.close()
        ordered = {side: sorted(values) for side, values in samples.items()}
        for percent in (50.0, 99.0):
            at = {side: percentile(values, percent) for side, values in ordered.items()}
            what = f"{name} round trip, p{percent:.0f}"
            self.add(what, at[PROXY], "us", at[DIRECT])
            if LEAST in at:
                aimed = percent == 50.0
                met = at[PROXY] - at[LEAST] < ADDED_US if aimed else None
                aim = f"< {ADDED_US:.0f} us more" if aimed else ""
                self.add(what, at[PROXY], "us", at[LEAST], LEAST, target=aim, met=met)
            self.beside(what, at, "us", less=True)
        each = {side: 1e6 * spent[side] / len(samples[side]) for side in self.pids}
        self.note_cpu(f"{name} one by one", each, "us CPU/request")
        self.series |= {f"{self.before}{name} {side}, us": values for side, values in samples.items()}

    def compare(self, what: str, sums: dict[str, Sum], unit: str, *, bytes_too: bool = False) -> None:
        """Rates, beside the others; `bytes_too`: of bytes, of which as many as through LEAST are aimed at."""
        rates = {side: total.rate for side, total in sums.items()}
        through = rates[PROXY]
        self.add(what, through, unit, rates[DIRECT])
        if LEAST in rates:
            met = through >= rates[LEAST] if bytes_too else None
            self.add(what, through, unit, rates[LEAST], LEAST, target=_AS_MUCH if bytes_too else "", met=met)
        self.beside(what, rates, unit)
        if bytes_too:
            each = {side: 1e3 * sums[side].cpu_s / sums[side].amount for side in self.pids}
            self.note_cpu(what, each, "ms CPU/MiB")

    def beside(self, what: str, by_side: dict[str, float], unit: str, *, less: bool = False) -> None:
        """Ours beside the peer's, if it is here; `less` is better."""
        if self.peer not in by_side:
            return
        ours, peer = by_side[PROXY], by_side[self.peer]
        met = ours < peer if less else ours > peer
        self.add(what, ours, unit, peer, self.peer, target=_AHEAD, met=met)

    def note_cpu(self, what: str, by_side: dict[str, float], unit: str) -> None:
        """The proxies' processor time."""
        what += ": the proxy's CPU"
        if LEAST in by_side or PEER not in by_side:
            self.add(what, by_side[PROXY], unit, by_side.get(LEAST), LEAST)
        self.beside(what, by_side, unit, less=True)

    def add(
        self, what: str, value: float, unit: str, baseline: float | None = None, baseline_what: str = "",
        *, target: str = "", met: bool | None = None,
    ) -> None:  # fmt: skip
        """One row, beside straight if nothing else is said."""
        beside = baseline_what or self.direct
        row = Row(self.before + what, value, unit, baseline=baseline, baseline_what=beside)
        self.rows.append(replace(row, target=target, met=met))

    def _cpu_s(self, side: str) -> float:
        """Processor time of what stands between client and Kafka."""
        return cpu_s(self.pids[side]) if side in self.pids else 0.0
