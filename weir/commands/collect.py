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
        description="kafka (the default): read controller_mutation_rate and the byte rates of the cluster"
        " (kafka-configs) every few seconds and publish what changed, until Ctrl-C. Entries of a policy file"
        " win over them. pulsar: report what resource groups use on a Pulsar cluster without a proxy before"
        " it, and with --push set Pulsar's own publish and dispatch rates as shares and policies say.",
    )
    parser.add_argument(
        "cluster", nargs="?", choices=("kafka", "pulsar"), default="kafka", help="of which cluster"
    )
    add_cluster_options(parser)
    parser.add_argument("--once", action="store_true", help="one round (of Pulsar: two readings), then end")
    parser.add_argument("--ready-file", type=Path, help="written as JSON after the first round")
    of_pulsar = parser.add_argument_group("pulsar")
    of_pulsar.add_argument("--admin", metavar="URL", help="admin API (default: collect_pulsar.admin)")
    of_pulsar.add_argument("--token-file", metavar="FILE", help="token (default: collect_pulsar.token_file)")
    of_pulsar.add_argument("--push", action="store_true", help="set limits; else say what would be set")
    of_pulsar.add_argument(
        "--override", action="store_true", help="take over limits that somebody else has set"
    )
    of_pulsar.add_argument(
        "--metrics", metavar="HOST:PORT", type=host_port, help="serve /metrics there; port 0: any"
    )
    parser.set_defaults(run=run, refuse=parser.error)


def run(args: argparse.Namespace) -> int:
    """Collect until a signal; raises WeirError if the round of --once failed."""
    if args.cluster == "pulsar":
        return _run_pulsar(args)
    if args.admin or args.token_file or args.push or args.override or args.metrics:
        args.refuse("--admin, --token-file, --push, --override and --metrics are for `weir collect pulsar`")
    return _run_kafka(args)


def _run_pulsar(args: argparse.Namespace) -> int:
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
