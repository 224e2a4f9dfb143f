"""`weir collect pulsar`: meters a Pulsar cluster, and with --push sets Pulsar's own limits."""

import argparse
import asyncio
import logging
import os
import secrets
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from streaming.collect.backlog.cluster import BacklogCluster
from streaming.collect.pulsar.collector import Collector, Outcome, Round
from streaming.collect.pulsar.limits import Rates, Slot
from streaming.collect.pulsar.metrics import CollectMetrics
from streaming.collect.pulsar.notes import Notes
from streaming.collect.pulsar.push import Change, Pusher, Result
from streaming.collect.pulsar.rest import Rest, RestError, RestTerms, check_terms
from streaming.collect.pulsar_backlog.cluster import PulsarBacklogs
from streaming.collect.reports import Reports, stand_by
from streaming.collect.settings import AtStop, BacklogSettings, PulsarCollectSettings
from streaming.contract.decisions import Share
from streaming.contract.errors import TakenOver, WeirError
from streaming.contract.printable import printable
from streaming.contract.topics import Cluster
from streaming.kafka_io.threads import use_threads
from streaming.metrics_server import serve_metrics
from streaming.policy.groups import LIFE_ROUNDS, round_rules
from weir.collect.backlogs import AGAIN_S, BacklogPart
from weir.collect.feeds import DecisionFeed, PolicyFeed, shares_in
from weir.foreground import write_ready_file
from weir.stopping import stop_event, unless, until_stopped

_ATTEMPT_S: Final = 10.0
"""Limit of one attempt of a REST call."""
logger = logging.getLogger("weir.collect")

PROGRESS_S: Final = 60.0
TABLE_ROWS: Final = 200
"""Limits that a dry run shows."""


def rest_terms(args: argparse.Namespace, settings: PulsarCollectSettings) -> RestTerms:
    """How the admin API is called.

    Raises:
        WeirError: it cannot be: no address, or a file that cannot be read.
    """
    terms = RestTerms(
        base=args.admin or settings.admin, token_file=args.token_file or settings.token_file,
        ca_file=settings.ca_file, timeout_s=_ATTEMPT_S,
    )  # fmt: skip
    check_terms(terms)
    return terms


async def serve(
    args: argparse.Namespace, settings: PulsarCollectSettings, backlog: BacklogSettings, cluster: Cluster,
    terms: RestTerms,
) -> None:  # fmt: skip
    """Collect until SIGINT or SIGTERM, with --once two readings long, and one check of backlogs.

    Raises:
        WeirError: Kafka or Pulsar does not answer at the start, another collector has taken over, or with
            --once a round failed.
    """
    use_threads()
    stop = stop_event()
    metrics = CollectMetrics()
    address = args.metrics and serve_metrics(metrics.registry, *args.metrics)
    if args.no_usage:
        write_ready_file(args.ready_file, {"pid": os.getpid(), "metrics": address})
    parts: list[Coroutine[Any, Any, None]] = []
    if backlog.enabled:
        watch = partial(_watch, terms, settings, metrics)
        part = BacklogPart(cluster, "pulsar", backlog, metrics.registry, watch, stand_by=args.stand_by)
        parts.append(part.once() if args.once else part.run())
    usage = _Usage(args, settings, cluster, terms, metrics, address, stop)
    await until_stopped(stop, parts, [] if args.no_usage else [usage.run()])


async def _watch(
    terms: RestTerms, settings: PulsarCollectSettings, metrics: CollectMetrics, stack: AsyncExitStack
) -> tuple[str, BacklogCluster]:
    # Connections of its own: of the two parts neither keeps the other waiting.
    rest = await stack.enter_async_context(Rest(terms, metrics.request))
    return settings.cluster or await _cluster_name(rest), PulsarBacklogs(rest)


@dataclass(slots=True)
class _Usage:
    """What groups use, and their limits, round by round until `stop` is set."""

    _args: argparse.Namespace
    _settings: PulsarCollectSettings
    _cluster: Cluster
    _terms: RestTerms
    _metrics: CollectMetrics
    _address: str | None
    _stop: asyncio.Event
    _ready: bool = False
    _said: dict[Slot, Rates | None] = field(default_factory=dict)
    _next_progress_s: float = 0.0
    _next_behind_s: float = 0.0
    _collector: Collector = field(init=False)

    async def run(self) -> None:
        stood_by = False
        while not self._stop.is_set():
            try:
                async with AsyncExitStack() as stack:
                    if await unless(self._stop, self._begin(stack)):
                        await self._rounds()
                    return
            except TakenOver as taken:
                if self._args.once or not self._args.stand_by:
                    raise
                await unless(self._stop, stand_by(self._cluster, taken, self._settings.interval_ms / 1000))
                stood_by = True
            except WeirError as error:
                # Only at its start the command ends with it; a round would go on.
                if not stood_by:
                    raise
                logger.warning("usage: not collected yet: %s; tried again in %.0f s",
                               printable(str(error)), AGAIN_S)  # fmt: skip
                await unless(self._stop, asyncio.sleep(AGAIN_S))

    async def _begin(self, stack: AsyncExitStack) -> None:
        """Make the collector, with all that it follows on the stack."""
        cluster, settings, metrics = self._cluster, self._settings, self._metrics
        rest = await stack.enter_async_context(Rest(self._terms, metrics.request))
        name = settings.cluster or await _cluster_name(rest)
        lease = f"{cluster.topics.usage}-pulsar-{name}"
        policies = PolicyFeed(cluster, metrics.unusable_records.inc)
        clock = policies.clock
        reports = stack.enter_context(
            await asyncio.to_thread(Reports, cluster, lease, _ATTEMPT_S, clock.learn)
        )
        stack.push_async_callback(policies.stop)
        notes = Notes(rest, settings.notes_namespace)
        pusher = Pusher(rest, notes, metrics, override=self._args.override)
        collector = self._collector = Collector(
            rest, pusher, settings, policies=policies.policies, report=reports.write,
            name=f"collect-{name}-{secrets.token_hex(4)}", push=self._args.push, metrics=metrics,
        )  # fmt: skip

        def take(share: Share) -> None:
            collector.take_share(share.group, share.broker, share.limits, share.ttl_ms)

        await policies.start()
        await collector.meet()
        back_ms = LIFE_ROUNDS * round_rules(policies.policies()).interval_ms
        read = partial(shares_in, clock.now_ms)
        shares = DecisionFeed(cluster, read, take, metrics.unusable_records.inc, back_ms)
        stack.push_async_callback(shares.stop)
        await shares.start()

    async def _rounds(self) -> None:
        readings = 0
        while not self._stop.is_set():
            due_s = time.monotonic() + self._collector.interval_s()
            done = await self._collector.round()
            await self._say(done)
            readings += 1
            # A broker that has not answered in either is not waited for.
            if self._args.once and (done.outcome is not Outcome.FIRST or readings > 1):
                _check(done)
                return
            await self._wait(due_s)
        await self._end()

    async def _wait(self, due_s: float) -> None:
        """Until the next round; one that came late is said."""
        left_s = due_s - time.monotonic()
        if left_s < 0:
            self._metrics.behind.inc()
            if time.monotonic() >= self._next_behind_s:
                took_s = self._collector.interval_s() - left_s
                logger.warning("falls behind: a round took %.1f s, the interval is %.1f s", took_s,
                               took_s + left_s)  # fmt: skip
                self._next_behind_s = time.monotonic() + PROGRESS_S
        try:
            async with asyncio.timeout(left_s):
                await self._stop.wait()
        except TimeoutError:
            return

    async def _say(self, done: Round) -> None:
        reported = done.outcome in (Outcome.DONE, Outcome.FIRST)
        if reported and not self._ready:
            self._ready = True
            write_ready_file(self._args.ready_file, {"pid": os.getpid(), "metrics": self._address})
        if done.outcome is Outcome.DONE and not self._args.push:
            await self._dry_run(done.changes)
        if done.outcome is Outcome.DONE and time.monotonic() >= self._next_progress_s:
            self._next_progress_s = time.monotonic() + PROGRESS_S
            passed, plan = done.passed, done.plan
            logger.info(
                "%d brokers, %d topics and subscriptions in %d groups, %d limits of ours in force; a round"
                " takes %.2f s", len(passed.period_ms) if passed else 0, len(passed.counts) if passed else 0,
                len(plan.pools) if plan else 0, len(self._collector.pusher.pushed), done.seconds,
            )  # fmt: skip

    async def _dry_run(self, changes: Sequence[Change]) -> None:
        """What --push would do, as far as it was not said before."""
        new = [one for one in changes if self._said.get(one.slot, one) != one.rates][:TABLE_ROWS]
        if not new:
            return
        found = await self._collector.pusher.look(change.slot for change in new)
        print("\n".join(table(new, found, self._collector.pusher.pushed, override=self._args.override)))
        sys.stdout.flush()
        self._said |= {change.slot: change.rates for change in new}

    async def _end(self) -> None:
        # Those too of which it is not known whether they were carried out.
        pushed = self._collector.pusher.all_removals()
        if not self._args.push or not pushed:
            return
        if self._settings.at_stop is AtStop.KEEP:
            logger.info("%d pushed limits stay in force (collect_pulsar.at_stop)", len(pushed))
            return
        await self._collector.withdraw()
        left = len(self._collector.pusher.all_removals())
        logger.info("%d of %d pushed limits are taken away", len(pushed) - left, len(pushed))


def table(
    changes: Sequence[Change], found: Mapping[Slot, Rates | RestError | None], pushed: Mapping[Slot, Rates],
    *, override: bool = False,
) -> list[str]:  # fmt: skip
    """What would be pushed, one line each: the limiter, what it holds, what it would hold, and a word on it;
    `override`: what somebody else has set is taken over.

    >>> slot = Slot.parse("publishRate a/b")
    >>> table([Change(slot, Rates(9, -1))], {slot: Rates(5, -1)}, {})
    ['publishRate a/b: 5 msg per 1 s -> 9 msg per 1 s (left alone: set by somebody else)']
    """
    lines = []
    for change in changes:
        held = found.get(change.slot)
        said = str(held) if held is not None else "nothing"
        word = ""
        if isinstance(held, RestError):
            said, word = "unknown", f" ({held})"
        elif held is not None and held != pushed.get(change.slot):
            word = f" ({'taken over' if override else 'left alone'}: set by somebody else)"
        lines.append(printable(f"{change.slot.name}: {said} -> {change.rates or 'nothing'}{word}"))
    return lines


async def _cluster_name(rest: Rest) -> str:
    """The cluster's name for itself.

    Raises:
        WeirError: it does not tell.
    """
    said: Any = await rest.get("/admin/v2/brokers/configuration/runtime")
    name = said.get("clusterName") if isinstance(said, dict) else None
    if not name or not isinstance(name, str):
        raise WeirError("the brokers do not tell the cluster's name; collect_pulsar.cluster should say it")
    return name


def _check(done: Round) -> None:
    """With --once a failure is the command's."""
    if done.outcome is Outcome.FIRST:
        raise WeirError("no broker has answered twice; its last answers are told above")
    if done.outcome is not Outcome.DONE:
        raise WeirError(f"the round failed ({done.outcome})")
    failed = [slot for slot, one in (done.results or {}).items() if one in (Result.FAILED, Result.REFUSED)]
    if failed:
        raise WeirError(f"{len(failed)} limits were not pushed, such as {failed[0].name}")
