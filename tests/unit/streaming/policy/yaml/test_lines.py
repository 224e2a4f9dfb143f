"""YAML values with the line of every key."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contract.errors import ConfigError
from streaming.policy.yaml.lines import YamlFile, dotted, parse_yaml, read_yaml
from streaming.policy.yaml.text import rendered

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(
        ["yes", "1e6", "0o7", "010", "1_0", "~", ".inf", "-", "<<", "a: b", "a #b", "*", "---", "é", "😀"]
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=6).filter(lambda key: key != "<<"),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


def parse(text: str | bytes) -> YamlFile:
    """Parse a file named f."""
    return parse_yaml(text if isinstance(text, bytes) else text.encode(), "f")


def messages(text: str) -> list[str]:
    """What the reader finds wrong in a file that it can read."""
    return [str(problem) for problem in parse(text).problems]


def refusal(text: str | bytes) -> str:
    """Why a file can't be read at all."""
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert len(caught.value.problems) == 1
    return str(caught.value)


@given(VALUES)
def test_what_is_rendered_reads_back_equal(value: object) -> None:
    """The writer and the reader of YAML agree on every value, its type included."""
    found = parse(f"- {rendered(value)}\n").value[0]
    assert found == value
    assert repr(found) == repr(value)


def test_every_key_and_item_has_its_line() -> None:
    """In blocks, in braces, in lists."""
    found = parse("a: 1\nb:\n  c: {d: 1,\n    e: 2}\n  l:\n  - x\n  - y: 1\n    z: 2\n")
    assert found.value == {"a": 1, "b": {"c": {"d": 1, "e": 2}, "l": ["x", {"y": 1, "z": 2}]}}
    lines = {dotted(path): line for path, line in found.lines.items()}
    assert lines == {
        "(file)": 1, "a": 1, "b": 2, "b.c": 3, "b.c.d": 3, "b.c.e": 4,
        "b.l": 5, "b.l[0]": 6, "b.l[1]": 7, "b.l[1].y": 7, "b.l[1].z": 8,
    }  # fmt: skip
    assert found.line(("b", "c", "missing", "deeper")) == 3


def test_scalars_follow_the_core_schema() -> None:
    """No octal surprises, no yes for true, no dates; keys are text as written."""
    text = "a: 010\nb: yes\nc: 1_000\nd: 1:30\ne: 2026-01-01\nf: 1e3\ng: 0x10\n"
    assert parse(f"{text}h: ~\ni: True\n1: x\nno: y\nj: 0o17\n").value == {
        "a": 10, "b": "yes", "c": "1_000", "d": "1:30", "e": "2026-01-01", "f": 1000.0,
        "g": 16, "h": None, "i": True, "1": "x", "no": "y", "j": 15,
    }  # fmt: skip
    assert parse("a: -.INF").value == {"a": -math.inf}
    assert math.isnan(parse("a: .NaN").value["a"])


def test_duplicate_keys_are_problems_and_the_first_stays() -> None:
    """With both lines, at every depth."""
    assert parse("a: 1\na: 2\n").value == {"a": 1}
    assert messages("a: 1\nb: {c: 1,\n c: 2}\na: 2\n") == [
        "f:3: b.c: is written twice, first in line 2; expected each key once",
        "f:4: a: is written twice, first in line 1; expected each key once",
    ]


def test_merge_keys_fill_in_what_is_not_set() -> None:
    """Own keys win over merged ones, the first of several merged wins over the next."""
    found = parse("x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\nz:\n  a: 9\n  <<: [*x, *y]\n")
    assert found.value["z"] == {"a": 9, "b": 2, "c": 4}
    assert found.line(("z", "c")) == 2
    assert not found.problems


def test_merging_something_else_is_a_problem() -> None:
    """Numbers, and a mapping that merges itself."""
    assert "merges something" in messages("a: {<<: 3}")[0]
    assert "merges something" in messages("a: &b\n  <<: *b\n")[0]


def test_an_alias_of_a_parent_is_a_problem() -> None:
    """It would be a value without end."""
    assert messages("a: &a\n  - *a\n") == [
        "f:1: a[0]: is an alias of something that it is itself a part of; expected a value"
    ]


def test_tags_are_problems() -> None:
    """Nothing is constructed but plain values."""
    tagged = "a: 1\nb: !!python/object:os.system {}\nc: !mine 5\nd: !!int x\ne: !!bool yes\nf: !!null x\n"
    assert messages(tagged) == [
        "f:2: b: has a tag; expected none, and quotes around a text that begins with !",
        "f:3: c: has a tag; expected none, and quotes around a text that begins with !",
        "f:4: d: is tagged as a number but is none; expected a number",
        "f:5: e: has a tag; expected none, and quotes around a text that begins with !",
        "f:6: f: has a tag; expected none, and quotes around a text that begins with !",
    ]


def test_keys_that_are_no_text_are_problems() -> None:
    """A list can't be a key here."""
    assert messages("? [a]\n: 1\n") == ["f:1: (file): has a key that is not text; expected text"]


def test_a_second_document_is_a_problem() -> None:
    """The first one is read all the same."""
    found = parse("a: 1\n---\nb: 2\n")
    assert found.value == {"a": 1}
    assert str(found.problems[0]).startswith("f:3: (file): holds a second document")


def test_a_file_without_content_has_no_value() -> None:
    """Empty, or only comments, with or without a byte order mark."""
    assert [parse(text).value for text in ("", "# x\n", "---\n", b"\xef\xbb\xbf")] == [None] * 4
    assert parse(b"\xef\xbb\xbfa: 1").value == {"a": 1}


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("a: 1\nb: [1, 2\n", 3, "not valid YAML"),
        ("a:\n\t- b\n", 2, "not valid YAML"),
        ("a: b: c\n", 1, "not valid YAML"),
        ("a: 1\nb: *nobody\n", 2, "not valid YAML"),
        ("a: 'x\n\n", 3, "not valid YAML"),
        ('a: 1\nb: "\\ud800"\n', 2, "not valid YAML"),
        ("a: 1\nb: \x07\n", 2, "control character"),
        ("# äöüß\nb: \x07\nc: 1\n", 2, "control character"),
        (b"a: 1\nb: \xff\n", 2, "not valid UTF-8"),
        ("a: 1\nb: " + "[" * 5000, 2, "nests too deep"),
        ("{" * 100_000, 1, "nests too deep"),
    ],
)
def test_wrong_yaml_is_refused_with_its_line(text: str | bytes, line: int, why: str) -> None:
    """One problem, which says where; deep nesting does not end the process."""
    message = refusal(text)
    assert message.startswith(f"f:{line}: (file): ")
    assert why in message
    assert "; expected" in message or "expected at most" in message


def test_aliases_cannot_blow_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of values is bounded."""
    monkeypatch.setattr("streaming.policy.yaml.lines.MAX_NODES", 1000)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 9)]
    assert "is too large; expected at most 1000 values" in refusal("\n".join(lines))


@pytest.mark.parametrize("leaf", ["{}", "{x: 1}"])
def test_merges_cannot_blow_up(leaf: str) -> None:
    """Of what they bring most stands there already, or there is none; it is gone through all the same."""
    lines = [f"a0: &a0 {leaf}"]
    for level in range(1, 7):
        lines.append(f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 10)}]}}")
    assert "is too large" in refusal("\n".join(lines))


@pytest.mark.parametrize("level", ["[*a{}]", "{{<<: *a{}}}"])
def test_aliases_nest_no_deeper_than_anything(level: str) -> None:
    """In the file they stand side by side; values are gone through by functions that call themselves."""
    lines = ["- &a0 {x: 1}", *(f"- &a{number} {level.format(number - 1)}" for number in range(1, 600))]
    assert "nests too deep; expected at most 64 levels" in refusal("\n".join(lines))
    assert len(parse("\n".join(lines[:60])).value) == 60


def test_numbers_and_files_have_a_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits without end are a problem, not a crash of int()."""
    assert messages(f"a: {'9' * 5000}") == ["f:1: a: is a number of 5000 characters; expected at most 400"]
    monkeypatch.setattr("streaming.policy.yaml.lines.MAX_FILE_BYTES", 10)
    assert "is too large" in refusal("a: 1\n" * 5)


def test_a_file_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    """So is a folder."""
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(ConfigError, match=r"cannot be read: .*; expected a readable YAML file"):
            read_yaml(str(path))


def test_paths_stay_on_one_line() -> None:
    """Whatever a key holds."""
    assert dotted(("quotas", 0, "entity", "a\nb")) == "quotas[0].entity.a\\nb"
