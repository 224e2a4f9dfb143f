"""`weir simulate`: concurrency limits tried, and a recorded log while parts fail (docs/contract.md 4)."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from streaming.contract.printable import printable, printable_json
from weir.logs.times import wall_ms
from weir.options import add, add_file, add_flag, number, time_argument, whole
from weir.paths import check_files
from weir.simulate.scenario import DEMAND, EQUAL, PROXIES_MAX, SECONDS_MAX, BadScenario, Scenario

if TYPE_CHECKING:
    from weir.simulate.failures.scenario import Failures
    from weir.simulate.figures import Contender

DEFAULT_OUT: Final = Path("weir-concurrency.png")
RATE_MIN, RATE_MAX = 0.001, 1e6
COUNT_MAX: Final = 100_000
FACTOR_MAX: Final = 1e6
MS_MAX: Final = 3_600_000
PART_MAX: Final = 0.999
"""Bounds of options, so that a run ends and its numbers stay exact."""
FAILING_MAX: Final = 50
"""Proxies of a log while parts fail."""
HOUR_S, DAY_S = 3_600, 86_400
NAMES: Final = ("none", "job-away", "proxy-lost", "cut-off", "clocks-apart", "late", "more-proxies")
"""Of the scenarios; in words, so that `--help` loads no law."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its commands."""
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
    _add_failing(commands)


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
    _print(args, table, result, out)
    return 0


def _print(args: argparse.Namespace, table: Callable[..., list[str]], result: Any, out: Path | None) -> None:
    if args.json:
        print(printable_json(orjson.dumps(result).decode()))
        return
    print("\n".join(map(printable, table(result))))
    if out is not None:
        print(printable(f"drawn as {out}"))


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


def _add_failing(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    tried = commands.add_parser(
        "failures",
        help="a recorded log while parts fail: how far limits would be exceeded or missed",
        description="Sends a recorded log through several proxies in simulated time, by the code of the"
        " proxies and of the job, and has parts fail: what passed beyond each limit and for how long, what"
        " one proxy that nothing befalls would have let through besides, and whether the bounds of"
        " docs/laws.md hold. The same options give the same bytes.",
    )
    add(tried, "--policies", "policies in force at the start", required=True, metavar="FILE")
    events = "event files (.jsonl, .jsonl.gz, .parquet)"
    add(tried, "--events", events, required=True, nargs="+", metavar="FILE")
    add_file(tried, "--out", "a picture of it, an SVG")
    add_flag(tried, "--json", "print the figures as JSON")
    _add_failures(tried)
    tried.set_defaults(run=run_failures, usage_error=tried.error)


def _add_failures(tried: argparse.ArgumentParser) -> None:
    group = tried.add_argument_group("what fails")
    seconds: dict[str, Any] = {"type": number(0, DAY_S), "metavar": "S"}
    some: dict[str, Any] = {"type": whole(1, FAILING_MAX), "metavar": "N"}
    add(group, "--only", "these alone (default: all)", nargs="+", choices=NAMES, dest="tried", metavar="NAME")
    add(group, "--at", "when (default: where most is asked of each law)", type=time_argument, metavar="TIME")
    add(group, "--proxies", "how many there are at first (default 3)", **some)
    add(group, "--away", "the job is away so long (default 3600)", dest="away_s", **seconds)
    add(group, "--lost", "so many proxies are killed (default 1)", **some)
    add(group, "--cut", "one proxy is cut off from Kafka so long (default 25)", dest="cut_s", **seconds)
    add(group, "--skew", "clocks are so far ahead and behind in turn (default 3)", dest="skew_s", **seconds)
    late: dict[str, Any] = {"type": number(0, HOUR_S), "metavar": "S"}
    add(group, "--late", "decisions come so much later (default 3)", dest="late_s", **late)
    add(group, "--more", "so many proxies come besides (default: as many as there are)", **some)
    add(group, "--seed", "of who comes to which proxy", type=whole(0, 2**63 - 1), metavar="N")


def run_failures(args: argparse.Namespace) -> int:
    """Simulate failures, print and draw.

    Raises:
        ConfigError: the policies are wrong.
        WeirError: a file cannot be read, or the picture not be written.
    """
    check_files((args.out,), (*args.events, args.policies))
    failures = _failures(args)
    # Imported here: the laws load Numba, which `weir --help` need not wait for.
    from streaming.policy.files import load_policies
    from weir.plan.progress import Progress
    from weir.simulate.failures.demand import Demand
    from weir.simulate.failures.figures import figures, steps, table

    initial = load_policies(args.policies)
    with Progress(steps(failures) + 1) as progress:
        progress.step("reading")
        result = figures(Demand.read(args.events), initial, failures, progress.step)
    if args.out is not None:
        from weir.simulate.failures.picture import write

        write(args.out, result)
    _print(args, table, result, args.out)
    if result["unusable_lines"]:
        print(f"{result['unusable_lines']} lines could not be used", file=sys.stderr)
    return 0


def _failures(args: argparse.Namespace) -> "Failures":
    """What is to be tried; bad usage if it does not go together."""
    from weir.simulate.failures.scenario import Failures

    given = {name: getattr(args, name) for name in Failures.__dataclass_fields__}
    given["tried"] = args.tried and tuple(name for name in NAMES if name in args.tried)
    given["more"] = args.more or args.proxies
    failures = Failures(**{name: value for name, value in given.items() if value is not None})
    if args.lost is not None and failures.lost >= failures.proxies:
        args.usage_error(f"--lost {failures.lost}: expected fewer than --proxies {failures.proxies}")
    return failures
