"""`weir kafka`: a local Kafka broker in the foreground."""

import argparse
import sys
from pathlib import Path

from streaming.contract.errors import WeirError
from weir.foreground import StopSignal, private_folder, write_ready_file
from weir.settings import LOCAL_KAFKA_PORT
from weir.stack.kafka import KEPT, LocalKafka

_CHECK_S = 0.5


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "kafka",
        help="run a local Kafka broker in the foreground",
        description="Run one KRaft broker on the loopback address until Ctrl-C. Its data stay.",
    )
    parser.add_argument(
        "--data", type=Path, default=Path(".weir/data/kafka"), help="folder (default: %(default)s)"
    )
    parser.add_argument(
        "--port", type=int, default=LOCAL_KAFKA_PORT, help="0 = any free one (default: %(default)s)"
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
    kafka = LocalKafka(args.data, port=args.port, auto_create_topics=args.auto_create, properties=properties)
    stop = StopSignal(force=lambda: kafka.kill())
    stop.install()
    warning = private_folder(args.data, KEPT)
    if warning:
        print(f"weir: {warning}", file=sys.stderr)
    print(f"starting Kafka in {args.data} ...", flush=True)
    with kafka:
        print(f"kafka is ready on {kafka.bootstrap}; Ctrl-C stops it", flush=True)
        if args.ready_file:
            write_ready_file(args.ready_file, {"kafka": kafka.bootstrap, "pid": kafka.pids[0]})
        while not stop.wait(_CHECK_S):
            for broker in kafka.children:
                if not broker.alive():
                    raise WeirError(f"{broker.name} ended: " + " | ".join(broker.last_lines(5)))
    return 0
