"""`weir kafka`: a local Kafka broker in the foreground."""

import argparse
from pathlib import Path

from streaming.contract.topics import bare_host
from weir.commands.local.foreground import add_local_options, serve
from weir.options import add, add_flag, port_number
from weir.settings import LOCAL_KAFKA_PORT
from weir.stack.kafka import HOST, KEPT, LocalKafka

DESCRIPTION = "Run one KRaft broker until Ctrl-C. Its data stay."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_local_options(parser, Path(".weir/data/kafka"), "{kafka, pid} when it takes requests")
    port = "0 = any free one (default: %(default)s)"
    add(parser, "--port", port, metavar="N", type=port_number, default=LOCAL_KAFKA_PORT)
    listen = "address for clients, who need no login; 0.0.0.0 lets other machines in (default: %(default)s)"
    add(parser, "--listen", listen, metavar="HOST", default=HOST)
    told = f"host that clients are told to connect to (default: of --listen; with 0.0.0.0 {HOST})"
    add(parser, "--advertise", told, metavar="HOST", type=bare_host)
    add_flag(parser, "--auto-create", "auto.create.topics.enable=true")


def run(args: argparse.Namespace) -> int:
    """Start, wait for a signal, stop; raises WeirError when the broker fails."""
    kafka = LocalKafka(
        args.data, port=args.port, listen=args.listen, advertise=args.advertise,
        auto_create_topics=args.auto_create, properties=dict(args.property),
    )  # fmt: skip
    address = args.listen, args.port
    return serve(kafka, KEPT, address, args.ready_file, kafka.bootstrap, {"kafka": kafka.bootstrap})
