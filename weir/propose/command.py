"""`weir propose`: limits from what a log says was asked for (docs/contract.md 4, docs/plan.md)."""

import argparse
from typing import TYPE_CHECKING

from weir.foreground import terminated_as_interrupted
from weir.log import teller, unusable
from weir.logs.events_read import add_events_options, events_read
from weir.options import add, number
from weir.paths import check_files

if TYPE_CHECKING:
    from weir.propose.run import Proposed

_HEADROOM_MAX = 1000.0
_say = teller("propose")
DESCRIPTION = (
    "Proposes limits of all laws from what was asked for: a policy file that says above each"
    " entry what was seen, and what it would have refused and delayed. A runaway lifts no limit."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_events_options(parser)
    add(parser, "--headroom", "how many times what is usual limits are (default: 1.5)",
        type=number(1.0, _HEADROOM_MAX), default=1.5, metavar="X")  # fmt: skip
    add(parser, "--out", "the proposed policies", required=True, metavar="FILE")
    add(parser, "--policies", "those in force at the start: who belongs to which resource group stays, and"
        " what they refused is known", metavar="FILE")  # fmt: skip
    add(parser, "--dead-letters", "lines that could not be used, with the reason", metavar="FILE")


@terminated_as_interrupted()
def run(args: argparse.Namespace) -> int:
    """Propose.

    Raises:
        ConfigError: the policies are wrong.
        WeirError: a file or the cluster cannot be read, says of nobody what was asked, or a file cannot be
            written.
    """
    check_files((args.out, args.dead_letters), (*(args.events or ()), args.policies))
    # Imported here: the laws load Numba, which `weir --help` need not wait for.
    from streaming.log.writing import write_lines
    from weir.propose.run import run as propose
    from weir.propose.told import policies_of

    with events_read(args) as files:
        proposed = propose(files, args.headroom, args.policies, args.kafka)
    write_lines(args.out, policies_of(proposed).encode().splitlines())
    if args.dead_letters is not None:
        write_lines(args.dead_letters, proposed.dead_letters)
    _tell(args, proposed)
    return 0


def _tell(args: argparse.Namespace, proposed: "Proposed") -> None:
    _say(f"{len(proposed.proposal.entries)} entries from {proposed.events:,} events written to {args.out}")
    if proposed.dead_letters:
        _say(unusable(len(proposed.dead_letters), args.dead_letters))
