"""Which requests of an HTTP API change partitions, and what they cost: rules as settings have them.

A path of a rule has a part `{name}` for anything, `{name:a|b}` for one of several words, all else as it is:

>>> Pattern("/topics/{domain:persistent|non-persistent}/{topic}").match(("topics", "persistent", "t/1"))
{'domain': 'persistent', 'topic': 't/1'}
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final, NamedTuple, Self

from pydantic import AfterValidator, Field, Strict, model_validator

from enforcer.wire.http.paths import BadPath, segments_of
from streaming.policy.validation import ClosedMapping, expected, wrong

_PART: Final = re.compile(r"\{([a-z_]+)(?::([^{}/]+))?\}")
_PATH_EXPECTED: Final = "a path such as /v3/topics/{topic}, its parts literal, {name} or {name:a|b}"


class Cost(StrEnum):
    """How the mutations of a request are counted."""

    CONSTANT = "constant"
    """`number`."""
    BODY = "body"
    """What the body says at `field`."""
    GROWTH = "growth"
    """The same less what is there already."""
    CURRENT = "current"
    """What is there already."""


class Pattern:
    """A path of a rule."""

    def __init__(self, text: str) -> None:
        self._parts = [_part(part) for part in text.split("/")[1:]]

    def match(self, segments: Sequence[str]) -> dict[str, str] | None:
        """What its names stand for in the segments of a path, None if that is another path."""
        if len(segments) != len(self._parts):
            return None
        for (_, words), segment in zip(self._parts, segments, strict=True):
            if words and segment not in words:
                return None
        return self.named(segments)

    def named(self, segments: Sequence[str]) -> dict[str, str]:
        """The segments that have names."""
        return {name: segment for (name, _), segment in zip(self._parts, segments, strict=True) if name}

    @property
    def names(self) -> set[str]:
        """Names of its parts."""
        return {name for name, _ in self._parts if name}


def _part(text: str) -> tuple[str, frozenset[str]]:
    """Name of a part, empty for a literal one, and the words that it may be, none for any."""
    named = _PART.fullmatch(text)
    if named is None:
        return "", frozenset((text,))
    return named[1], frozenset(named[2].split("|")) if named[2] else frozenset()


def _path(text: str) -> str:
    parts = text.split("/")[1:]
    if not text.startswith("/") or any(not _PART.fullmatch(part) and set(part) & set("{}") for part in parts):
        raise wrong(f"is no path of a rule; expected {_PATH_EXPECTED}")
    return text


PathText = Annotated[str, AfterValidator(_path), expected(_PATH_EXPECTED)]


class Rule(ClosedMapping):
    """One kind of request that changes partitions."""

    method: Annotated[str, Field(pattern="^[A-Z]+$"), expected("an HTTP method, in capitals")]
    path: PathText
    operation: Annotated[
        str, Field(pattern=r"^[\w.-]{1,64}$"), expected("a name for events and metrics, at most 64 letters")
    ]
    name: Annotated[
        str, Field(description="what a topic is called in events, of the names in path, as {topic}")
    ] = ""
    name_field: Annotated[str, Field(description="field of the body that holds this name instead")] = ""
    cost: Annotated[Cost, Strict(False)]
    number: Annotated[
        int, Field(ge=0, le=2**31 - 1, description="of constant; of body if its fields hold none")
    ] = 1
    field: Annotated[
        str,
        Field(
            description="field of the body that holds the number, or an object with as many; of a|b the most"
            " counts; a bare number counts too"
        ),
    ] = ""
    current: Annotated[str, Field(description="path that is asked (GET) how many there are")] = ""
    current_field: Annotated[
        str, Field(description="field of its answer that holds them, a number or a list; empty: the answer")
    ] = ""
    dry_run_field: Annotated[str, Field(description="field of the body that makes it a dry run if true")] = ""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        known = Pattern(self.path).names
        asks = self.cost in (Cost.GROWTH, Cost.CURRENT)
        if asks != bool(self.current):
            raise wrong(
                f"has cost {self.cost} and current {self.current!r}; expected a path in current exactly with"
                " growth and current"
            )
        for key in ("name", "current"):
            for used in re.findall(r"\{(.*?)\}", getattr(self, key)):
                if used not in known:
                    there = ", ".join(sorted(known)) or "none"
                    raise wrong(f"has {{{used}}} in {key}; expected names of path: {there}")
        if not self.name and not self.name_field:
            raise wrong("has neither name nor name_field; expected one of them")
        return self

    @property
    def reads_body(self) -> bool:
        """Whether the body must be read."""
        return self.cost in (Cost.BODY, Cost.GROWTH) or bool(self.name_field or self.dry_run_field)


def filled(text: str, names: Mapping[str, str]) -> str:
    """A name or path of a rule, with what the names in it stand for."""
    return re.sub(r"\{(.*?)\}", lambda found: names[found[1]], text)


class Match(NamedTuple):
    """A rule that applies, and what the names in its path stand for.

    Attributes:
        sent: the names as they were sent, since servers decode in different ways.
    """

    rule: Rule
    names: Mapping[str, str]
    sent: Mapping[str, str]


class Rules:
    """A table of rules; the first that fits counts."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = [(rule, Pattern(rule.path)) for rule in rules]

    def find(self, method: str, path: str) -> Match | None:
        """The rule for a request, its path as it was sent, `plain`.

        Raises:
            BadPath: servers may read it in several ways.
        """
        segments = segments_of(path)
        own = [(rule, pattern) for rule, pattern in self._rules if rule.method == method.upper()]
        # As servers read it that decode a path before they cut it.
        cut = tuple(part for part in "/".join(segments).split("/") if part)
        dots = not {".", ".."}.isdisjoint(cut)
        if cut != segments and (dots or any(pattern.match(cut) is not None for _, pattern in own)):
            raise BadPath("The path has an encoded slash by which it may change partitions")
        for rule, pattern in own:
            if (names := pattern.match(segments)) is not None:
                return Match(rule, names, pattern.named([part for part in path.split("/") if part]))
        return None
