"""`python -m weir.jars`: for make and for who changes a pom; needs nothing but Python.

fetch SOURCE FOLDER: the jars of the pom in SOURCE into FOLDER.
pin SOURCE [SOURCE ...]: after a change of a pom, writes its list anew.
"""

import argparse
import sys
from pathlib import Path

from streaming.contract.errors import WeirError
from streaming.contract.printable import printable_lines
from weir.jars import installation, maven
from weir.jars.wait import Wait
from weir.log import teller

_say = teller("setup", stdout=True)


def main() -> int:
    """Run it; returns the exit status: 1 if it failed, with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="python -m weir.jars", description="Jars of poms.")
    commands = parser.add_subparsers(dest="command", required=True)
    fetch = commands.add_parser("fetch", help="the pinned jars of a pom into a folder")
    fetch.add_argument("source", type=Path, metavar="SOURCE", help="folder with pom.xml and jars.sha256")
    fetch.add_argument("into", type=Path, metavar="FOLDER")
    fetch.add_argument("--repository", default="", metavar="URL", help="a Maven repository, instead of Maven")
    pin = commands.add_parser("pin", help="write the lists of changed poms anew")
    pin.add_argument("sources", type=Path, nargs="+", metavar="SOURCE")
    args = parser.parse_args()
    try:
        if args.command == "pin":
            for source in args.sources:
                _say(f"pin: fetching the jars of {source} anew, past what Maven has kept")
                maven.pin(source, Wait(f"{source.name} jars", _say))
        else:
            wait = Wait(f"{args.into.name} jars", _say)
            installation.fetch(args.source, args.into.resolve(), wait, args.repository)
    except WeirError as error:
        print(printable_lines(f"setup: {error}"), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
