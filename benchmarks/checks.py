"""A standing decision beside a remote check: our gate, Gubernator, and Envoy's ratelimit with Redis.

One load for all: 100,000 subjects drawn evenly, one in ten of which must be refused.
"""

import random
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.kit.lone_proxy import lone_coordinator
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row, percentile
from benchmarks.peers.build import CLIENT, GUBERNATOR, RATELIMIT, Program, Unavailable, build
from benchmarks.peers.service import PEERS, Answers, Service
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.laws.mutation.request import Action
from streaming.contract.errors import WeirError

TITLE: Final = "Standing decision beside a remote check"
DURATION_S: Final = 79
SETUP_LIMIT_S: Final = 600
"""What a first run may take more, to build the peers and the load client."""

_HELD: Final = 10  # one in so many subjects must wait
_OWN_QUOTA: Final = 100  # one in so many has a quota of its own, the others the default
_HOLD_MS: Final = 3_600_000
_BATCH_CALLERS: Final = 16
_FEW: Final = 1_000
_LABELS: Final = {GUBERNATOR: "Gubernator", RATELIMIT: "ratelimit with Redis"}
_NAME: Final = "standing decision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured.

    Attributes:
        subjects: different ones.
        checks: back to back, on our side.
        rate: checks a second in the open loop.
        open_s: how long that is.
        closed_s: how long a peer is asked as fast as it answers.
        callers: calls under way then.
        batch: checks a call in the second closed loop.
    """

    subjects: int = 100_000
    checks: int = 300_000
    rate: int = 2_000
    open_s: float = 10.0
    closed_s: float = 8.0
    callers: int = 64
    batch: int = 100


_SMOKE: Final = Scale(subjects=1_000, checks=5_000, open_s=0.2, closed_s=0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What was measured on our side; times in µs.

    Attributes:
        paced: of each check at the load's rate.
        packed: of each check, one right after the other.
        few: the same, of few subjects, whose quotas stay in the processor's caches.
        refusals: of those among `packed` that refuse.
        first: of the first check of each client, whose quota has yet to be found.
        cpu_us: processor time of one check, one right after the other, without a clock around each.
        refused: share of the checks.
    """

    paced: list[float]
    packed: list[float]
    few: list[float]
    refusals: list[float]
    first: list[float]
    cpu_us: float
    refused: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """What one peer did: at the load's rate, as fast as it could, and with many checks a call."""

    paced: Answers
    single: Answers
    batch: Answers


def run(smoke: bool, progress: Progress) -> Result:
    """Measure our side, then each peer that can be had here."""
    scale = _SMOKE if smoke else Scale()
    programs, skipped = _programs(smoke, progress)
    own = _measure_own(scale, progress)
    remotes: dict[Program, Remote] = {}
    for at, program in enumerate(programs):
        try:
            remotes[program] = _measure(program, scale, progress, 0.3 + 0.35 * at)
        except Unavailable as reason:
            skipped.append(str(reason))
    series = {f"{_NAME}, {scale.rate:,} checks/s, us": own.paced, f"{_NAME}, back to back, us": own.packed}
    for program, remote in remotes.items():
        series[f"{_LABELS[program]}, {scale.rate:,} checks/s, us"] = remote.paced.latency_us
    rows, notes = _rows(scale, own, remotes), _notes(scale, own, remotes)
    return Result(name="checks", title=TITLE, rows=rows, notes=notes, series=series, skipped=skipped)


def _programs(smoke: bool, progress: Progress) -> tuple[list[Program], list[str]]:
    """The peers that are there, or can be built, and why others are not."""
    until = time.monotonic() + SETUP_LIMIT_S
    ready, skipped = [], []
    for program in PEERS:
        if smoke and not (program.built() and CLIENT.built()):
            skipped.append(f"{program.name}: not built, and a smoke run builds nothing")
            continue
        try:
            for part in (CLIENT, program):
                build(part, until, lambda what: progress.step(f"{what} (not counted, up to 10 min)", 0.0))
        except Unavailable as reason:
            skipped.append(str(reason))
            continue
        ready.append(program)
    return ready, skipped


def _measure_own(scale: Scale, progress: Progress) -> Own:
    progress.step("our own checks", 0.01)
    users = [f"user-{i}" for i in range(scale.subjects)]
    quotas = {"quotas[user=<default>]": 5.0}
    quotas |= {f"quotas[user={user}]": 10.0 for user in users[::_OWN_QUOTA]}
    policies = {path: {"controller_mutation_rate": rate} for path, rate in quotas.items()}
    coordinator = lone_coordinator(policies, lambda function: function())
    order = random.Random(1)
    load = [(users[i], _client_id(i)) for i in (order.randrange(scale.subjects) for _ in range(scale.checks))]
    first = _timed(coordinator, [(user, _client_id(i)) for i, user in enumerate(users)])[0]
    # One in ten subjects waits, as if the job had throttled them.
    until_ms = coordinator.clock.steady_ms() + _HOLD_MS
    for i in range(0, len(users), _HELD):
        quota = coordinator.quota(users[i], _client_id(i).decode())
        if quota is None:
            raise WeirError(f"no quota for {users[i]}")
        coordinator.not_before.postpone(quota.subject, until_ms, quota)
    begun = time.process_time_ns()
    for user, client_id in load:
        coordinator.judge(coordinator.quota(user, client_id.decode()), strict=True, probing=False)
    cpu_us = (time.process_time_ns() - begun) / 1_000 / len(load)
    packed, refused = _timed(coordinator, load)
    at = [order.randrange(min(_FEW, scale.subjects)) for _ in range(scale.checks // 3)]
    few = _timed(coordinator, [(users[i], _client_id(i)) for i in at])[0]
    progress.step(f"our own checks, {scale.rate:,} a second", 0.05)
    paced = _paced(coordinator, load[: round(scale.rate * scale.open_s)], scale.rate)
    refusals = [took for took, is_refused in zip(packed, refused, strict=True) if is_refused]
    share = len(refusals) / len(packed)
    if not 0.5 / _HELD < share < 2 / _HELD:
        raise WeirError(f"{share:.1%} of our checks were refused; expected {1 / _HELD:.0%}")
    return Own(
        paced=paced, packed=packed, few=few, refusals=refusals, first=first, cpu_us=cpu_us, refused=share
    )


def _client_id(subject: int) -> bytes:
    """As it stands in a request."""
    return b"client-%d" % (subject % 8)


def _timed(coordinator: QuotaCoordinator, load: list[tuple[str, bytes]]) -> tuple[list[float], list[bool]]:
    """Check by check: how long it took in µs, and whether it refused."""
    took, refused, clock = [], [], time.perf_counter_ns
    for user, raw in load:
        # Just read from the request, as in the proxy, so that its hash is not known yet.
        client_id = raw.decode()
        begun = clock()
        verdict = coordinator.judge(coordinator.quota(user, client_id), strict=True, probing=False)
        took.append((clock() - begun) / 1_000)
        refused.append(verdict.action is Action.REFUSE)
    return took, refused


def _paced(coordinator: QuotaCoordinator, load: list[tuple[str, bytes]], rate: int) -> list[float]:
    """The same at fixed times: each check finds the processor as other work or idling left it."""
    took = []
    begun = time.monotonic()
    for i, pair in enumerate(load):
        left_s = begun + i / rate - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)
        took += _timed(coordinator, [pair])[0]
    return took


def _measure(program: Program, scale: Scale, progress: Progress, done: float) -> Remote:
    """Start a peer, let it see every subject, and ask it."""
    label = _LABELS[program]
    common: dict[str, float] = {"subjects": scale.subjects, "held": _HELD}

    def ask(what: str, fraction: float, **options: float) -> Answers:
        progress.step(f"{label}, {what}", done + fraction)
        return service.ask(**common, **options)

    service: Service
    with tempfile.TemporaryDirectory(prefix="w-") as folder, PEERS[program](Path(folder)) as service:
        # Twice: the second time those with a limit of one are refused, and stay so.
        ask("warming up", 0.0, passes=2, batch=scale.batch, callers=_BATCH_CALLERS)
        ask("warming up", 0.05, rate=scale.rate, seconds=scale.open_s / 5, seed=2)
        paced = ask(f"{scale.rate:,} checks a second", 0.07, rate=scale.rate, seconds=scale.open_s)
        single = ask("as fast as it can", 0.17, callers=scale.callers, seconds=scale.closed_s)
        many: dict[str, float] = {"batch": scale.batch, "callers": _BATCH_CALLERS}
        batch = ask(f"{scale.batch} checks a call", 0.26, seconds=scale.closed_s, **many)
    for answers in (paced, single, batch):
        share = answers.refused / answers.checks
        if not 0.5 / _HELD < share < 2 / _HELD:
            raise Unavailable(f"{program.name}: {share:.1%} of checks were refused; expected {1 / _HELD:.0%}")
    return Remote(paced=paced, single=single, batch=batch)


def _rows(scale: Scale, own: Own, remotes: Mapping[Program, Remote]) -> list[Row]:
    paced, packed, few = sorted(own.paced), sorted(own.packed), sorted(own.few)
    refusals, first = sorted(own.refusals), sorted(own.first)
    per_core = 1e6 / own.cpu_us
    p50 = percentile(packed, 50)
    rows = [
        Row("p50 of a check, back to back", p50, "µs", target="< 2 µs", met=p50 < 2.0),
        Row("p99 of a check, back to back", percentile(packed, 99), "µs"),
        Row(f"p50 of a check, {_FEW:,} subjects only", percentile(few, 50), "µs"),
        Row("p50 of a check that refuses, back to back", percentile(refusals, 50), "µs"),
        Row("p50 of a client's first check", percentile(first, 50), "µs"),
    ]
    for program, remote in remotes.items():
        label = _LABELS[program]
        for percent in (50.0, 99.0, 99.9):
            value, theirs = percentile(paced, percent), percentile(remote.paced.latency_us, percent)
            what = f"p{percent:g} of a check at {scale.rate:,} checks/s"
            row = Row(what, value, "µs", baseline=theirs, baseline_what=label)
            rows.append(replace(row, target="below", met=value < theirs) if percent == 99.0 else row)
        many = f"{scale.batch} checks a call"
        for answers, how in ((remote.single, "one check a call"), (remote.batch, many)):
            theirs, peer = answers.checks / answers.cpu_s, f"{label}, {how}"
            what = "Decisions per second and core"
            row = Row(what, per_core, "decisions/s", baseline=theirs, baseline_what=peer)
            rows.append(replace(row, target="more", met=per_core > theirs))
            rows.append(Row(f"{peer}, on all cores", answers.checks / answers.seconds, "checks/s"))
    return rows


def _notes(scale: Scale, own: Own, remotes: Mapping[Program, Remote]) -> list[str]:
    notes = [
        "What is compared: our proxy looks up the newest decision that it holds, in its own memory; a peer "
        "is asked over gRPC on loopback and counts exactly. Ours is as old as its way from the job to the "
        "proxy (benchmark `latency`): a wait that begins or ends is seen that much later; a peer's answer "
        "has no age. That ours needs no network at the moment of the check is the point.",
        "Ours is `Guard.quota` and `Guard.judge` as the proxy's connections call them, one thread, the "
        "client-id just decoded. What else the proxy does with a request (reading, decoding, "
        "answering) is not in it: benchmark `proxy` has the whole way.",
        f"One load for all: {scale.subjects:,} subjects, drawn evenly; {own.refused:.0%} of our checks are "
        "refused by a not-before. The others find none: partition mutations under a quota then wait for the "
        "job's decision, all else goes on.",
        "Time of a check: ours from the call to its return; a peer's from sending to the answer, sent at "
        "fixed times whether or not earlier calls have ended. The load client, in Go, runs on the same "
        "cores.",
        "Decisions per second and core: checks over processor time, user and system: ours of the checking "
        "thread; a peer's of the service with its Redis, not of the load client. As fast as it can: "
        f"{scale.callers} callers ({_BATCH_CALLERS} with {scale.batch} checks a call) on 1 connection.",
        "Peers are set up as kindly as their documentation allows, one node each: Gubernator "
        f"{GUBERNATOR.version} with a cache for all subjects and tracing off; ratelimit {RATELIMIT.version} "
        "with statistics off, its local cache on, and Redis on a Unix socket, writing nothing to disk. Each "
        "saw every subject twice before.",
    ]
    for program, remote in remotes.items():
        late = remote.paced.late_us
        notes.append(
            f"{_LABELS[program]}: the client itself began calls {percentile(late, 50):.0f} µs late at p50, "
            f"{percentile(late, 99):.0f} µs at p99; that is not in the times."
        )
    return notes
