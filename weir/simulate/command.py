"""`weir simulate concurrency`: try the concurrency limits before choosing one (docs/contract.md 4)."""

import argparse
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from streaming.contract.printable import printable, printable_json
from weir.logs.times import wall_ms
from weir.options import add, add_file, add_flag, number, whole
from weir.paths import check_files
from weir.simulate import failures_command
from weir.simulate.scenario import (
    DEMAND,
    EQUAL,
    PROXIES_MAX,
    SECONDS_MAX,
    BadScenario,
    Scenario,
)

if TYPE_CHECKING:
    from weir.simulate.figures import Contender

DEFAULT_OUT: Final = Path("weir-concurrency.png")
RATE_MIN, RATE_MAX = 0.001, 1e6
COUNT_MAX: Final = 100_000
FACTOR_MAX: Final = 1e6
MS_MAX: Final = 3_600_000
PART_MAX: Final = 0.999
"""Bounds of options, so that a run ends and its numbers stay exact."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command with its subcommands."""
    parser = subparsers.add_parser("simulate", help="try limits in a simulation before choosing them")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    tried = commands.add_parser(
        "concurrency",
        help="all concurrency algorithms side by side",
        description="Runs the law of concurrency itself with each algorithm before a simulated broker that "
        "becomes slow for a while, and draws limit, requests in flight, latency and rejections. "
        "The same options give the same bytes.",
    )
    _add_world(tried)
    _add_proxies(tried)
    add(tried, "--policies", "try the settings of a partition of it, too", metavar="FILE")
    add(tried, "--partition", "which one, such as broker-1; needs --policies", metavar="NAME")
    add_file(tried, "--out", f"the picture, a PNG (default {DEFAULT_OUT}; none with --json)")
    add_flag(tried, "--json", "print the figures as JSON")
    tried.set_defaults(run=run, usage_error=tried.error)
    failures_command.add_parser(commands)


def _add_world(parser: argparse.ArgumentParser) -> None:
    rate, count, seconds = number(RATE_MIN, RATE_MAX), whole(1, COUNT_MAX), whole(0, SECONDS_MAX)
    world = parser.add_argument_group("the broker and who asks it")
    _add(world, "service_rate", rate, "requests per second that it can do")
    _add(world, "servers", count, "requests that it works on at once")
    asking = world.add_mutually_exclusive_group()
    _add(asking, "arrival_rate", rate, "requests per second, whatever is answered")
    _add(asking, "clients", count, "instead: clients that ask again when they are answered")
    _add(world, "retry_ms", whole(1, MS_MAX), "time after which such a client asks again if rejected")
    _add(world, "slow_at", seconds, "the second in which it becomes slow")
    _add(world, "slow_for", seconds, "seconds for which it is")
    _add(world, "slow_factor", number(1, FACTOR_MAX), "how many times slower it is then")
    _add(world, "seconds", whole(1, SECONDS_MAX), "length of the simulation")
    _add(world, "seed", whole(0, 2**63 - 1), "of all that is random")


def _add_proxies(parser: argparse.ArgumentParser) -> None:
    proxies = parser.add_argument_group("the proxies before it")
    _add(proxies, "proxies", whole(1, PROXIES_MAX), "how many there are")
    proxies.add_argument(
        "--division",
        choices=(EQUAL, DEMAND),
        help="how they divide the limit: equal parts (default), or the law of shares by what each wants",
    )
    _add(proxies, "round_s", whole(1, SECONDS_MAX), "seconds between two divisions by demand")
    _add(proxies, "first_part", number(0, PART_MAX), "part of the requests that reach the first one")
    _add(proxies, "decision_ms", whole(0, 60_000), "age of a limit when they hear of it")
    _add(proxies, "waiting", whole(0, COUNT_MAX), "requests that wait in each, instead of being rejected")
    _add(proxies, "wait_ms", whole(1, MS_MAX), "time after which one that waits is rejected")


def _add(group: "argparse._ActionsContainer", name: str, read: Callable[[str], Any], meaning: str) -> None:
    """An option for a field of the scenario; without it the field's default holds, and is shown."""
    default = getattr(Scenario(), name)
    shown = "" if default is None else f" (default {default:g})"
    group.add_argument(f"--{name.replace('_', '-')}", type=read, metavar="N", help=meaning + shown)


def run(args: argparse.Namespace) -> int:
    """Simulate, draw and print.

    Raises:
        ConfigError: the policy file is wrong.
        WeirError: the picture cannot be written.
    """
    # Here and not above: `weir --help` must not load NumPy, nor the picture's library where none is drawn.
    from weir.simulate.figures import contenders, figures, table

    given = {one.name: getattr(args, one.name) for one in fields(Scenario)}
    out = args.out or (None if args.json else DEFAULT_OUT)
    check_files((out,), (args.policies,))
    try:
        scenario = Scenario(**{name: value for name, value in given.items() if value is not None})
    except BadScenario as error:
        args.usage_error(str(error))
    result = figures(scenario, [*contenders(), *_own(args)])
    if out is not None:
        from weir.simulate.picture import write

        write(out, result)
    if args.json:
        print(printable_json(orjson.dumps(result).decode()))
    else:
        print("\n".join(map(printable, table(result))))
        print(printable(f"drawn as {out}"))
    return 0


def _own(args: argparse.Namespace) -> "list[Contender]":
    """The settings of --partition; bad usage if it has none."""
    from streaming.policy.files import load_policies
    from streaming.policy.policy_set import PolicySet, partition_entry
    from weir.simulate.figures import contender

    if (args.policies is None) != (args.partition is None):
        args.usage_error("--policies and --partition go together")
    if args.policies is None:
        return []
    policies = PolicySet(load_policies(args.policies), at=wall_ms())
    value = partition_entry(policies, args.partition)
    if value is not None:
        return [contender(value, args.partition)]
    args.usage_error(
        printable(
            f"{args.policies} limits no partition {args.partition!r}; expected one of"
            " backpressure.partitions, or an entry '*' there"
        )
    )
    return []
