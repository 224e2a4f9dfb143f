"""`weir replay`: what would have been decided, from event files or topics (docs/contract.md 4)."""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import orjson

from weir.foreground import terminated_as_interrupted
from weir.log import teller, unusable
from weir.logs.events_read import add_events_options, events_read
from weir.options import add, add_flag, number, whole
from weir.paths import check_files

if TYPE_CHECKING:
    from streaming.replay import ReplayResult

_say = teller("weir")
_NEW_REFUSED_MAX, _ADDED_DELAY_MAX_S = 10**12, 1e9
DESCRIPTION = (
    "Decides the events of files, or of a cluster's topics, under the policies of a file and"
    " of the log itself. Both engines write the same bytes: `local` in this process, `spark` with the"
    " live job's query."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    file: dict[str, Any] = {"metavar": "FILE"}
    add(parser, "--policies", "policies in force at the start", required=True, **file)
    add_events_options(parser)
    add(parser, "--out", "decisions, sorted by (ts, type, id)", required=True, **file)
    add(parser, "--dead-letters", "lines that could not be used, with the reason", **file)
    add(parser, "--engine", "default: local", choices=("local", "spark"), default="local")
    decided = "keep what proxies have decided, as the live job does; without it all is decided anew"
    add_flag(parser, "--as-decided", decided)
    add(parser, "--summary", "totals per subject, as JSON", **file)
    recorded = "what was decided, which must come out again; implies --as-decided"
    add(parser, "--decisions", recorded, nargs="+", default=[], **file)
    _add_plan(parser)


def _add_plan(parser: argparse.ArgumentParser) -> None:
    other = parser.add_argument_group("other policies on the same log")
    add(other, "--against", "say what would have differed under these", nargs="+", default=[], metavar="FILE")
    add(other, "--report", "a page of it, HTML", metavar="FILE")
    refused = "exit status 1 if more than so many are refused that were let through"
    add(other, "--max-new-refused", refused, type=whole(0, _NEW_REFUSED_MAX), metavar="N")
    delay = "exit status 1 if any decision's delay grows by more than so many seconds"
    add(other, "--max-added-delay", delay, type=number(0, _ADDED_DELAY_MAX_S), metavar="S")


@terminated_as_interrupted()
def run(args: argparse.Namespace) -> int:
    """Replay the events.

    Raises:
        ConfigError: policies are wrong.
        WeirError: a file or the cluster cannot be read, a file cannot be written, or the log does not give
            the decisions recorded.
    """
    _check_usage(args)
    written = args.out, args.dead_letters, args.summary, args.report
    read = args.events, args.decisions, args.against
    check_files(written, (args.policies, *(file for files in read for file in files or ())))
    with events_read(args) as args.events:
        return _plan(args) if args.against else _replay(args)


def _replay(args: argparse.Namespace) -> int:
    # Imported here: the laws load Numba, which `weir --help` need not wait for.
    from streaming.replay import summarise

    with _replayed(args) as replayed:
        if args.decisions:
            from weir.plan.identity import prove

            proven = prove(args.decisions, replayed.decisions, args.out)
            _say(f"{proven} recorded decisions came out again")
        totals = None if args.summary is None else summarise(replayed.decisions)
        _write(args, replayed)
        if totals is not None:
            _write_json(args.summary, totals)
    return 0


def _check_usage(args: argparse.Namespace) -> None:
    """Bad usage if options do not go together."""
    args.as_decided |= bool(args.decisions)
    if args.against and args.engine == "spark":
        args.usage_error("--against compares in this process, in constant memory: leave --engine out")
    bounds = (args.report, args.max_new_refused, args.max_added_delay)
    if not args.against and any(given is not None for given in bounds):
        args.usage_error("--report, --max-new-refused and --max-added-delay need --against POLICIES")


@contextmanager
def _replayed(args: argparse.Namespace) -> "Iterator[ReplayResult]":
    if args.engine == "local":
        from streaming.replay import replaying
        from weir.plan.progress import Progress

        with ExitStack() as held:
            with Progress() as progress:
                replayed = held.enter_context(replaying(
                    args.policies, args.events, as_decided=args.as_decided, near=args.out, tell=progress.tell
                ))  # fmt: skip
            yield replayed
        return
    from streaming.job.replay import replay_spark
    from streaming.job.spark.settings import JobSettings
    from streaming.policy.settings import read_settings
    from weir.jars.folders import jars_dir

    yield replay_spark(
        args.policies, args.events, jars=jars_dir("spark"), as_decided=args.as_decided, near=args.out,
        given=read_settings(JobSettings, "job", args.settings),
    )  # fmt: skip


def _plan(args: argparse.Namespace) -> int:
    """Try the other policies, show what would have differed, and judge it."""
    from weir.plan.run import objections, plan
    from weir.plan.shown.page import write_page
    from weir.plan.shown.summary import summary
    from weir.plan.shown.table import show

    with plan(
        args.policies, args.events, args.against, args.decisions,
        as_decided=args.as_decided, totals=args.summary is not None, near=args.out,
    ) as planned:  # fmt: skip
        _write(args, planned.replayed)
    if args.summary is not None:
        _write_json(args.summary, summary(planned.plans, planned.proven))
    if args.report is not None:
        write_page(args.report, planned)
    with suppress(BrokenPipeError):
        # Who has read enough of the table (`| head`) is told all the same that a bound does not hold.
        show(planned)
    bounds = args.max_new_refused, args.max_added_delay
    wrong = [objection for each in planned.plans for objection in objections(each, *bounds)]
    for objection in wrong:
        _say(objection)
    return 1 if wrong else 0


def _write(args: argparse.Namespace, replayed: "ReplayResult") -> None:
    replayed.write(args.out, args.dead_letters)
    _say(f"{len(replayed.decisions)} decisions written to {args.out}")
    if len(replayed.dead_letters):
        _say(unusable(len(replayed.dead_letters), args.dead_letters))


def _write_json(file: str, value: Any) -> None:
    from streaming.log.writing import write_lines

    write_lines(file, [orjson.dumps(value, option=orjson.OPT_INDENT_2)])
