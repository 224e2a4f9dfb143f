"""`weir` with a wall clock that is off, as a process: the first word is by how many ms."""

import sys
import time

_ahead_ns = int(sys.argv.pop(1)) * 1_000_000
_true_ns = time.time_ns


def _time_ns() -> int:
    return _true_ns() + _ahead_ns


# Before anything of Weir is imported: whoever takes the name from the module gets these.
time.time_ns, time.time = _time_ns, lambda: _time_ns() / 1e9

from weir.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
