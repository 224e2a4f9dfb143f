"""What a local Kafka keeps of itself."""

import errno
import os
from pathlib import Path

import pytest

from weir.stack.kafka import LocalKafka


def test_an_id_that_a_full_disk_cut_off_is_made_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The empty file that it left ended each later start with a traceback."""

    def full(path: Path, text: str) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kafka = LocalKafka(tmp_path / "kafka")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="No space left"):
            kafka.cluster_id()
    assert kafka.cluster_id() == LocalKafka(tmp_path / "kafka").cluster_id()
