"""Prints what of requirements.lock the program runs with: not the tools of who works on it.

Usage: runtime_lock.py requirements.lock >runtime.lock. The hashes stay, so pip checks each file by them.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

_ROOT = "weir (pyproject.toml)"
_NAME = re.compile(r"[\w.-]+")
_VIA = re.compile(r"^    #(?: via)?[ ]+(?!via$)(\S.*)$", re.MULTILINE)


def runtime(lock: str) -> str:
    """The entries that pyproject.toml's dependencies bring, and what these need in turn.

    Raises:
        ValueError: an entry does not say what brought it, as when the lock was made without comments.
    """
    entries = list(_entries(lock))
    wanted = {_ROOT}
    while True:
        more = {_name(entry) for entry in entries if wanted.intersection(_parents(entry))} - wanted
        if not more:
            return "".join(entry for entry in entries if _name(entry) in wanted)
        wanted |= more


def _entries(lock: str) -> Iterator[str]:
    """Each pinned package with its hashes and comments."""
    lines = [line for line in lock.splitlines(keepends=True) if not line.startswith("#")]
    starts = [at for at, line in enumerate(lines) if not line.startswith(" ")]
    for begin, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield "".join(lines[begin:end])


def _name(entry: str) -> str:
    found = _NAME.match(entry)
    if found is None:
        raise ValueError(f"{entry.splitlines()[0]!r} is not a pinned package")
    return found.group()


def _parents(entry: str) -> set[str]:
    found = set(_VIA.findall(entry))
    if not found:
        raise ValueError(f"{_name(entry)} does not say what brought it; expected a line `# via ...`")
    return found


if __name__ == "__main__":
    sys.stdout.write(runtime(Path(sys.argv[1]).read_text()))
