"""`weir import`: what brokers have logged of their clients, as events that replay (docs/contract.md 4)."""

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from weir.foreground import terminated_as_interrupted
from weir.log import teller
from weir.options import add, whole
from weir.paths import check_files

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from weir.imports.run import Source

_say = teller("import")
_PERIOD_MAX_S = 86_400
_PARTITIONS_MAX = 2**31 - 1
DESCRIPTION = (
    "Turn logs that brokers write into events for `weir replay`. Files may be given in any"
    " order; names that end with .gz are unpacked."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its commands."""
    kinds = parser.add_subparsers(title="logs", metavar="LOG", dest="log", required=True)
    _add_kafka(kinds)
    _add_pulsar(kinds)


def _add(
    kinds: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, help: str, description: str
) -> argparse.ArgumentParser:
    parser = kinds.add_parser(name, help=help, description=description)
    file: dict[str, Any] = {"metavar": "FILE"}
    parser.add_argument("files", nargs="+", help="the logs", **file)
    add(parser, "--out", "events; FILE.gz is compressed", required=True, **file)
    add(parser, "--dead-letters", "lines that could not be used, with the reason", **file)
    return parser


def _add_kafka(kinds: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add(
        kinds,
        "kafka-request-log",
        help="Kafka's request log (kafka.request.logger at DEBUG)",
        description="CreateTopics, CreatePartitions and DeleteTopics become requests, Produce and Fetch"
        " reports of bytes by broker and period. See docs/import.md for what the log does not say.",
    )
    add(
        parser, "--timezone", "of the times in the log, such as Europe/Berlin (default: UTC)",
        type=_zone, default="UTC", metavar="NAME",
    )  # fmt: skip
    add(
        parser, "--period", "seconds that a report of bytes covers (default: 60)",
        type=whole(1, _PERIOD_MAX_S), default=60, metavar="S",
    )  # fmt: skip
    of_user = "the group quota/user=NAME of each user"
    add(parser, "--policies", f"say whose bytes are counted for which group; without them: {of_user}",
        metavar="FILE")  # fmt: skip
    add(parser, "--settings", "settings file: proxy.namespace_pattern says how topics are named",
        metavar="FILE")  # fmt: skip
    parser.set_defaults(run=partial(_run, _kafka))


def _add_pulsar(kinds: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add(
        kinds,
        "pulsar-access-log",
        help="Pulsar's log of its admin API (org.eclipse.jetty.server.RequestLog at INFO)",
        description="Creations, changes and deletions of topics become requests. The log does not say how"
        " many partitions: see --partitions and docs/import.md.",
    )
    add(
        parser, "--partitions", "to count where the log does not say how many (default: 1)",
        type=whole(1, _PARTITIONS_MAX), default=1, metavar="N",
    )  # fmt: skip
    parser.set_defaults(run=partial(_run, _pulsar))


@terminated_as_interrupted()
def _run(source: Any, args: argparse.Namespace) -> int:
    """Import; raises ConfigError for wrong policies or settings, WeirError for files."""
    # Here and not above: what writes events loads the laws, which `weir --help` need not wait for.
    from weir.imports.run import run_import

    check_files((args.out, args.dead_letters), (*args.files, getattr(args, "policies", None)))
    run_import(source(args), args.files, args.out, args.dead_letters, _say)
    return 0


def _kafka(args: argparse.Namespace) -> "Source":
    from enforcer.core.settings import ProxySettings
    from streaming.contract.namespaces import Namespaces
    from streaming.policy.files import load_policies
    from streaming.policy.policy_set import PolicySet
    from streaming.policy.settings import read_settings
    from weir.imports.kafka_request_log import KafkaRequestLog

    policies = None if args.policies is None else PolicySet(load_policies(args.policies))
    pattern = read_settings(ProxySettings, "proxy", args.settings).namespace_pattern
    return KafkaRequestLog(args.timezone, args.period * 1000, policies, Namespaces(pattern))


def _pulsar(args: argparse.Namespace) -> "Source":
    from weir.imports.pulsar_access_log import PulsarAccessLog

    return PulsarAccessLog(args.partitions)


def _zone(name: str) -> "ZoneInfo":
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, ZoneInfoNotFoundError):
        # Also what is no name at all, or a path.
        raise argparse.ArgumentTypeError(f"{name!r} is no time zone; expected UTC or Europe/Berlin") from None
