"""`weir send`: publish event files to the topics, as fast as they were recorded, faster, or at once."""

import argparse
import signal
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from weir.foreground import StopSignal
from weir.log import teller
from weir.logs.times import wall_ms
from weir.options import add, add_cluster_options, add_flag, cluster_of, number
from weir.paths import check_readable

if TYPE_CHECKING:
    from weir.logs.send_lines import Addresser
    from weir.logs.sender import Sender

_say = teller("send")
_SLOWEST = 1e-9
"""A second of the recording takes decades; doubles hold what a day of it takes."""
EPILOG = """\
Times. Policies and rounds belong to the time in which they are in force, and a running job has seen that
time pass: so by default all times in the events are moved so that the recording begins now (--now), to the
next round of resource groups, which keeps every event's place in its round and second. --keep-times leaves
them: for events that were made for this hour, or to see what happens with old ones. What lies more than a
minute (job.max_ahead_ms) after the moment at which it is sent, as with --at-once or --speed it may, becomes a
dead letter.

The limits are those of the running system: `weir policy apply FILE` publishes a file's policies to it.
Exit status: 0 all was delivered, 1 some was not or Ctrl-C came first, 2 bad usage. Lines that are not valid
events are sent as they are; the job writes a dead letter for each.
"""
DESCRIPTION = (
    "Publish event files (.jsonl, .jsonl.gz, .parquet) to the topics that the job reads, in the order\n"
    "of their times, each event when its time comes."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="events, one JSON object a line")
    add_cluster_options(parser)
    pace = parser.add_mutually_exclusive_group()
    speed = number(_SLOWEST, sys.float_info.max)
    add(pace, "--speed", "N times as fast as recorded", type=speed, default=1.0, metavar="N")
    add_flag(pace, "--at-once", "as fast as the cluster takes them")
    times = parser.add_mutually_exclusive_group()
    add_flag(times, "--now", "move all times so that the first is now (default)")
    add_flag(times, "--keep-times", "send the times as they were recorded")


def run(args: argparse.Namespace) -> int:
    """Send the files; raises WeirError if the cluster does not answer or a file cannot be read."""
    # Here and not above: `weir --help` must not load a Kafka client, nor the laws.
    from streaming.kafka_io.policy_topic import read_policies
    from weir.logs.send_lines import Addresser, recorded
    from weir.logs.sender import Pace, Sender, producer_for, send

    cluster = cluster_of(args)
    for file in args.files:
        check_readable(file)
    # A pipe that gives nothing holds up the first Ctrl-C.
    stop = StopSignal(lambda: signal.default_int_handler(signal.SIGINT, None)).install()
    log = stop.unless(partial(read_policies, cluster))
    addresser = Addresser(topics=cluster.topics, log=log, now_ms=wall_ms())
    sender = Sender(producer_for(cluster), progress=_say)
    pace = None if args.at_once else Pace(factor=args.speed, wait=stop.wait, now_s=time.time)
    finished = send(
        recorded(args.files), addresser, sender, pace, keep_times=args.keep_times, stopped=lambda: stop.asked
    )
    return _report(sender, addresser, finished)


def _report(sender: "Sender", addresser: "Addresser", finished: bool) -> int:
    counts = [f"{topic} {count}" for topic, count in sorted(sender.delivered.items())]
    _say(f"{'done' if finished else 'stopped'}: {', '.join(counts) or 'nothing'} delivered")
    if addresser.invalid:
        _say(f"{addresser.invalid} lines are no valid events, sent as they are; {addresser.first_invalid}")
    if sender.failed:
        _say(f"{sender.failed} records were not delivered: {sender.failure}")
    return 0 if finished and not sender.failed else 1
