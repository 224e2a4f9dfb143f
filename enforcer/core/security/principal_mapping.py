"""Which user a client certificate is: what a Kafka broker makes of its subject (KIP-371).

A broker writes the subject as Java does (RFC 2253) and hands that to ssl.principal.mapping.rules. Both are
held equal to what a broker's own classes make of them (tests/kafka/test_certificate_users.py).
"""

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

_KEYWORDS: Final = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O",
    "2.5.4.11": "OU", "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}  # fmt: skip
# UTF8, Printable, T61, IA5, General and BMPString: Java takes the bytes of each for UTF-8.
_TEXTS: Final = frozenset({12, 19, 20, 22, 27, 30})
_ESCAPED: Final = re.compile('[,=+<>#;"\\\\]')
_OUTER_SPACES: Final = re.compile(r"\A +| +\Z")
_VERSION_TAG: Final = 0xA0
_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_BETWEEN: Final = re.compile(r"\s*(?:,\s*|$)")
# Java's dot takes none of these, Python's all but the first.
_LINE_ENDS: Final = frozenset("\n\r\x85\u2028\u2029")
_CASES: Final[dict[str, Callable[[str], str]]] = {"L": str.lower, "U": str.upper, "": str}


class NoUser(ValueError):
    """No rule applies to a subject; a broker ends the connection."""


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate as brokers write it.

    Args:
        certificate: X.509 in DER; that it is one was checked when its signature was.

    Returns:
        Such as `CN=alice,OU=Sales,C=DE`.
    """
    _, whole, _ = _element(certificate)
    fields = list(_elements(_element(whole)[1]))
    # The version may be absent: serial number, algorithm, issuer, validity, subject.
    return written(fields[5 if fields[0][0] == _VERSION_TAG else 4][1])


def written(name: bytes) -> str:
    """The contents of a name in DER (RFC 5280) as Java writes it."""
    parts = []
    for _, part in _elements(name):
        attributes = [list(_elements(attribute)) for _, attribute in _elements(part)]
        parts.append("+".join(_attribute(kind[1], value[0], value[1]) for kind, value in attributes))
    return ",".join(reversed(parts))


def _attribute(kind: bytes, tag: int, value: bytes) -> str:
    name = _dotted(kind)
    if name not in _KEYWORDS or tag not in _TEXTS:
        return f"{_KEYWORDS.get(name, name)}=#{_encoded(tag, value).hex()}"
    text = _ESCAPED.sub(r"\\\g<0>", value.decode("utf-8", "replace")).replace("\0", "\\00")
    return f"{_KEYWORDS[name]}=" + _OUTER_SPACES.sub(lambda spaces: "\\ " * len(spaces[0]), text)


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """Tag and value of the first element, and what follows it."""
    tag, size, start = data[0], data[1], 2
    if size >= 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    return tag, data[start : start + size], data[start + size :]


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        tag, value, data = _element(data)
        yield tag, value


def _encoded(tag: int, value: bytes) -> bytes:
    size = len(value)
    if size < 0x80:
        return bytes((tag, size)) + value
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(digits))) + digits + value


def _dotted(encoded: bytes) -> str:
    numbers, number = list[int](), 0
    for byte in encoded:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule: None for the pattern is DEFAULT."""

    pattern: re.Pattern[str] | None = None
    pieces: tuple[str | int, ...] = ()
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """The user; None: another rule is asked."""
        if self.pattern is None:
            return subject
        if not _LINE_ENDS.isdisjoint(subject) or not self.pattern.fullmatch(subject):
            return None
        return _CASES[self.case](self.pattern.sub(self._replaced, subject))

    def _replaced(self, found: re.Match[str]) -> str:
        return "".join(piece if isinstance(piece, str) else found[piece] or "" for piece in self.pieces)


class MappingRules:
    """Rules as ssl.principal.mapping.rules has them; the first that applies is taken.

    Patterns are Java's as far as Python has the same; what it has not is refused. A subject with a line break
    in it is only for DEFAULT.

    >>> MappingRules("RULE:^CN=(.*?),OU=Sales.*$/$1/L, DEFAULT").user("CN=Alice,OU=Sales,C=DE")
    'alice'

    Args:
        text: DEFAULT and RULE:PATTERN/REPLACEMENT/[LU], with commas between them.

    Raises:
        ValueError: it is no such list, for people.
    """

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule] = []
        text = text.strip()
        at = 0
        while at < len(text):
            begin = at
            if text.startswith("DEFAULT", at):
                at += len("DEFAULT")
                self._rules.append(_Rule())
            elif found := _RULE.match(text, at):
                at = found.end()
                self._rules.append(_rule(found[1], found[2], found[3]))
            between = _BETWEEN.match(text, at)
            if between is None:
                raise ValueError(f"it cannot be read from {text[begin:]!r} on")
            at = between.end()

    def user(self, subject: str) -> str:
        """Who has a subject.

        Raises:
            NoUser: no rule applies.
        """
        for rule in self._rules:
            if (user := rule.apply(subject)) is not None:
                return user
        raise NoUser(f"no rule applies to {subject!r}")


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    try:
        with warnings.catch_warnings():
            # What would mean another thing in Java: [a&&b], [[a]b].
            warnings.simplefilter("error", FutureWarning)
            compiled = re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", pattern), re.ASCII)
    except (re.error, FutureWarning) as error:
        raise ValueError(f"the pattern {pattern!r} is of no use: {error}") from None
    return _Rule(compiled, tuple(_pieces(replacement, compiled)), case)


def _pieces(text: str, pattern: re.Pattern[str]) -> Iterator[str | int]:
    """A replacement as texts and numbers of groups."""
    at = 0
    while at < len(text):
        char, following = text[at], text[at + 1 : at + 2]
        if char == "\\":
            yield following
            at += 2
        elif char != "$":
            yield char
            at += 1
        elif following == "{":
            name, brace, _ = text[at + 2 :].partition("}")
            if not brace or name not in pattern.groupindex:
                raise ValueError(f"the replacement {text!r} names no group of its pattern")
            yield pattern.groupindex[name]
            at += len(name) + 3
        elif not (following.isascii() and following.isdigit()):
            raise ValueError(f"the replacement {text!r} has a $ without a group; expected \\$ for itself")
        else:
            number, at = int(following), at + 2
            if number > pattern.groups:
                yield f"${number}"
                continue
            while text[at : at + 1].isdigit() and number * 10 + int(text[at]) <= pattern.groups:
                number, at = number * 10 + int(text[at]), at + 1
            yield number
