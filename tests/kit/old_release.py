"""The last release, as who upgrades from it has it: its wheel, built from its commit, in a folder of its own.

$WEIR_OLD names the commit; else it is the newest tag of a release before HEAD, and while there is none FIRST.
"""

import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

from weir.jars.folders import jars_base

ROOT: Final = Path(__file__).resolve().parents[2]
FIRST: Final = "8074ceef"
"""Of 2026-11-25, from before the first release."""
_PIP_S: Final = 180


class OldRelease:
    """A version that is installed in a folder.

    Args:
        folder: for its sources and modules.

    Attributes:
        ref: its commit, as it was named.
        words: before a command of Python, so that this is the Weir it finds.
    """

    def __init__(self, folder: Path) -> None:
        self.ref = os.environ.get("WEIR_OLD") or _last_tag() or FIRST
        sources, modules = folder / "sources", folder / "modules"
        there = _git("archive", self.ref)
        if there.returncode:
            # No skip: who runs this wants to know whether versions go together.
            pytest.fail(f"no commit {self.ref} is here: git fetch --unshallow, or name one, WEIR_OLD=REF")
        with tarfile.open(fileobj=BytesIO(there.stdout)) as archive:
            archive.extractall(sources, filter="data")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run(
            [*pip, "--no-build-isolation", "--target", modules, sources],
            check=True, capture_output=True, timeout=_PIP_S,
        )  # fmt: skip
        # Not from this folder: `python -m` would find the Weir that stands there.
        self.words = ["env", "-C", str(folder), f"PYTHONPATH={modules}", f"WEIR_JARS={jars_base()}"]
        said = self._python("-c", "import weir; print(weir.__file__)")
        assert said.startswith(str(modules)), said

    def _python(self, *words: str) -> str:
        done = subprocess.run(
            [*self.words, sys.executable, *words], check=True, capture_output=True, text=True, timeout=60
        )
        return done.stdout.strip()


def _last_tag() -> str:
    """The newest tag of a release before HEAD; empty: there is none."""
    found = _git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^")
    return found.stdout.decode().strip() if not found.returncode else ""


def _git(*words: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, check=False, timeout=60)
