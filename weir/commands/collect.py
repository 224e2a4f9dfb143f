"""`weir collect`: what a cluster already knows: Kafka's quotas, Pulsar's usage, and the backlogs of both."""

import argparse
import logging

from streaming.contract.errors import ConfigError
from streaming.policy.settings import read_settings
from streaming.policy.yaml.lines import read_yaml
from weir.foreground import forget_ready_file, http_url
from weir.log import log_to_stderr
from weir.options import add, add_cluster_options, add_flag, add_part_options, cluster_of
from weir.settings import CollectSettings
from weir.stopping import run_in_loop

DESCRIPTION = "Without a word: kafka."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    _add_options(parser, "one round, then end")
    clusters = parser.add_subparsers(title="clusters", metavar="CLUSTER")
    # Options may stand before the word too, and one that is absent behind it must not undo them.
    kafka = clusters.add_parser(
        "kafka",
        argument_default=argparse.SUPPRESS,
        help="publish the cluster's own client quotas as policies, and look after its backlogs",
        description="Read controller_mutation_rate and the byte rates of the cluster (kafka-configs) every "
        "few seconds and publish what changed, until Ctrl-C. Entries of a policy file win over them. Report "
        "what each topic's groups have not read yet, and evict what the policies want evicted.",
    )
    _add_options(kafka, "one round, then end")
    kafka.set_defaults(run=run)
    pulsar = clusters.add_parser(
        "pulsar",
        argument_default=argparse.SUPPRESS,
        help="report what is used on a Pulsar cluster, and set its limits",
        description="Report what resource groups use on a Pulsar cluster without a proxy before it, and with"
        " --push set Pulsar's own publish and dispatch rates as shares and policies say, until Ctrl-C. Report"
        " the backlogs of all topics besides, and evict what the policies want evicted.",
    )
    _add_options(pulsar, "two readings and what follows from them, then end")
    add(pulsar, "--admin", "admin API (default: collect_pulsar.admin)", metavar="URL", type=http_url)
    add(pulsar, "--token-file", "its token (default: collect_pulsar.token_file)", metavar="FILE")
    either = pulsar.add_mutually_exclusive_group()
    add_flag(either, "--no-usage", "backlogs only: proxies meter and limit this cluster already")
    add_flag(either, "--push", "set limits; else print what would be set")
    add_flag(pulsar, "--override", "take over limits that somebody else set")
    pulsar.set_defaults(
        run=_run_pulsar, admin=None, token_file=None, no_usage=False, push=False, override=False
    )


def _add_options(parser: argparse.ArgumentParser, once: str) -> None:
    add_cluster_options(parser)
    add_part_options(parser, "after the first round")
    add_flag(parser, "--once", once)
    after = "when another collector of the cluster takes over, wait for its end (else: end with status 3)"
    add_flag(parser, "--stand-by", after)


def _run_pulsar(args: argparse.Namespace) -> int:
    """Collect until a signal; raises WeirError as `serve` does."""
    forget_ready_file(args.ready_file, args.metrics)
    # Here and not above: `weir --help` must load neither an HTTP nor a Kafka client.
    from streaming.collect.settings import BacklogSettings, PulsarCollectSettings
    from weir.collect.pulsar import rest_terms, serve
    from weir.stack.topics import check_topics

    settings = read_settings(PulsarCollectSettings, "collect_pulsar", args.settings)
    backlog = read_settings(BacklogSettings, "backlog", args.settings)
    try:
        http_url(args.admin or settings.admin)
    except ValueError:
        message = "is no address of an admin API; expected http://HOST:PORT"
        raise _wrong(args.settings, "collect_pulsar", "admin", message) from None
    if args.no_usage and not backlog.enabled:
        raise _nothing_to_do(args.settings, "--no-usage was given")
    cluster = cluster_of(args, "collect_pulsar")
    log_to_stderr("collect pulsar")
    terms = rest_terms(args, settings)
    check_topics(cluster)
    run_in_loop(serve(args, settings, backlog, cluster, terms))
    return 0


def _nothing_to_do(file: str, why: str) -> ConfigError:
    return _wrong(file, "backlog", "enabled", f"is false, and {why}: nothing to do; expected true")


def _wrong(file: str, section: str, key: str, message: str) -> ConfigError:
    return ConfigError([read_yaml(file).problem((section, key), message)])


def run(args: argparse.Namespace) -> int:
    """Collect until a signal; with --once raises WeirError if a round failed."""
    forget_ready_file(args.ready_file, args.metrics)
    # Here and not above: `weir --help` must not load a Kafka client.
    from enforcer.core.settings import ProxySettings
    from streaming.collect.settings import BacklogSettings
    from streaming.contract.namespaces import Namespaces
    from weir.collect.kafka import serve

    collect = read_settings(CollectSettings, "collect", args.settings)
    backlog = read_settings(BacklogSettings, "backlog", args.settings)
    if not (collect.quotas_from_kafka or backlog.enabled):
        raise _nothing_to_do(args.settings, "so is collect.quotas_from_kafka")
    namespaces = Namespaces(read_settings(ProxySettings, "proxy", args.settings).namespace_pattern)
    cluster = cluster_of(args, "collect_kafka")
    log_to_stderr("collect")
    # Its errors come as ours, one line a round; its own lines would repeat each of them.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    run_in_loop(serve(args, collect, backlog, namespaces, cluster))
    return 0
