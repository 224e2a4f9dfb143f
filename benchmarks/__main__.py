"""`python -m benchmarks [NAME ...] [--smoke] [--keep DIR]`: run the benchmarks and keep what they found.

`python -m benchmarks --readme` only puts what is kept into README.md, docs/performance.md and the plots, as
every full run does at its end.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from benchmarks.kit.pages import update
from benchmarks.kit.runner import Options, known, run_all
from streaming.contract.errors import WeirError

RESULTS: Final = Path(__file__).resolve().parent / "results"


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for; returns the exit status: 0 done, 1 one failed, 2 bad usage."""
    names = known()
    parser = _Parser(prog="benchmarks", description="Each benchmark runs in a process of its own.")
    parser.add_argument("name", nargs="*", help=f"which (default: all of {', '.join(names)})")
    parser.add_argument(
        "--readme", action="store_true", help="run nothing: put the kept results into the pages and plots"
    )
    parser.add_argument("--smoke", action="store_true", help="a minute or two: do they work at all?")
    parser.add_argument(
        "--keep", metavar="DIR", type=Path, help="put results and logs there, not into benchmarks/results"
    )
    args = parser.parse_args(argv)
    unknown = [name for name in args.name if name not in names]
    if unknown:
        parser.error(f"{unknown[0]} is not a benchmark; expected {', '.join(names)}")
    # A smoke run's numbers mean nothing: they never replace measured ones.
    results = args.keep or (None if args.smoke else RESULTS)
    options = Options(smoke=args.smoke, results=results, keep=args.keep)
    try:
        failed = [] if args.readme else run_all(args.name or names, options, print)
        if results == RESULTS:
            update()
    except WeirError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
