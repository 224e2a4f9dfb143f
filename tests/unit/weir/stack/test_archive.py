"""What set-up does when archives of Java classes cannot be made."""

from pathlib import Path

import pytest

from streaming.contract.errors import WeirError
from streaming.job.spark.class_archive import shared_classes
from weir.stack import archive


class _NoKafka:
    """A broker that does not start."""

    def __init__(self, data_dir: Path, options: tuple[str, ...] = ()) -> None:
        self.data_dir = data_dir

    def start(self) -> None:
        raise WeirError("kafka ended with status 1")


def test_no_old_archive_is_left_when_none_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command says why in one line; programs then start without."""
    for kind in ("kafka", "spark"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "some.jar").touch()
        (tmp_path / kind / "classes.jsa").touch()
    monkeypatch.setenv("WEIR_JARS", str(tmp_path))
    monkeypatch.setattr(archive, "LocalKafka", _NoKafka)
    assert archive.main() == 1
    assert capsys.readouterr().err == "archive: kafka ended with status 1\n"
    assert not shared_classes(tmp_path / "kafka") and not shared_classes(tmp_path / "spark")
