"""Settings that refer to files: what they stand for, and what is said when they cannot."""

from pathlib import Path

import pytest

from streaming.contract.errors import ConfigError
from streaming.job.spark.settings import JobSettings
from streaming.policy.settings import Settings, read_settings
from weir.settings import KafkaSettings

SECRET = "hunter2"


def read(folder: Path, cls: type[Settings], section: str, key: str, value: str) -> dict[str, str]:
    """That mapping of a settings file with one entry, `name`, on line 3."""
    file = folder / "weir.yaml"
    file.write_text(f"{section}:\n  {key}:\n    name: '{value}'\n")
    mapping: dict[str, str] = getattr(read_settings(cls, section, str(file)), key)
    return mapping


@pytest.mark.parametrize(
    ("content", "value", "meant"),
    [
        (b"hunter2\n", "${dir:%s:password}", "hunter2"),
        (b"hunter2\r\n", "${dir:%s:password}", "hunter2"),
        (b"hunter2\n\n", "${dir:%s:password}", "hunter2\n"),
        (b"", "${dir:%s:password}", ""),
        (b"hunter2", 'login username="weir" password="${dir:%s:password}";',
         'login username="weir" password="hunter2";'),
        (b"${dir:/a:b}", "${dir:%s:password}", "${dir:/a:b}"),
        (b"hunter2", "${env:HOME} ${file:/a:b} $5", "${env:HOME} ${file:/a:b} $5"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("cls", "section", "key"), [(KafkaSettings, "kafka", "client"), (JobSettings, "job", "kafka_options")]
)
def test_a_reference_is_the_content_of_its_file(
    tmp_path: Path, cls: type[Settings], section: str, key: str, content: bytes, value: str, meant: str
) -> None:
    """Without one line break at its end, also within a text, and what it holds is taken as it is."""
    (tmp_path / "password").write_bytes(content)
    assert read(tmp_path, cls, section, key, value.replace("%s", str(tmp_path))) == {"name": meant}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("${dir:%s:nowhere}", "refers to %s/nowhere, which cannot be read: No such file or directory;"),
        ("${dir:%s:.}", "has '${dir:%s:.}'; expected ${dir:FOLDER:FILE}"),
        ("${dir:%s:a/b}", "has '${dir:%s:a/b}'; expected ${dir:FOLDER:FILE}"),
        ("${dir:secrets:password}", "has '${dir:secrets:password}'; expected ${dir:FOLDER:FILE}"),
        ("${dir:%s:folder}", "refers to %s/folder, which cannot be read: Is a directory;"),
        ("${dir:%s:long}", "refers to %s/long, which is too long; expected at most 65536 bytes"),
        ("${dir:%s:bytes}", "refers to %s/bytes, which is no text in UTF-8;"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line_and_never_shown(
    tmp_path: Path, value: str, said: str
) -> None:
    """File, line, key, and which file was meant; nothing of what files hold."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "long").write_text(SECRET * 20_000)
    (tmp_path / "bytes").write_bytes(SECRET.encode() + b"\xff")
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, KafkaSettings, "kafka", "client", value.replace("%s", str(tmp_path)))
    text = str(refused.value)
    expected = said.replace("%s", str(tmp_path))
    assert text.startswith(f"{tmp_path / 'weir.yaml'}:3: kafka.client.name: {expected}")
    assert SECRET not in text


def test_what_stands_on_a_command_line_refers_to_no_file(tmp_path: Path) -> None:
    """Spark's own properties do: everybody on the machine sees them."""
    (tmp_path / "password").write_text(SECRET)
    with pytest.raises(ConfigError, match=r"weir.yaml:3: job.spark_conf.name: refers to a file, but stands"):
        read(tmp_path, JobSettings, "job", "spark_conf", f"${{dir:{tmp_path}:password}}")
