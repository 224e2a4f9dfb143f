"""One local broker in the foreground: started, watched until a signal, stopped."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from streaming.contract.errors import WeirError
from weir.foreground import StopSignal, forget_ready_file, private_folder, write_ready_file
from weir.log import teller
from weir.options import add, add_file
from weir.stack.server import LocalServer

_CHECK_S: Final = 0.5
_say = teller("weir")


def add_local_options(parser: argparse.ArgumentParser, data: Path, ready: str) -> None:
    """Add --data, --property and --ready-file, which `ready` describes."""
    add_file(parser, "--data", "folder (default: %(default)s)", metavar="DIR", default=data)
    further = "a further setting of the broker"
    add(parser, "--property", further, action="append", default=[], metavar="NAME=VALUE", type=_property)
    add_file(parser, "--ready-file", f"written as JSON {ready}")


def _property(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def serve(
    broker: LocalServer, kept: tuple[str, ...], address: tuple[str, int], ready_file: Path | None, where: str,
    described: Mapping[str, str],
    prepare: Callable[[Callable[[str], None], Callable[[], bool]], None] = lambda say, stopping: None,
) -> int:  # fmt: skip
    """Run it until SIGINT or SIGTERM; a second one kills it.

    The names of what it keeps begin as `kept` says (`private_folder`). Once it is ready a line says `where`,
    and the ready file what is `described`. `prepare` brings what has to be there before.

    Raises:
        WeirError: it did not start, or ended by itself.
    """
    stop = StopSignal(broker.kill).install()
    forget_ready_file(ready_file, address)
    warning = private_folder(broker.data_dir, kept)
    if warning:
        _say(warning)
    try:
        prepare(_say, lambda: stop.asked)
        print(f"starting {broker.name} in {broker.data_dir} ...", flush=True)
        broker.start(stopping=lambda: stop.asked)
        print(f"{broker.name.lower()} is ready on {where}; Ctrl-C stops it", flush=True)
        write_ready_file(ready_file, {**described, "pid": broker.pids[0]})
        while not stop.wait(_CHECK_S):
            for child in broker.children:
                if not child.alive():
                    raise WeirError(f"{child.name} ended: " + " | ".join(child.last_lines(5)))
    except WeirError:
        if not stop.asked:
            raise
    finally:
        broker.stop()
    return 0
