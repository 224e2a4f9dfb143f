"""`weir collect`: what a cluster already knows: Kafka's quotas as policies, Pulsar's usage as reports."""

import argparse
import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.policy.settings import read_settings
from weir.foreground import StopSignal, host_port, write_ready_file
from weir.log import log_to_stderr
from weir.options import add_cluster_options, cluster_of
from weir.settings import CollectSettings

if TYPE_CHECKING:
    from streaming.kafka_io.cluster_quotas import QuotaReader

logger = logging.getLogger("weir.collect")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "collect",
        help="publish a Kafka cluster's own quotas, or meter a Pulsar cluster and set its limits",
        description="Without a word: kafka.",
    )
    _add_options(parser, "one round, then end")
    parser.set_defaults(run=_run_kafka)
    clusters = parser.add_subparsers(title="clusters", metavar="CLUSTER")
    kafka = clusters.add_parser(
        "kafka",
        help="publish the cluster's own client quotas as policies",
        description="Read controller_mutation_rate and the byte rates of the cluster (kafka-configs) every "
        "few seconds and publish what changed, until Ctrl-C. Entries of a policy file win over them.",
    )
    _add_options(kafka, "one round, then end")
    kafka.set_defaults(run=_run_kafka)
    pulsar = clusters.add_parser(
        "pulsar",
        help="report what is used on a Pulsar cluster, and set its limits",
        description="Report what resource groups use on a Pulsar cluster without a proxy before it, and with"
        " --push set Pulsar's own publish and dispatch rates as shares and policies say, until Ctrl-C.",
    )
    _add_options(pulsar, "two readings and what follows from them, then end")
    pulsar.add_argument("--admin", metavar="URL", help="admin API (default: collect_pulsar.admin)")
    pulsar.add_argument("--token-file", metavar="FILE", help="its token (default: collect_pulsar.token_file)")
    pulsar.add_argument("--push", action="store_true", help="set limits; else print what would be set")
    pulsar.add_argument("--override", action="store_true", help="take over limits that somebody else set")
    pulsar.add_argument(
        "--metrics", metavar="HOST:PORT", type=host_port, help="serve /metrics there; port 0: any"
    )
    pulsar.set_defaults(run=_run_pulsar)


def _add_options(parser: argparse.ArgumentParser, once: str) -> None:
    add_cluster_options(parser)
    parser.add_argument("--once", action="store_true", help=once)
    parser.add_argument("--ready-file", type=Path, help="written as JSON after the first round")


def _run_pulsar(args: argparse.Namespace) -> int:
    """Collect until a signal; raises WeirError as `serve` does."""
    # Here and not above: `weir --help` must load neither an HTTP nor a Kafka client.
    import uvloop

    from streaming.collect.settings import PulsarCollectSettings
    from weir.collect.pulsar import serve
    from weir.stack.topics import check_topics

    settings = read_settings(PulsarCollectSettings, "collect_pulsar", args.settings)
    cluster = cluster_of(args)
    log_to_stderr("collect pulsar")
    check_topics(cluster)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(args, settings, cluster))
    return 0


def _run_kafka(args: argparse.Namespace) -> int:
    """Collect until a signal; with --once raises WeirError if the round failed."""
    # Here and not above: `weir --help` must not load a Kafka client.
    from streaming.kafka_io.cluster_quotas import QuotaReader

    settings = read_settings(CollectSettings, "collect", args.settings)
    cluster = cluster_of(args)
    log_to_stderr("collect")
    # Its errors come as ours, one line a round; its own lines would repeat each of them.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    stop = StopSignal()
    stop.install()
    reader = QuotaReader(cluster.bootstrap, client=cluster.client, timeout_ms=settings.request_timeout_ms)
    ready = False
    try:
        while True:
            try:
                collect_once(reader, cluster, settings.request_timeout_ms / 1000)
            except WeirError as failure:
                if args.once:
                    raise
                # The next round tries anew: a cluster that is down now is not down for ever.
                logger.warning("%s", failure)
            else:
                if args.ready_file and not ready:
                    write_ready_file(args.ready_file, {"pid": os.getpid(), "metrics": None})
                ready = True
            if args.once or stop.wait(settings.interval_ms / 1000):
                return 0
    finally:
        reader.close()


def collect_once(reader: "QuotaReader", cluster: Cluster, timeout_s: float) -> int:
    """One round: read both sides, publish the difference; returns the number of changes."""
    from streaming.kafka_io.cluster_quotas import ORIGIN
    from streaming.kafka_io.policy_topic import PolicyLog, Update, differences
    from streaming.kafka_io.policy_turn import change_policies

    found = reader.read()

    def decide(log: PolicyLog) -> list[Update]:
        return differences(log, found, (ORIGIN,), override=False)

    written = change_policies(
        cluster.bootstrap,
        cluster.topics,
        decide,
        origin=ORIGIN,
        client=cluster.client,
        timeout_s=timeout_s,
    )
    for update in written.updates:
        logger.info("%s is now %s", update.path, "removed" if update.value is None else update.value)
    return len(written.updates)
