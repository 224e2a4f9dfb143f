"""Who lives: proxies, the job, and where what proxies decided went beyond the law."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from enforcer.control.entities.feed import Sign
from enforcer.control.entities.laws import Entity
from enforcer.core.membership import ALIVE_MS, PROXIES_MAX
from streaming.contract.decisions import Admission
from streaming.kafka_io.newest import Newest
from streaming.kafka_io.tail import Tail

GONE_MS: Final = 600_000
"""One that is silent is told of for so long, unless it has said that it leaves."""
BEHIND_MS: Final = 15_000
"""Who is further behind what is written is told of."""
_ROUNDS: Final = 3
_DIFFERENCES_MAX: Final = 100


@dataclass(slots=True)
class Difference:
    """Where proxies let through what the law would have refused.

    Attributes:
        times: how often.
        over: how far the balance went below 0 at most, mutations.
    """

    times: int = 0
    over: float = 0.0


class Signs:
    """The newest sign of each part.

    Attributes:
        differences: of each entity, the newest of them last.
        readers: of the topics that this process follows.
    """

    def __init__(self) -> None:
        self._proxies: Newest[str, int] = Newest(PROXIES_MAX)
        self._round_ts = self._decided_ts = self._delay_ms = 0
        self.readers: Mapping[str, Tail[Any]] = {}
        self.differences: Newest[Entity, Difference] = Newest(_DIFFERENCES_MAX)

    def take(self, sign: Sign, ts: int) -> None:
        """Take a sign in, written at `ts`."""
        if sign.part != "proxy":
            self._round_ts = max(self._round_ts, ts)
        elif not sign.leaving:
            self._proxies.put(sign.name, ts)
        elif self._proxies.get(sign.name) is not None:
            self._proxies.remove(sign.name)

    def decided(self, ts: int, entity: Entity | None, decision: Any, asked_ts: int | None) -> None:
        """The job has decided something, written at `ts`, that was asked then (None: it only repeats it)."""
        self._decided_ts = max(self._decided_ts, ts)
        if asked_ts is not None:
            self._delay_ms = max(0, ts - asked_ts)
        if entity is not None and isinstance(decision, Admission) and decision.differs:
            known = self.differences.heard(entity, Difference)
            known.times += 1
            known.over = max(known.over, -(decision.tokens or 0.0))

    def alive(self, now_ms: int) -> list[str]:
        """The proxies that live."""
        return sorted(name for name, ts in self._proxies.items() if ts > now_ms - ALIVE_MS)

    def parts(self, now_ms: int, round_ms: int) -> list[dict[str, Any]]:
        """Each part: whether it gives signs, and how old the newest is; the job gives one each `round_ms`."""
        job_ts = max(self._round_ts, self._decided_ts)
        told = [
            _part("job", "job", now_ms, job_ts, _ROUNDS * round_ms),
            _part("batch", "job", now_ms, self._decided_ts, None),
            _part("round", "job", now_ms, self._round_ts, _ROUNDS * round_ms),
            # An old one says nothing of now.
            _behind("delay", "job", self._delay_ms if self._decided_ts > now_ms - ALIVE_MS else 0),
        ]
        for topic, tail in self.readers.items():
            read_ms = tail.read_to_ms
            told.append(_behind("reader", topic, 0 if read_ms is None else max(0, now_ms - read_ms)))
        proxies = ((name, ts) for name, ts in self._proxies.items() if ts > now_ms - GONE_MS)
        return told + [_part("proxy", name, now_ms, ts, ALIVE_MS) for name, ts in sorted(proxies)]


def _part(part: str, name: str, now_ms: int, ts: int, silent_ms: int | None) -> dict[str, Any]:
    """A part; without `silent_ms` it has nothing to say where there is nothing to decide."""
    age_ms = max(0, now_ms - ts) if ts else None
    late = age_ms is None or (silent_ms is not None and age_ms > silent_ms)
    quiet = silent_ms is None and age_ms is None
    return {"part": part, "name": name, "status": "silent" if late and not quiet else "ok", "age_ms": age_ms}


def _behind(part: str, name: str, behind_ms: int) -> dict[str, Any]:
    """One that reads: how old is what it takes."""
    status = "behind" if behind_ms > BEHIND_MS else "ok"
    return {"part": part, "name": name, "status": status, "age_ms": behind_ms}
