"""Laws without Numba: the same Python, interpreted."""

import os
import subprocess
import sys
from pathlib import Path

_LIMIT_S = 120


def interpreted(code: str, *words: str, stdin: bytes = b"") -> bytes:
    """What a program writes to stdout that runs with `NUMBA_DISABLE_JIT=1`; warnings of sums are errors."""
    kit = Path(__file__).parent
    path = os.pathsep.join([str(kit.parents[1]), str(kit)])
    return subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code, *words],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path},
        input=stdin, stdout=subprocess.PIPE, timeout=_LIMIT_S, check=True,
    ).stdout  # fmt: skip
