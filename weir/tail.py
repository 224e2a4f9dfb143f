"""`weir tail`: follow the decisions, as aligned lines or as they are."""

import argparse
from typing import Any

import orjson

from weir.common_args import add_cluster_options, cluster_of, time_argument
from weir.foreground import StopSignal
from weir.times import BEGINNING_MS, EXPECTED, clock

SUBJECT_WIDTH = 34


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "tail",
        help="follow the decisions",
        description="Print decisions as they are made, until Ctrl-C. Times are UTC.",
    )
    add_cluster_options(parser)
    parser.add_argument(
        "--from",
        dest="start",
        default="end",
        type=lambda text: None if text == "end" else time_argument(text),
        metavar="TIME",
        help=f"end (default), or {EXPECTED}",
    )
    parser.add_argument("--subject", help="only decisions of this subject, such as user=alice")
    parser.add_argument("--type", help="only decisions of this type, such as admission")
    parser.add_argument("--json", action="store_true", help="print the records as they are, one per line")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Follow until a signal; raises WeirError if the cluster does not answer or has no decisions topic."""
    # Here and not above: `weir --help` must not load a Kafka client.
    from weir.reading import Record, TopicReader

    cluster = cluster_of(args)
    stop = StopSignal()
    stop.install()
    reader = TopicReader(cluster.bootstrap, cluster.client)

    def show(record: Record) -> None:
        line = render(record.value, as_json=args.json, subject=args.subject, kind=args.type)
        if line is not None:
            print(line, flush=True)

    try:
        spans = reader.spans(cluster.topics.decisions, args.start or BEGINNING_MS, None)
        if args.start is None:
            spans = [span.at_end() for span in spans]
        for batch in reader.follow(spans):
            for record in batch:
                show(record)
            if stop.requested:
                break
    finally:
        reader.close()
    return 0


def render(value: bytes, *, as_json: bool, subject: str | None, kind: str | None) -> str | None:
    """One decision as a line; None if the filters leave it out.

    A record that is no JSON object is shown as it is, unless a filter is set: it has no subject.
    """
    try:
        decision = orjson.loads(value)
    except orjson.JSONDecodeError:
        decision = None
    if not isinstance(decision, dict):
        return None if subject or kind else value.decode("utf-8", "replace")
    if subject is not None and decision.get("subject") != subject:
        return None
    if kind is not None and decision.get("type") != kind:
        return None
    return value.decode("utf-8", "replace") if as_json else describe(decision)


def describe(decision: dict[str, Any]) -> str:
    """A decision for people: time, outcome, subject, balance, and why."""
    ts = decision.get("ts")
    when = clock(ts) if isinstance(ts, int) and not isinstance(ts, bool) else "?"
    if decision.get("type") != "admission":
        rest = {key: value for key, value in decision.items() if key not in ("type", "ts")}
        return f"{when}  {decision.get('type', '?')!s:<9} {orjson.dumps(rest).decode()}"
    subject = str(decision.get("subject") or "(no quota)")
    parts = [f"{when}  {decision.get('outcome', '?')!s:<9} {subject:<{SUBJECT_WIDTH}}", _balance(decision)]
    if decision.get("throttle_time_ms"):
        parts.append(f"wait {decision['throttle_time_ms']} ms")
    if decision.get("rejected"):
        parts.append("rejected " + ",".join(_names(decision["rejected"])))
    parts += [flag for flag in ("late", "shadow", "repeat") if decision.get(flag) is True]
    parts.append(f"[{decision.get('id', '?')}]")
    return "  ".join(part for part in parts if part)


def _balance(decision: dict[str, Any]) -> str:
    limit = decision.get("limit")
    if limit is None:
        return f"{'':24}"
    if "tokens" in decision:
        text = f"tokens {decision['tokens']:>8.1f} at {limit:g}/s"
    else:
        text = f"rate {decision.get('rate', 0.0):>10.2f} of {limit:g}/s"
    return f"{text:<24}"


def _names(rejected: list[Any]) -> list[str]:
    return [str(name) for name in rejected]
