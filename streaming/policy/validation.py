"""Values that people wrote, policies and settings, checked by pydantic and its errors put into words.

Types say what may be written, and their JSON schema says in a message what was expected: `what is wrong; what
was expected` (docs/contract.md 2). Where a schema does not say enough, a type carries its own words:
`Annotated[int, expected("a number of days")]`.
"""

import difflib
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from streaming.contract.errors import Problem
from streaming.contract.fields import INT64_MAX
from streaming.policy.yaml.lines import Path

INT64_MIN = -INT64_MAX - 1
# Of a wrong value a message shows this much.
MAX_SHOWN = 80
SUGGESTED_MAX = 20
"""Names that are looked for by their letters; who misspells thousands has one mistake."""
_WRONG = "wrong"
_NAMES = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "null": "null",
}
_BOUNDS = (
    ("above", "exclusiveMinimum"),
    ("at least", "minimum"),
    ("at most", "maximum"),
    ("below", "exclusiveMaximum"),
)

CLOSED = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
"""These keys and no other, and no value that is taken for one of another type."""
Schema = dict[str, Any]
_Near = dict[tuple[str, ...], str]
"""A name and those that are known -> what is suggested for it."""
T = TypeVar("T")


class ClosedMapping(BaseModel):
    """A mapping with these keys and no other, in which no value is taken for one of another type."""

    model_config = CLOSED


class Finding(NamedTuple):
    """One problem before it is known in which file and line it stands."""

    path: Path
    message: str


class Form(Generic[T]):
    """What a value may be.

    Args:
        kind: a pydantic model or any other annotation that pydantic knows.
    """

    def __init__(self, kind: type[T]) -> None:
        self._adapter = TypeAdapter(kind)

    @cached_property
    def schema(self) -> Schema:
        """The same as JSON schema, what it refers to written out."""
        schema = self._adapter.json_schema()
        return cast(Schema, _written_out(schema, schema.get("$defs", {})))

    def check(self, value: Any) -> list[Finding]:
        """Everything that is wrong with a value, one finding a key; empty: nothing is."""
        return self.read(value)[1]

    def read(self, value: Any) -> tuple[T | None, list[Finding]]:
        """The value as declared, and everything that is wrong with it: then the value is None."""
        try:
            return self._adapter.validate_python(value), []
        except ValidationError as error:
            return None, self._findings(error)

    def _findings(self, error: ValidationError) -> list[Finding]:
        found: dict[Path, Finding] = {}
        near: _Near = {}
        for item in error.errors(include_url=False):
            finding = self._finding(item, near)
            # Each alternative of a union has an error of its own, all about one value.
            found.setdefault(finding.path, finding)
        return list(found.values())

    def _finding(self, error: ErrorDetails, near: _Near) -> Finding:
        match error["type"]:
            case "extra_forbidden":
                *place, name = error["loc"]
                path, node = self._place(tuple(place))
                expectation = _suggested(str(name), sorted(_inside(node)["properties"]), near)
                return Finding((*path, name), f"is not a known key; expected {expectation}")
            case "missing":
                path, node = self._place(error["loc"])
                return Finding(path, f"is missing; expected {described(node)}")
            case kind:
                path, node = self._place(error["loc"])
                told = error["msg"] if kind == _WRONG else _told(error["input"], node, near)
                return Finding(path, told)

    def _place(self, loc: Path) -> tuple[Path, Schema]:
        """A location as the file has it, without pydantic's names of alternatives, and its schema."""
        node = self.schema
        for depth, part in enumerate(loc):
            inside = _inside(node)
            key = "items" if isinstance(part, int) else "additionalProperties"
            inner = inside.get("properties", {}).get(part) or inside.get(key)
            if not inner:
                return loc[:depth], node
            node = inner
        return loc, node


def _inside(node: Schema) -> Schema:
    """What stands where null may stand too."""
    others = [item for item in node.get("anyOf", ()) if item.get("type") != "null"]
    return others[0] if len(others) == 1 else node


def _written_out(node: Any, definitions: Schema) -> Any:
    if isinstance(node, list):
        return [_written_out(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    named = definitions.get(str(node.get("$ref")).rpartition("/")[2], {})
    return {key: _written_out(item, definitions) for key, item in {**named, **node}.items() if key != "$defs"}


def expected(words: str, **more: Any) -> Any:
    """Annotates a type with what a message says was expected.

    Args:
        words: these words.
        more: `zero="..."`, what is said of 0 instead; `writeOnly=True`, the value is not shown.
    """
    return Field(json_schema_extra={"expected": words, **more})


def within_64_bits(value: Any) -> Any:
    """A validator before numbers, which whole numbers may stand for: JSON has no larger ones."""
    if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        raise PydanticCustomError("beyond_64_bits", "is beyond 64 bits")
    return value


def wrong(message: str) -> PydanticCustomError:
    """What a validator raises that says all by itself: `what is wrong; what was expected`."""
    return PydanticCustomError(_WRONG, message)


def restated(error: ValidationError) -> list[InitErrorDetails]:
    """All of an error once more, for a validator that raises it together with what it found itself."""
    return [
        InitErrorDetails(
            type=PydanticCustomError(item["type"], item["msg"]), loc=item["loc"], input=item["input"]
        )
        for item in error.errors(include_url=False)
    ]


def described(node: Schema) -> str:
    """What a schema asks for, in words."""
    if "expected" in node:
        return str(node["expected"])
    if "enum" in node:
        return f"one of {', '.join(map(str, node['enum']))}"
    if "anyOf" in node:
        return " or ".join(map(described, node["anyOf"]))
    if "properties" in node:
        return f"a mapping with {', '.join(node['properties'])}"
    if node.get("additionalProperties"):
        return f"a mapping of names to {described(node['additionalProperties'])}"
    if "items" in node:
        return f"a list of {described(node['items'])}"
    return " ".join(part for part in (_NAMES.get(node.get("type", ""), "a value"), bounds(node)) if part)


def bounds(node: Schema) -> str:
    """The bounds of a number in words; those of 64 bits go without saying."""
    held = ((words, node.get(key)) for words, key in _BOUNDS)
    unsaid = (None, INT64_MIN, INT64_MAX)
    return " and ".join(f"{words} {bound}" for words, bound in held if bound not in unsaid)


def _told(value: Any, node: Schema, near: _Near) -> str:
    what, expectation = f"is {shown(value)}", described(node)
    node = _inside(node)
    if node.get("writeOnly") and isinstance(value, (str, int, float)):
        what = "is wrong (and not shown, since it may be secret)"
    if isinstance(value, str) and "enum" in node:
        expectation = _suggested(value, node["enum"], near)
    types = {alternative.get("type") for alternative in node.get("anyOf", (node,))}
    if types & {"integer", "number"} and isinstance(value, (int, float)) and not isinstance(value, bool):
        if not is_finite(value):
            what = "is not finite" if isinstance(value, float) else "is too large for a double"
        elif value == 0 and "zero" in node:
            return str(node["zero"])
        elif isinstance(value, float) and "number" not in types:
            expectation += ", without a decimal point"
        elif isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
            what += ", which does not fit into 64 bits"
    return f"{what}; expected {expectation}"


def suggestion(name: str, known: Sequence[str]) -> str:
    """What was likely meant by an unknown name: its nearest known one, or all of them."""
    # Misspelt names differ by a letter or two; others would be suggested at random.
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not near:
        # messageAge for message_age, CLIENTID for client-id
        folded = {known_name.lower(): known_name for known_name in known}
        near = [folded[found] for found in difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)]
    return f"{near[0]} (did you mean that?)" if near else f"one of {', '.join(known)}"


def _suggested(name: str, known: Sequence[str], near: _Near) -> str:
    """The same for one of many: 64 kB hold thousands of names, and to look for each takes a second."""
    key = (name, *known)
    if key not in near and len(near) < SUGGESTED_MAX:
        near[key] = suggestion(name, known)
    return near.get(key, f"one of {', '.join(known)}")


def sorted_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Problems in the order of the file, one per key: the first that was found."""
    # What is wrong with a key twice over has one cause most times: the first.
    first: dict[tuple[int, str], Problem] = {}
    for problem in problems:
        first.setdefault((problem.line, problem.path), problem)
    return sorted(first.values(), key=lambda problem: (problem.line, problem.path))


def is_finite(value: float) -> bool:
    """False also for a whole number that no double can hold."""
    # A file may hold 400 digits, and float() of them does not give inf but an error.
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def shown(value: Any) -> str:
    """A value as a message names it."""
    if isinstance(value, str):
        return f"the text {value if len(value) <= MAX_SHOWN else value[:MAX_SHOWN] + '...'!r}"
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "empty"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "a mapping" if isinstance(value, dict) else str(value)
