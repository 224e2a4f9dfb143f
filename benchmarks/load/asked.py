"""A process of ours that answers every line of its input, JSON both ways."""

import os
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any, Final, Self

import orjson

from streaming.contract.errors import WeirError
from weir.jars.folders import ROOT
from weir.stack.process import die_with_parent

LIMIT_S: Final = 120.0
"""Of an answer."""


class Asked:
    """The process; a context manager, at whose end its input ends, and so should it.

    Args:
        words: of Python's command, such as `-m` and a module.
    """

    stop_s = LIMIT_S
    """Of its end; then it is killed."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def __enter__(self) -> Self:
        # What is started by its file finds this package too.
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, *self._words], env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=self.stop_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status, None while it runs."""
        return self._process.poll()

    def ask(self, what: object) -> Any:
        """Its answer to something; raises WeirError: it has ended, or has none in time."""
        assert self._process.stdin is not None
        # Whether it is there its answer tells.
        with suppress(BrokenPipeError):
            self._process.stdin.write(orjson.dumps(what) + b"\n")
            self._process.stdin.flush()
        return self.said()

    def said(self) -> Any:
        """What it says next; raises as ask."""
        assert self._process.stdout is not None
        patience = threading.Timer(LIMIT_S, self._process.kill)
        patience.start()
        try:
            line = self._process.stdout.readline()
        finally:
            patience.cancel()
        if not line:
            raise WeirError(f"{' '.join(self._words)} ended with status {self._process.wait()}")
        return orjson.loads(line)


def say(what: object) -> None:
    """What the process itself answers with."""
    sys.stdout.buffer.write(orjson.dumps(what) + b"\n")
    sys.stdout.buffer.flush()
