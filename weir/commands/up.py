"""`weir up`: the whole stack in the foreground (docs/contract.md 4)."""

import argparse
from pathlib import Path

from streaming.contract.topics import address_text
from weir.foreground import host_port, http_url
from weir.options import add, add_address, add_file, add_flag
from weir.settings import DEFAULT_ADMIN, DEFAULT_LISTEN, DEFAULT_METRICS, DEFAULT_PULSAR_LISTEN
from weir.stack.local import LOCAL

DESCRIPTION = (
    "Start a local Kafka (unless --kafka names a cluster), the Spark job, the Kafka proxy "
    "and the admin API, and keep them running until Ctrl-C. Point clients at the address of the proxy. "
    "With --pulsar there is a proxy of Pulsar's binary protocol, too."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_stack_options(parser)
    parser.add_argument("--policies", metavar="FILE", help="published first (default: those in force stay)")


def add_stack_options(parser: argparse.ArgumentParser) -> None:
    """The options that `weir up` and `weir demo` share."""
    add(parser, "--kafka", "use this cluster instead of a local one", metavar="HOST:PORT")
    of_proxy = "of the proxy; brokers get the ports after it; port 0 = any free one (default: %(default)s)"
    add_address(parser, "--listen", of_proxy, default=DEFAULT_LISTEN)
    of_admin = "of the admin API; port 0 = any free one (default: %(default)s)"
    add_address(parser, "--admin", of_admin, default=DEFAULT_ADMIN)
    metrics = "Prometheus text of all parts on /metrics (default: %(default)s)"
    add_address(parser, "--metrics", metrics, default=DEFAULT_METRICS)
    data = "Kafka's data, checkpoints and logs (default: %(default)s)"
    add_file(parser, "--data", data, metavar="DIR", default=Path(".weir/data"))
    add_file(parser, "--ready-file", "written as JSON when a probe was decided end to end")
    pulsar = "run a proxy in front of this Pulsar (several with commas); `local` starts one, fetched once"
    add(parser, "--pulsar", pulsar, metavar="HOST:PORT", type=pulsar_service)
    own = "Pulsar's own admin API, which gets what Weir does not answer (default: the local Pulsar's)"
    add(parser, "--pulsar-admin", own, metavar="URL", type=http_url)
    of_pulsar = "of the proxy for Pulsar's clients; port 0 = any free one (default: %(default)s)"
    add_address(parser, "--pulsar-listen", of_pulsar, default=DEFAULT_PULSAR_LISTEN)
    add(parser, "--settings", "settings file, such as conf/weir.yaml", metavar="FILE")
    add_flag(parser, "--restart", "restart a part that ends by itself")


def pulsar_service(text: str) -> str:
    """`HOST:PORT`, several with commas, or `local`; for argparse: raises ValueError on anything else."""
    places = text.removeprefix("pulsar://").split(",")
    return text if text == LOCAL else ",".join(address_text(*host_port(each)) for each in places)


# argparse names a type by this in its message.
pulsar_service.__name__ = "HOST:PORT or local"


def run(args: argparse.Namespace) -> int:
    """Run the stack until a signal; raises ConfigError or WeirError (see `serve`)."""
    # Here and not above: `weir --help` must not load a Kafka client.
    from weir.stack.serve import serve

    return serve(args, args.policies)
