"""The command `weir`: finds the subcommand's module, runs it, turns errors into an exit status."""

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

from streaming.contract.errors import ConfigError, TakenOver, WeirError
from streaming.contract.printable import printable, printable_lines

DONE, FAILED, BAD_USAGE, TAKEN_OVER = 0, 1, 2, 3
_TIME_OPTIONS = ("--from", "--to", "--at")
_RELATIVE_TIME = re.compile(r"-\d.*")
# Command -> module with `add_parser(subparsers)`. In the order in which --help shows them.
COMMANDS = {
    "setup": "weir.commands.local.setup",
    "up": "weir.commands.up",
    "demo": "weir.commands.demo",
    "top": "weir.top.command",
    "explain": "weir.explain.command",
    "tail": "weir.commands.tail",
    "backlog": "weir.commands.backlog",
    "bill": "weir.bill.command",
    "send": "weir.commands.send",
    "policy": "weir.commands.policy",
    "dump": "weir.commands.dump",
    "import": "weir.imports.command",
    "replay": "weir.commands.replay",
    "propose": "weir.propose.command",
    "simulate": "weir.simulate.command",
    "kafka": "weir.commands.local.kafka",
    "pulsar": "weir.commands.local.pulsar",
    "job": "weir.commands.job",
    "state": "weir.commands.local.state",
    "proxy": "weir.commands.proxy",
    "admin": "weir.commands.admin",
    "collect": "weir.commands.collect",
    "healthy": "weir.commands.local.healthy",
    "doctor": "weir.doctor.command",
}


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """The parser, with one subcommand only if `command` names one.

    Every module stays unloaded but the one that is asked for: `weir --version` must not wait for
    another command's imports.
    """
    parser = argparse.ArgumentParser(
        prog="weir",
        description="Quotas for Kafka clusters, decided in a stream and enforced on real clients.",
        epilog="Exit status: 0 done, 1 the work failed, 2 bad usage, policy or configuration,"
        " 3 another collector has taken over.",
    )
    parser.add_argument("--version", action="version", version=f"weir {version('weir')}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name in (command,) if command and command in COMMANDS else COMMANDS:
        import_module(COMMANDS[name]).add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status (docs/contract.md 4)."""
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
