"""`weir simulate failures`: a recorded log while proxies, the job, clocks fail (docs/plan.md)."""

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

import orjson

from streaming.contract.printable import printable, printable_json
from weir.options import add, add_file, add_flag, number, time_argument, whole
from weir.paths import check_files

if TYPE_CHECKING:
    from weir.simulate.failures.scenario import Failures

PROXIES_MAX: Final = 50
HOUR_S, DAY_S = 3_600, 86_400
NAMES: Final = ("none", "job-away", "proxy-lost", "cut-off", "clocks-apart", "late", "more-proxies")
"""Of the scenarios; in words, so that `--help` loads no law."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
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
    tried.set_defaults(run=run, usage_error=tried.error)


def _add_failures(tried: argparse.ArgumentParser) -> None:
    group = tried.add_argument_group("what fails")
    seconds: dict[str, Any] = {"type": number(0, DAY_S), "metavar": "S"}
    some: dict[str, Any] = {"type": whole(1, PROXIES_MAX), "metavar": "N"}
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


def run(args: argparse.Namespace) -> int:
    """Simulate, print and draw.

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
    if args.json:
        print(printable_json(orjson.dumps(result).decode()))
    else:
        print("\n".join(map(printable, table(result))))
        if args.out is not None:
            print(printable(f"drawn as {args.out}"))
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
