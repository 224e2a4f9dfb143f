"""What set-up runs beside itself."""

import tempfile
from pathlib import Path

import pytest

from streaming.contract.errors import WeirError
from weir.jars.wait import Wait
from weir.stack import setup


def test_set_up_that_is_stopped_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it runs is killed: a broker's folder stayed in /tmp."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    code = "import tempfile, time; tempfile.mkdtemp(prefix='made-'); time.sleep(60)"
    wait = Wait("it", lambda _: None, lambda: any(tmp_path.rglob("made-*")), "archiving")
    with pytest.raises(WeirError, match="stopped while archiving it"):
        setup._run(["-c", code], wait, 30.0)
    assert not [*tmp_path.iterdir()]
