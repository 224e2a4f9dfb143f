"""`weir kafka`: a local Kafka broker in the foreground."""

import argparse
from pathlib import Path

from weir.commands.local.serving import serve
from weir.settings import LOCAL_KAFKA_PORT
from weir.stack.kafka import HOST, KEPT, LocalKafka


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "kafka",
        help="run a local Kafka broker in the foreground",
        description="Run one KRaft broker until Ctrl-C. Its data stay.",
    )
    parser.add_argument(
        "--data", type=Path, default=Path(".weir/data/kafka"), help="folder (default: %(default)s)"
    )
    parser.add_argument(
        "--port", type=int, default=LOCAL_KAFKA_PORT, help="0 = any free one (default: %(default)s)"
    )
    parser.add_argument(
        "--listen",
        metavar="HOST",
        default=HOST,
        help="address for clients, who need no login; 0.0.0.0 lets other machines in (default: %(default)s)",
    )
    parser.add_argument(
        "--advertise", metavar="HOST", help=f"host that clients are told to connect to (default: {HOST})"
    )
    parser.add_argument("--auto-create", action="store_true", help="auto.create.topics.enable=true")
    parser.add_argument(
        "--property", action="append", default=[], metavar="NAME=VALUE", help="a further broker property"
    )
    parser.add_argument("--ready-file", type=Path, help="written as JSON {kafka, pid} when it takes requests")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Start, wait for a signal, stop; raises WeirError when the broker fails."""
    properties = dict(entry.partition("=")[::2] for entry in args.property)
    kafka = LocalKafka(
        args.data,
        port=args.port,
        listen=args.listen,
        advertise=args.advertise,
        auto_create_topics=args.auto_create,
        properties=properties,
    )
    return serve(
        kafka,
        "Kafka",
        KEPT,
        ready=lambda: f"kafka is ready on {kafka.bootstrap}",
        described=lambda: {"kafka": kafka.bootstrap, "pid": kafka.pids[0]},
        ready_file=args.ready_file,
    )
