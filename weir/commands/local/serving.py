"""One local broker in the foreground: started, watched until a signal, stopped."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from streaming.contract.errors import WeirError
from streaming.contract.printable import printable_lines
from weir.foreground import StopSignal, forget_ready_file, private_folder, write_ready_file
from weir.stack.process import Child

_CHECK_S: Final = 0.5


class Broker(Protocol):
    """What both kinds have."""

    @property
    def data_dir(self) -> Path:
        """Folder of what it keeps."""

    @property
    def children(self) -> list[Child]:
        """Its processes."""

    def start(self, *, stopping: Callable[[], bool]) -> None:
        """Start it and wait until it is ready."""

    def stop(self) -> None:
        """Stop it in order."""


def serve(
    broker: Broker,
    name: str,
    kept: tuple[str, ...],
    *,
    ready: Callable[[], str],
    described: Callable[[], Mapping[str, Any]],
    ready_file: Path | None,
    prepare: Callable[[Callable[[str], None], Callable[[], bool]], None] = lambda say, stopping: None,
) -> int:
    """Run it until SIGINT or SIGTERM; a second one kills it.

    Args:
        broker: not yet started.
        name: how people call it.
        kept: how the names of what it keeps in its folder begin, as of `private_folder`.
        ready: the line that says where it is, asked when it is ready.
        described: content of the ready file.
        ready_file: its path.
        prepare: what has to be there before it can start, given who says lines and who is asked to give up.

    Returns:
        0: stopped as asked.

    Raises:
        WeirError: it did not start, or ended by itself.
    """

    def force() -> None:
        for child in broker.children:
            child.kill()

    stop = StopSignal(force)
    stop.install()
    forget_ready_file(ready_file)
    warning = private_folder(broker.data_dir, kept)
    if warning:
        _say(warning)
    try:
        prepare(_say, lambda: stop.requested)
        print(f"starting {name} in {broker.data_dir} ...", flush=True)
        broker.start(stopping=lambda: stop.requested)
        print(f"{ready()}; Ctrl-C stops it", flush=True)
        if ready_file:
            write_ready_file(ready_file, described())
        while not stop.wait(_CHECK_S):
            for child in broker.children:
                if not child.alive():
                    raise WeirError(f"{child.name} ended: " + " | ".join(child.last_lines(5)))
    except WeirError:
        if not stop.requested:
            raise
    finally:
        broker.stop()
    return 0


def _say(text: str) -> None:
    print(printable_lines(f"weir: {text}"), file=sys.stderr, flush=True)
