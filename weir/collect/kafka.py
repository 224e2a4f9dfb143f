"""`weir collect kafka`: publishes a cluster's own quotas as policies, and looks after its backlogs."""

import argparse
import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import cache, partial
from typing import Any, Final

from prometheus_client import CollectorRegistry

from streaming.collect.backlog.cluster import BacklogCluster
from streaming.collect.kafka.cluster import KafkaCluster
from streaming.collect.settings import BacklogSettings
from streaming.contract.errors import WeirError
from streaming.contract.namespaces import Namespaces
from streaming.contract.topics import Cluster
from streaming.kafka_io.cluster_quotas import ORIGIN, QuotaReader
from streaming.kafka_io.policy_topic import PolicyLog, PolicyReader, Update, differences
from streaming.kafka_io.policy_turn import change_policies
from streaming.kafka_io.threads import use_threads
from streaming.metrics_server import serve_metrics
from weir.collect.backlogs import BacklogPart
from weir.collect.feeds import watch_for
from weir.foreground import write_ready_file
from weir.settings import CollectSettings
from weir.stack.topics import cluster_id
from weir.stopping import stop_event, until_stopped

ROUND_S: Final = 5.0
"""Time between two looks at the cluster's quotas."""
_REQUEST_MS: Final = 5_000
"""Limit of one request to the cluster."""
logger = logging.getLogger("weir.collect")


async def serve(
    args: argparse.Namespace, collect: CollectSettings, backlog: BacklogSettings, namespaces: Namespaces,
    cluster: Cluster,
) -> None:  # fmt: skip
    """Collect until SIGINT or SIGTERM; with --once one round of each.

    Raises:
        WeirError: another collector has taken over, or with --once a round failed.
    """
    use_threads()
    stop = stop_event()
    registry = CollectorRegistry()
    address = args.metrics and serve_metrics(registry, *args.metrics)

    @cache
    def once_ready() -> None:
        write_ready_file(args.ready_file, {"pid": os.getpid(), "metrics": address})

    parts: list[Coroutine[Any, Any, None]] = []
    quotas = collect.quotas_from_kafka
    if quotas:
        parts.append(_quotas(cluster, once_ready, once=args.once))
    if backlog.enabled:
        checked = (lambda: None) if quotas else once_ready
        watch = partial(_watch, cluster, namespaces, backlog.cluster)
        part = BacklogPart(
            cluster, "kafka", backlog, registry, watch, checked=checked, stand_by=args.stand_by
        )
        parts.append(part.once() if args.once else part.run())
    await until_stopped(stop, parts)


async def _quotas(cluster: Cluster, done: Callable[[], None], *, once: bool) -> None:
    """Publish the cluster's own quotas round by round; in threads, since the client blocks.

    Raises:
        WeirError: with `once`: the round failed.
    """
    reader, policies = QuotaReader(cluster, _REQUEST_MS), PolicyReader(cluster)

    def begin_anew() -> None:
        nonlocal policies
        policies = PolicyReader(cluster)

    watch = watch_for(cluster, cluster.topics.policies, begin_anew)
    while True:
        try:
            await asyncio.to_thread(watch.look)
            await asyncio.to_thread(collect_once, reader, policies, cluster, _REQUEST_MS / 1000)
        except WeirError as failure:
            if once:
                raise
            # The next round tries anew: a cluster that is down now is not down for ever.
            logger.warning("%s", failure)
        except Exception:
            if once:
                raise
            # Such as that no thread is left for a moment, which must not end what looks after backlogs.
            logger.exception("quotas: a round failed")
        else:
            done()
        if once:
            reader.close()
            return
        await asyncio.sleep(ROUND_S)


def collect_once(reader: QuotaReader, policies: PolicyReader, cluster: Cluster, timeout_s: float) -> int:
    """One round: read both sides, publish the difference; returns the number of changes."""
    found = reader.read()

    def decide(log: PolicyLog) -> list[Update]:
        return differences(log, found, (ORIGIN,), override=False)

    written = change_policies(cluster, decide, origin=ORIGIN, timeout_s=timeout_s, reader=policies)
    for update in written.updates:
        logger.info("%s is now %s", update.path, "removed" if update.value is None else update.value)
    return len(written.updates)


async def _watch(
    cluster: Cluster, namespaces: Namespaces, name: str, stack: AsyncExitStack
) -> tuple[str, BacklogCluster]:
    name = name or await asyncio.to_thread(cluster_id, cluster)
    held = KafkaCluster(cluster, namespaces)
    stack.callback(held.close)
    return name, held
