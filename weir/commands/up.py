"""`weir up`: the whole stack in the foreground (docs/contract.md 4)."""

import argparse
from pathlib import Path

from weir.foreground import host_port, http_url
from weir.settings import DEFAULT_LISTEN, DEFAULT_PULSAR_LISTEN
from weir.stack.local import LOCAL

DEFAULT_ADMIN = "127.0.0.1:18080"
DEFAULT_METRICS = "127.0.0.1:19100"


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "up",
        help="run the whole stack in the foreground",
        description="Start a local Kafka (unless --kafka names a cluster), the Spark job, the Kafka proxy "
        "and the admin API, and keep them running until Ctrl-C. Point clients at the address of the proxy. "
        "With --pulsar there is a proxy of Pulsar's binary protocol, too.",
    )
    add_stack_options(parser)
    parser.add_argument("--policies", metavar="FILE", help="published first (default: those in force stay)")
    parser.set_defaults(run=run)


def add_stack_options(parser: argparse.ArgumentParser) -> None:
    """The options that `weir up` and `weir demo` share."""
    parser.add_argument("--kafka", metavar="HOST:PORT", help="use this cluster instead of a local one")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=host_port,
        default=DEFAULT_LISTEN,
        help="of the proxy; brokers get the ports after it; port 0 = any free one (default: %(default)s)",
    )
    parser.add_argument(
        "--admin",
        metavar="HOST:PORT",
        type=host_port,
        default=DEFAULT_ADMIN,
        help="of the admin API; port 0 = any free one (default: %(default)s)",
    )
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        type=host_port,
        default=DEFAULT_METRICS,
        help="Prometheus text of all parts on /metrics (default: %(default)s)",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        default=Path(".weir/data"),
        help="Kafka's data, checkpoints and logs (default: %(default)s)",
    )
    parser.add_argument(
        "--ready-file", metavar="FILE", type=Path, help="written as JSON when a probe was decided end to end"
    )
    _add_pulsar_options(parser)
    parser.add_argument("--settings", metavar="FILE", help="settings file, such as conf/weir.yaml")
    parser.add_argument("--restart", action="store_true", help="restart a part that ends by itself")


def _add_pulsar_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pulsar",
        metavar="HOST:PORT",
        type=pulsar_service,
        help="run a proxy in front of this Pulsar; `local` starts one, and fetches it the first time",
    )
    parser.add_argument(
        "--pulsar-admin",
        metavar="URL",
        type=http_url,
        help="Pulsar's own admin API, which gets what Weir does not answer (default: the local Pulsar's)",
    )
    parser.add_argument(
        "--pulsar-listen",
        metavar="HOST:PORT",
        type=host_port,
        default=DEFAULT_PULSAR_LISTEN,
        help="of the proxy for Pulsar's clients; port 0 = any free one (default: %(default)s)",
    )


def pulsar_service(text: str) -> str:
    """`HOST:PORT` or `local`; for argparse, so it raises ValueError on anything else."""
    return text if text == LOCAL else "{}:{}".format(*host_port(text))


# argparse names a type by this in its message.
pulsar_service.__name__ = "HOST:PORT or local"


def run(args: argparse.Namespace) -> int:
    """Run the stack until a signal; raises ConfigError or WeirError (see `serve`)."""
    # Here and not above: `weir --help` must not load a Kafka client.
    from weir.stack.serve import serve

    return serve(args, args.policies)
