"""`weir demo`, what `make run` runs: the stack, a short real workload, and the decisions as they are made."""

import argparse

from streaming.contract.errors import WeirError
from weir.commands.up import add_stack_options
from weir.foreground import StopSignal
from weir.jars.folders import ROOT, is_clone
from weir.stack.local import Stack

POLICIES = ROOT / ("conf" if is_clone() else "weir/demo") / "policies.yaml"

DESCRIPTION = (
    "Start everything as `weir up` does, let three real clients create topics over their "
    "quota, show what the job decides and what each client sees, and run on until Ctrl-C."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_stack_options(parser)
    parser.add_argument("--policies", metavar="FILE", default=str(POLICIES), help="default: %(default)s")
    parser.add_argument("--once", action="store_true", help="end by itself after the workload")


def run(args: argparse.Namespace) -> int:
    """Run it; raises WeirError if a part or, with --once, a client failed."""

    # Here and not above: `weir --help` must not load the laws.
    from weir.demo.story import how_to_go_on, play
    from weir.stack.serve import serve

    def meanwhile(stack: Stack, stop: StopSignal) -> bool:
        failures = play(stack, stop, args.data.absolute(), args.policies)
        if args.once:
            if failures and not stop.asked:
                raise WeirError("; ".join(failures))
            return True
        if not stop.asked:
            how_to_go_on(stack, args.policies, args.settings)
        return False

    return serve(args, args.policies, meanwhile=meanwhile)
