"""Which Java is taken, by the job and by what runs beside it."""

from pathlib import Path

import pytest

from streaming.contract.errors import WeirError
from streaming.job.spark import java
from weir.jars.java import java_command


def jdk(folder: Path, version: str) -> Path:
    """A folder that looks like a JDK."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").touch()
    (folder / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return folder


def test_the_first_java_that_all_can_use_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too old, too new and no JDK at all are passed over; with none left the message names what was seen."""
    versions = {"old": "1.8.0_292", "new": "25.0.3", "right": "17.0.15", "later": "21.0.1"}
    homes = [tmp_path / "none", *(jdk(tmp_path / name, version) for name, version in versions.items())]
    monkeypatch.setattr(java, "_java_homes", lambda: iter(homes))
    assert java.find_java() == tmp_path / "right"
    monkeypatch.setattr(java, "_java_homes", lambda: iter(homes[:3]))
    with pytest.raises(WeirError, match=r"old is Java 8; .*new is Java 25.*install a JDK 17"):
        java.find_java()


def test_brokers_run_on_the_same_java_as_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a Java 11 on the path and a 17 beside it the job ran, and Kafka ended by an error of classes."""
    homes = [jdk(tmp_path / version, version) for version in ("11.0.2", "17.0.15")]
    monkeypatch.setattr(java, "_java_homes", lambda: iter(homes))
    monkeypatch.setenv("WEIR_JARS", str(tmp_path))
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "some.jar").touch()
    assert java_command("Main")[0] == str(homes[1] / "bin" / "java")
