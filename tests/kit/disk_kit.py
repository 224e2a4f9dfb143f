"""A disk that is full."""

import errno
import os
from pathlib import Path

import pytest


def fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on files are made, and no text is written to them."""

    def full(path: Path, text: str) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
