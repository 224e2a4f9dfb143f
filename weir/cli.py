"""The command `weir`: finds the subcommand's module, runs it, turns errors into an exit status."""

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from io import TextIOWrapper

from streaming.contract.errors import ConfigError, TakenOver, WeirError
from streaming.contract.printable import printable, printable_lines

DONE, FAILED, BAD_USAGE, TAKEN_OVER = 0, 1, 2, 3
_TIME_OPTIONS = ("--from", "--to", "--at")
_RELATIVE_TIME = re.compile(r"-\d.*")
# Command -> its module, and what --help says of it, in this order. A module has `add_options(parser)`,
# `run(args)` or commands that have one, and where there is more to say DESCRIPTION and EPILOG.
COMMANDS = {
    "setup": ("weir.commands.local.setup", "fetch the jars and prepare this machine"),
    "up": ("weir.commands.up", "run the whole stack in the foreground"),
    "demo": ("weir.commands.demo", "the stack with a short real workload and a live table of decisions"),
    "top": ("weir.top.command", "who uses most of its limit, waits or is refused"),
    "explain": ("weir.explain.command", "say why a request was decided as it was"),
    "tail": ("weir.commands.tail", "follow the decisions"),
    "backlog": ("weir.commands.backlog", "topics by how near they are to their backlog quotas"),
    "bill": ("weir.bill.command", "what each tenant used: bytes, partitions, storage, time throttled"),
    "send": ("weir.commands.send", "publish event files"),
    "policy": ("weir.commands.policy", "check, explain, apply and show policies"),
    "dump": ("weir.commands.dump", "write the topics as event files that replay by themselves"),
    "import": ("weir.imports.command", "brokers' own logs of requests as event files"),
    "replay": ("weir.commands.replay", "decide event files or topics again, under other policies too"),
    "propose": ("weir.propose.command", "limits for everybody from event files or topics"),
    "simulate": ("weir.simulate.command", "try limits in a simulation before choosing them"),
    "kafka": ("weir.commands.local.kafka", "run a local Kafka broker in the foreground"),
    "pulsar": ("weir.commands.local.pulsar", "run a local Pulsar in the foreground"),
    "job": ("weir.commands.job", "run the Spark job"),
    "state": ("weir.commands.local.state", "what a checkpoint of the job holds"),
    "proxy": ("weir.commands.proxy", "run the Kafka or the Pulsar proxy"),
    "admin": ("weir.commands.admin", "run the admin API"),
    "collect": (
        "weir.commands.collect",
        "look after backlogs; publish Kafka's own quotas, or meter a Pulsar cluster and set its limits",
    ),
    "healthy": ("weir.commands.local.healthy", "ask a part on this machine whether it is well"),
    "doctor": ("weir.doctor.command", "what is open or wrong, and what mends it"),
}


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """The parser, with one subcommand only if `command` names one.

    Every module stays unloaded but the one that is asked for: `weir --version` must not wait for
    another command's imports.
    """
    parser = argparse.ArgumentParser(
        prog="weir",
        description="Quotas for Kafka and Pulsar, decided in a stream and enforced on real clients.",
        epilog="Exit status: 0 done, 1 the work failed, 2 bad usage, policy or configuration,"
        " 3 another collector has taken over.",
    )
    parser.add_argument("--version", action="version", version=f"weir {version('weir')}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name in (command,) if command and command in COMMANDS else COMMANDS:
        _add(subparsers, name, *COMMANDS[name])
    return parser


def _add(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, module: str, meaning: str
) -> None:
    found = import_module(module)
    about, epilog = getattr(found, "DESCRIPTION", None), getattr(found, "EPILOG", "")
    # What has lines of its own is shown as it stands.
    form = argparse.RawDescriptionHelpFormatter if "\n" in epilog else argparse.HelpFormatter
    parser = subparsers.add_parser(name, help=meaning, description=about, epilog=epilog, formatter_class=form)
    parser.set_defaults(run=getattr(found, "run", None), usage_error=parser.error)
    found.add_options(parser)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status (docs/contract.md 4)."""
    _take_streams()
    words = joined_times(sys.argv[1:] if argv is None else argv)
    # --version needs no command at all, and none is loaded for it.
    first = "up" if "--version" in words[:1] else next(iter(words), None)
    status = DONE
    try:
        args = build_parser(first).parse_args(words)
        status = args.run(args)
        print(end="", flush=True)
    except ConfigError as error:
        _say("\n".join(printable(str(problem)) for problem in error.problems))
        status = BAD_USAGE
    except WeirError as error:
        _say(printable_lines(f"weir: {error}"))
        status = TAKEN_OVER if isinstance(error, TakenOver) else FAILED
    except BrokenPipeError:
        # The reader of our output went away (`weir tail | head`).
        pass
    except OSError as error:
        # Of a file, mostly: what a command does not expect of its surroundings is no defect of ours.
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        _say(printable_lines(f"weir: {where}{error.strerror or error}"))
        status = FAILED
    except KeyboardInterrupt:
        _say("weir: interrupted")
        status = FAILED
    finally:
        _give_up_unwritten()
    return status


def _take_streams() -> None:
    """Have all three, whoever has closed some (`>&-`), and names of any letters in any locale.

    Without, a file that is opened later would be what libraries write errors to, and what is for stderr would
    go to stdout.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # As the others, until the end.
            setattr(sys, name, open(os.devnull, "r+", errors="backslashreplace"))  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding=None if sys.stdout.isatty() else "utf-8", errors="backslashreplace")


def _say(text: str) -> None:
    """Print it on stderr; who does not take it changes no status."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)


def _give_up_unwritten() -> None:
    """Let go of output that nobody takes: at its exit Python would try again, complain, and end with 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            print(end="", file=stream, flush=True)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def joined_times(words: Sequence[str]) -> list[str]:
    """Write `--from -10m` as `--from=-10m`: argparse takes a leading dash for an option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in _TIME_OPTIONS and _RELATIVE_TIME.fullmatch(word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined
