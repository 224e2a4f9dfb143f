"""`weir replay`: what would have been decided, from event files or topics (docs/contract.md 4)."""

import argparse
import sys
from typing import Any

import orjson

from weir.logs.events_read import add_events_options, events_read
from weir.options import add, add_flag
from weir.paths import check_writable


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "replay",
        help="decide event files or topics again",
        description="Decides the events of files, or of a cluster's topics, under the policies of a file and"
        " of the log itself. Both engines write the same bytes: `local` in this process, `spark` with the"
        " live job's query.",
    )
    file: dict[str, Any] = {"metavar": "FILE"}
    add(parser, "--policies", "policies in force at the start", required=True, **file)
    add_events_options(parser)
    add(parser, "--out", "decisions, sorted by (ts, type, id)", required=True, **file)
    add(parser, "--dead-letters", "lines that could not be used, with the reason", **file)
    add(parser, "--engine", "default: local", choices=("local", "spark"), default="local")
    decided = "keep what proxies have decided, as the live job does; without it all is decided anew"
    add_flag(parser, "--as-decided", decided)
    add(parser, "--summary", "totals per subject, as JSON", **file)
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Replay the events; raises ConfigError for wrong policies, WeirError for files and the cluster."""
    for file in (args.out, args.dead_letters, args.summary):
        if file is not None:
            check_writable(file)
    with events_read(args) as args.events:
        return _replay(args)


def _replay(args: argparse.Namespace) -> int:
    # Imported here: the laws load Numba, which `weir --help` need not wait for.
    from streaming.replay import replay_local, summarise, write_lines

    if args.engine == "spark":
        from streaming.job.replay import replay_spark
        from weir.jars.folders import jars_dir

        replayed = replay_spark(
            args.policies, args.events, jars=jars_dir("spark"), as_decided=args.as_decided
        )
    else:
        replayed = replay_local(args.policies, args.events, as_decided=args.as_decided)
    write_lines(args.out, replayed.decisions)
    if args.dead_letters is not None:
        write_lines(args.dead_letters, replayed.dead_letters)
    if args.summary is not None:
        summary = orjson.dumps(summarise(replayed.decisions), option=orjson.OPT_INDENT_2)
        write_lines(args.summary, [summary])
    print(f"{len(replayed.decisions)} decisions written to {args.out}", file=sys.stderr)
    if replayed.dead_letters:
        where = args.dead_letters or "nowhere; name a file with --dead-letters to see them"
        print(f"{len(replayed.dead_letters)} lines could not be used, written to {where}", file=sys.stderr)
    return 0
