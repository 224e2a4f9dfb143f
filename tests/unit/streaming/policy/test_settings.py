"""Settings sections: declared once, read with lines, rendered at their defaults."""

from enum import StrEnum
from pathlib import Path
from typing import Literal

import pytest

from enforcer.core.settings import ProxySettings
from streaming.contract.errors import ConfigError
from streaming.job.spark.settings import JobSettings
from streaming.policy.settings import Settings, read_settings, render_section, setting
from streaming.policy.yaml.removed import GONE, MOVED
from weir.settings import CollectSettings, KafkaSettings, LocalSettings
from weir.settings_file import SECTIONS as ALL_SECTIONS


class Colour(StrEnum):
    """A closed choice."""

    RED = "red"
    BLUE = "blue"


class Sample(Settings):
    """One setting of each kind."""

    count: int = setting(8, "how many", minimum=1, maximum=99)
    ratio: float = setting(0.5, "share of the whole")
    fast: bool = setting(True, "whether to hurry")
    name: str = setting("local[*]", "where to run")
    mode: Literal["a", "b"] = setting("a", "how")
    colour: Colour = setting(Colour.RED, "of the lamp")
    limit: int | None = setting(None, "null: none", minimum=0)
    options: dict[str, str] = setting({}, "texts by name")
    mixed: dict[str, str | int | bool] = setting({"a": 1}, "texts and numbers by name")
    hosts: list[str] = setting([], "addresses")
    plain: int = setting(3, "no bounds")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a settings file goes."""
    return tmp_path / "weir.yaml"


def problems(file: Path, text: str) -> list[str]:
    """What is wrong with section `job` of a file, without the file's name."""
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_settings(Sample, "job", str(file))
    return [str(problem).removeprefix(f"{file}:") for problem in caught.value.problems]


def test_without_file_section_or_content_all_is_at_its_default(file: Path) -> None:
    """A settings file says only what differs."""
    for text in ("", "# nothing\n", "proxy: {id: p1}\n", "job:\n", "job: {}\n"):
        file.write_text(text)
        assert read_settings(Sample, "job", str(file)) == Sample()
    assert read_settings(Sample, "job", None) == Sample()


def test_values_take_their_declared_type(file: Path) -> None:
    """A whole number may stand for a number, a text for an enum."""
    file.write_text(
        "job: {count: 9, ratio: 2, fast: false, name: x, mode: b, colour: blue, limit: 5,\n"
        "  options: {a: b}, mixed: {a: true, b: 2, c: d}, hosts: [h1, h2], plain: 4}\n"
    )
    found = read_settings(Sample, "job", str(file))
    assert (found.count, found.fast, found.name, found.mode, found.limit) == (9, False, "x", "b", 5)
    assert isinstance(found.ratio, float)
    assert found.colour is Colour.BLUE
    assert (found.options, found.mixed) == ({"a": "b"}, {"a": True, "b": 2, "c": "d"})
    assert (found.hosts, found.plain) == (["h1", "h2"], 4)


def test_defaults_are_not_shared() -> None:
    """Two instances have two mappings."""
    assert Sample().options is not Sample().options


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("counts: 1", "job.counts: is not a known key; expected count (did you mean that?)"),
        ("zzz: 1", "job.zzz: is not a known key; expected one of colour, count, fast"),
        ("count: 0", "job.count: is 0; expected a whole number at least 1 and at most 99"),
        ("count: 100", "job.count: is 100; expected a whole number at least 1 and at most 99"),
        ("count: 1.0", "job.count: is 1.0; expected a whole number"),
        ("count: true", "job.count: is true; expected a whole number"),
        ("count: '5'", "job.count: is the text '5'; expected a whole number"),
        ("count:", "job.count: is empty; expected a whole number"),
        ("plain: 9223372036854775808", "job.plain: is 9223372036854775808, which does not fit into 64"),
        ("ratio: .nan", "job.ratio: is not finite; expected a number"),
        ("ratio: " + "9" * 390, "job.ratio: is too large for a double; expected a number"),
        ("fast: yes", "job.fast: is the text 'yes'; expected true or false"),
        ("name: 5", "job.name: is 5; expected text"),
        ("mode: c", "job.mode: is the text 'c'; expected one of a, b"),
        ("colour: green", "job.colour: is the text 'green'; expected one of red, blue"),
        ("limit: -1", "job.limit: is -1; expected a whole number at least 0 or null"),
        ("limit: x", "job.limit: is the text 'x'; expected a whole number at least 0 or null"),
        ("options: {a: 5}", "job.options.a: is 5; expected text"),
        ("options: [a]", "job.options: is a list; expected a mapping of names to text"),
        ("mixed: {a: 1.5}", "job.mixed.a: is 1.5; expected text or a whole number or true or false"),
        ("hosts: 1", "job.hosts: is 1; expected a list of text"),
        ("hosts: [1]", "job.hosts[0]: is 1; expected text"),
    ],
)
def test_a_mistake_is_named_with_its_line(file: Path, line: str, problem: str) -> None:
    """Unknown keys, wrong types, numbers out of bounds."""
    found = problems(file, f"kafka: {{}}\njob:\n  {line}\n")
    assert len(found) == 1
    assert found[0].startswith(f"3: {problem}")


def test_a_setting_that_is_gone_says_what_became_of_it(tmp_path: Path) -> None:
    """Each one that there was, whatever it is set to, and none that is there."""
    told = {
        f"{section}.{key}": "is a constant now; leave it out"
        for section, names in GONE.items()
        for key in names.split()
    }
    assert not told.keys() & MOVED.keys()
    told |= {where: f"is {successor} now" for where, successor in MOVED.items()}
    for section in GONE:
        keys = [where.split(".")[1] for where in told if where.startswith(f"{section}.")]
        path, cls = tmp_path / f"{section}.yaml", dict(ALL_SECTIONS)[section]
        path.write_text("\n".join([f"{section}:", *(f"  {key}: 7" for key in keys)]))
        with pytest.raises(ConfigError) as caught:
            read_settings(cls, section, str(path))
        expected = [
            f"{path}:{2 + at}: {section}.{key}: {told[f'{section}.{key}']}" for at, key in enumerate(keys)
        ]
        assert [str(problem) for problem in caught.value.problems] == expected
        assert not {*keys} & cls.model_fields.keys()


def test_a_section_of_which_nothing_is_left_says_so(file: Path) -> None:
    """To every part, whatever stands in it."""
    for text in ("collect_kafka:\n", "collect_kafka: {look_timeout_ms: 5, first_steps: 2}\n"):
        assert problems(file, text) == ["1: collect_kafka: held what are constants now; leave it out"]


def test_all_mistakes_are_named_in_file_order(file: Path) -> None:
    """Of this section, and sections that do not exist; other sections are read by others."""
    assert problems(file, "jobs: {}\njob:\n  count: 0\n  count: 1\n  mode: x\nproxy: {no: 1}\n") == [
        "1: jobs: is not a section; expected job (did you mean that?)",
        "3: job.count: is 0; expected a whole number at least 1 and at most 99",
        "4: job.count: is written twice, first in line 3; expected each key once",
        "5: job.mode: is the text 'x'; expected one of a, b",
    ]


def test_sections_and_files_must_be_mappings(file: Path) -> None:
    """One problem each."""
    assert problems(file, "job: 5\n") == ["1: job: is 5; expected settings, NAME: VALUE"]
    assert problems(file, "- job\n")[0].startswith("1: (file): is not a mapping")


def test_a_section_is_rendered_with_its_meaning_and_bounds() -> None:
    """Choices are listed where the meaning does not name them."""
    text = render_section(Sample, "job")
    assert text.startswith(
        "job:\n  # how many; at least 1 and at most 99\n  count: 8\n  # share of the whole\n"
    )
    assert "  # how; one of a, b\n  mode: a\n" in text
    assert '  name: "local[*]"\n' in text
    assert "  mixed: {a: 1}\n" in text


@pytest.mark.parametrize(
    ("cls", "section"),
    [
        (Sample, "job"), (JobSettings, "job"), (ProxySettings, "proxy"), (KafkaSettings, "kafka"),
        (LocalSettings, "local"), (CollectSettings, "collect"),
    ],
)  # fmt: skip
def test_a_rendered_section_reads_back_at_its_defaults(file: Path, cls: type, section: str) -> None:
    """So conf/weir.yaml can be made from the declarations."""
    file.write_text(render_section(cls, section))
    assert read_settings(cls, section, str(file)) == cls()
