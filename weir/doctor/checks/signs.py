"""Checks by what is written to `weir.usage`: which proxies live, is the job there, whose clock is wrong."""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message, TopicPartition

from enforcer.core.feeds.peers import Sign, signs_in
from enforcer.core.membership import ALIVE_EVERY_MS, ALIVE_MS, Alive
from streaming.contract.events import load_object
from streaming.job.process.other_job import SILENT_S, Jobs, tick_in
from streaming.kafka_io.reader import Reader, Span
from weir.backlog.table import human_seconds
from weir.doctor.findings import Finding, error, ok, warning
from weir.doctor.patient import LIMIT_S, Patient, metadata
from weir.logs.times import wall_ms

TICK_MS: Final = 30_000
"""The job ticks at least every 15 s (job.tick_interval_ms)."""
FAR_MS: Final = 1_000
"""A clock that is so far from the brokers' is wrong; the job says so from then on, too."""
LISTEN_S: Final = ALIVE_EVERY_MS / 1000 + 1
"""So long it is waited for a new record."""
_BACK_MS: Final = 40_000
_READ_S: Final = 15.0
_LAST: Final = 10
"""Records that are read for the newest one: behind it may stand markers of transactions."""
_SAID: Final = re.compile(r".*-alive-(\d{1,15})-\d+", re.DOTALL)
"""What a proxy's own clock said stands in its id: enforcer/core/feeds/membership.py."""
_NTP: Final = "set the clock of that host (NTP)"


@dataclass(kw_only=True)
class Heard:
    """What the newest records say; times are ms since the epoch, on the brokers' clock.

    Attributes:
        signs: of proxies, in their order.
        clocks: by proxy, the brokers' clock less its own, the least of its signs.
        newest_ms: the newest record; None: there is none.
        tick_ms: the job's newest tick; None: none was seen.
        jobs: those that tick.
        job_ahead_ms: the brokers' clock less that of the job's host, as it says; None: it does not.
        ahead_ms: the brokers' clock less our own; None: nothing came while we listened.
        cut: there was no time to read all of them.
    """

    signs: list[Sign] = field(default_factory=list)
    clocks: dict[str, int] = field(default_factory=dict)
    newest_ms: int | None = None
    tick_ms: int | None = None
    jobs: Jobs = field(default_factory=Jobs)
    job_ahead_ms: int | None = None
    ahead_ms: int | None = None
    cut: bool = False

    def take(self, message: Message, own_ms: int | None) -> None:
        """A record; `own_ms`: our clock when it came, None: it stood there before."""
        kind, ts = message.timestamp()
        self.newest_ms = max(ts, self.newest_ms or 0)
        brokers = kind == TIMESTAMP_LOG_APPEND_TIME
        if own_ms is not None and brokers:
            # It takes a while to arrive: the greatest of several is the nearest.
            self.ahead_ms = ts - own_ms if self.ahead_ms is None else max(ts - own_ms, self.ahead_ms)
        signs = [sign for sign in signs_in(message) if isinstance(sign, Sign)]
        self.signs += signs
        value = message.value() or b""
        if signs and brokers and (said := _SAID.fullmatch(str(load_object(value).get("id")))):
            behind = ts - int(said[1])
            self.clocks[signs[0].proxy] = min(behind, self.clocks.get(signs[0].proxy, behind))
        if tick := tick_in(value):
            self.tick_ms = max(ts, self.tick_ms or 0)
            self.jobs.take(tick, ts)
            ahead = tick.get("brokers_ahead_ms")
            self.job_ahead_ms = ahead if type(ahead) is int else None

    def now_ms(self, own_ms: int) -> int:
        """The brokers' time as far as it is known."""
        return max(own_ms + (self.ahead_ms or 0), self.newest_ms or 0)


def listen(patient: Patient) -> Heard:
    """The newest records of `weir.usage`, and the next one; raises WeirError if it cannot be read."""
    patient.once(metadata)
    heard, topic = Heard(), patient.cluster.topics.usage
    with closing(Reader(patient.cluster.bootstrap, patient.cluster.client)) as reader:
        spans = reader.spans(topic, limit_s=LIMIT_S)
        deadline = time.monotonic() + _READ_S
        last = [_from(span, span.end - _LAST) for span in spans]
        newest = [message.timestamp()[1] for message in _read(reader, last, deadline, heard)]
        if newest:
            # By the records' own times: our clock may be the wrong one.
            starts = reader.since(spans, max(newest) - _BACK_MS, LIMIT_S)
            for message in _read(reader, map(_from, spans, starts), deadline, heard):
                heard.take(message, None)
        _listen_on(reader, spans, heard)
    return heard


def _read(reader: Reader, spans: Iterable[Span], deadline: float, heard: Heard) -> Iterator[Message]:
    """Their records, as far as the time goes."""
    for span in spans:
        for message in reader.messages(span, LIMIT_S):
            if time.monotonic() > deadline:
                heard.cut = True
                return
            yield message


def _from(span: Span, start: int) -> Span:
    return Span(topic=span.topic, partition=span.partition, start=max(span.start, start), end=span.end)


def _listen_on(reader: Reader, spans: list[Span], heard: Heard) -> None:
    """What came while we read, and then until something new comes."""
    # A clock is told by what comes from here on alone: the rest may have waited for us.
    ends = reader.spans(spans[0].topic, limit_s=LIMIT_S)
    now = {span.partition: span.end for span in ends}
    # Where not even the older ones could be read, these cannot be either.
    begin = ends if heard.cut else spans
    reader.consumer.assign([TopicPartition(span.topic, span.partition, span.end) for span in begin])
    deadline = time.monotonic() + LISTEN_S
    # One that a transaction held up makes our clock seem ahead: the next may be quicker.
    while _seems_ahead(heard) and (left_s := deadline - time.monotonic()) > 0:
        for message in reader.batch(left_s):
            if message.error() is None:
                new = (message.offset() or 0) >= now[message.partition() or 0]
                heard.take(message, wall_ms() if new else None)


def _seems_ahead(heard: Heard) -> bool:
    return heard.ahead_ms is None or heard.ahead_ms <= -FAR_MS


def check_proxies(patient: Patient) -> Iterator[Finding]:
    """Which ones live, and whether two have one name."""
    heard = patient.once(listen)
    by_name: dict[str, list[Sign]] = defaultdict(list)
    for sign in heard.signs:
        by_name[sign.proxy].append(sign)
    now_ms = heard.now_ms(wall_ms())
    alive = sorted(name for name, signs in by_name.items() if _lives(signs, now_ms))
    twice = [name for name in alive if _taken(name, by_name[name])]
    for name in twice:
        what = f"two processes are the proxy {name!r}: each uses its shares and its part of each quota"
        yield error(what, "give each a name of its own: --id or proxy.id, of an admin API http.id")
    if heard.cut:
        yield _cut(patient)
    elif not alive:
        yield warning("no proxy has said that it lives: nothing is limited", "start `weir proxy`")
    elif not twice:
        yield ok(f"alive, each with a name of its own: {', '.join(alive)}")


def _lives(signs: list[Sign], now_ms: int) -> bool:
    last = {sign.instance: sign for sign in signs}
    return any(not sign.leaving and now_ms - sign.ts < ALIVE_MS for sign in last.values())


def _taken(name: str, signs: list[Sign]) -> bool:
    """Whether one of this name would end itself, as proxies do that hear another of theirs."""
    each = [Alive(name, own) for own in {sign.instance for sign in signs}]
    for alive in each:
        for sign in signs:
            alive.heard(sign.proxy, sign.ts, leaving=sign.leaving, speaks=sign.speaks, instance=sign.instance)
    return any(alive.name_is_taken for alive in each)


def check_job(patient: Patient) -> Iterator[Finding]:
    """Whether it ticks, and no other one does."""
    heard = patient.once(listen)
    now_ms = heard.now_ms(wall_ms())
    if len(ticking := heard.jobs.since(now_ms - int(SILENT_S * 1_000))) > 1:
        names = "; ".join(sorted(who for _, who in ticking.values()))
        yield error(f"{len(ticking)} jobs decide, on a checkpoint each: {names}", "stop all but one")
        return
    if heard.tick_ms is not None and now_ms - heard.tick_ms <= TICK_MS:
        yield ok(f"the job ticked {_ago(now_ms - heard.tick_ms)}")
        return
    if heard.cut:
        yield _cut(patient)
        return
    if heard.newest_ms is None:
        yield warning("nothing was ever reported, so the job has nothing to say", "start `weir proxy`")
        return
    last = "no tick of it was found"
    if heard.tick_ms is not None:
        last = f"it ticked last {_ago(now_ms - heard.tick_ms)}"
    newest = f"the newest record of {patient.cluster.topics.usage} is from {_ago(now_ms - heard.newest_ms)}"
    mend = "start `weir job` on its checkpoint; its log says why it ended (docs/operate/alerts.md)"
    yield error(f"the job is away: {last}; {newest}", mend)


def check_clocks(patient: Patient) -> Iterator[Finding]:
    """This host's, the job's and the proxies', beside the brokers'."""
    heard = patient.once(listen)
    known = {f"proxy {name}": ahead for name, ahead in sorted(heard.clocks.items())}
    if heard.job_ahead_ms is not None:
        known["the job's host"] = heard.job_ahead_ms
    if heard.ahead_ms is not None:
        known["this host"] = heard.ahead_ms
    apart = {who: ahead for who, ahead in known.items() if abs(ahead) >= FAR_MS}
    for who, ahead in apart.items():
        side = "behind" if ahead > 0 else "ahead of"
        yield warning(f"the clock of {who} is {abs(ahead) / 1000:.1f} s {side} the brokers'", _NTP)
    if heard.ahead_ms is None:
        topic = patient.cluster.topics.usage
        what = f"this host's clock cannot be told: nothing came to {topic} within {LISTEN_S:.0f} s"
        yield warning(what, "run it again while a proxy runs")
    elif not apart:
        yield ok(f"within {FAR_MS / 1000:.0f} s of the brokers': {', '.join(known)}")


def _cut(patient: Patient) -> Finding:
    topic = patient.cluster.topics.usage
    what = f"not all was read: the newest records of {topic} are too many for {_READ_S:.0f} s"
    return warning(what, "run it again, on a machine nearer to the brokers")


def _ago(ms: int) -> str:
    return f"{human_seconds(max(0, ms) // 1000)} ago"
