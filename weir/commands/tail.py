"""`weir tail`: follow the decisions, as aligned lines or as they are."""

import argparse

from weir.foreground import StopSignal, unless_interrupted
from weir.logs.times import BEGINNING_MS, EXPECTED
from weir.options import add, add_cluster_options, add_flag, cluster_of, time_argument

TYPES = ("admission", "share", "dispatch", "limit", "backlog", "backlog_action")
"""What stands on the topic of decisions."""
DESCRIPTION = "Print decisions as they are made, until Ctrl-C. Times are UTC."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_cluster_options(parser)
    def start(text: str) -> int | None:
        return None if text == "end" else time_argument(text)

    add(parser, "--from", f"{EXPECTED} (default end)", dest="start", default="end", type=start,
        metavar="TIME")  # fmt: skip
    subject = "only decisions about: user=alice, GROUP/BROKER, TOPIC/SUBSCRIPTION, PARTITION or TOPIC"
    add(parser, "--subject", subject)
    kinds = "only this type; backlog_action: what was done about a backlog"
    add(parser, "--type", kinds, choices=TYPES)
    add_flag(parser, "--repeats", "show standing decisions that are only said again, too")
    add_flag(parser, "--probes", "show what proxies ask to see if the job decides, too")
    add_flag(parser, "--json", "print the records as they are, one per line")


def run(args: argparse.Namespace) -> int:
    """Follow until a signal; raises WeirError if the cluster does not answer or has no decisions topic."""
    # Here and not above: `weir --help` must not load a Kafka client, nor the laws.
    from weir.logs.tail_lines import render
    from weir.logs.topic_reader import TopicReader

    cluster = cluster_of(args)
    stop = StopSignal().install()
    reader = TopicReader(cluster.bootstrap, cluster.client)
    topic, start = cluster.topics.decisions, args.start or BEGINNING_MS
    chosen = {"subject": args.subject, "kind": args.type, "repeats": args.repeats, "probes": args.probes}
    with unless_interrupted(reader.close):
        spans = stop.unless(lambda: reader.spans(topic, start, None))
        if args.start is None:
            spans = [span.at_end() for span in spans]
        for batch in reader.follow(spans):
            for record in batch:
                line = render(record.value, as_json=args.json, **chosen)
                if line is not None:
                    print(line, flush=True)
            if stop.asked:
                break
    return 0
