"""Users of certificates are what a broker's own classes make of the same subjects and rules (KIP-371)."""

import base64
from collections.abc import Iterator
from pathlib import Path

from stack_kit import run_java

from enforcer.core.security.principal_mapping import MappingRules, written

SOURCE = Path(__file__).with_name("Principals.java")
CN, C, ORG, OU = "2.5.4.3", "2.5.4.6", "2.5.4.10", "2.5.4.11"
EMAIL, OTHER = "1.2.840.113549.1.9.1", "1.3.6.1.4.1.99999.1"
OIDS = (
    CN, C, "2.5.4.7", "2.5.4.8", "2.5.4.9", ORG, OU,
    "0.9.2342.19200300.100.1.25", "0.9.2342.19200300.100.1.1",
    EMAIL, "2.5.4.12", "2.5.4.5", OTHER, "2.999.1",
)  # fmt: skip
UTF8, PRINTABLE, T61, IA5, VISIBLE, GENERAL, UNIVERSAL, BMP = 12, 19, 20, 22, 26, 27, 28, 30
STRINGS = (UTF8, PRINTABLE, T61, IA5, VISIBLE, GENERAL, UNIVERSAL, BMP, 18, 4, 2)
TEXTS = (
    "", " ", "  ", " a", "a ", "  a  b ", "\t", "a\rb", "\0a", "#1", "\\,", "ä", "日本", "😀",
    "a,b+c", "  #  ", "x" * 300,
    *(
        f"{a}{char}{b}"
        for char in ',+"\\<>;=#/|*\'`~!@$%^&()[]{}:?._-'
        for a, b in (("", ""), ("a", "b"), (" ", " "))
    ),
)  # fmt: skip
SUBJECTS = ("CN=kafka1.Example.com,OU=SRE,O=Weir Ltd,L=Ulm,C=DE", "CN=Alice\\, A.,OU=x", "CN=ÄßΣ", "")
RULES = (
    "DEFAULT",
    "",
    "default",
    ",DEFAULT",
    "DEFAULT DEFAULT",
    "  DEFAULT  ",
    r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/",
    r"RULE:^CN=(.*?),.*$/$1/L",
    r"RULE:^CN=(.*?),.*$/$1/U, DEFAULT",
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),C=(.*?)$/$1@$2/L,DEFAULT",
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT",
    r"RULE:nomatch/x/",
    r"RULE:CN=([^,]*)/$1/L",
    r"RULE:CN=([^,]*)/$1/U",
    r"RULE:.*/fixed/",
    r"RULE:.*/$0/",
    r"RULE:.*//",
    r"RULE:^$/empty/,DEFAULT",
    r"RULE:^CN=(.*?),.*$/$2/",
    r"RULE:^CN=(.*?),.*$/$12/",
    r"RULE:^CN=(.*?),.*$/${1}/",
    r"RULE:^CN=(?<n>.*?),.*$/${n}/",
    r"RULE:^CN=(.*?),.*$/a\$b$1\/x/",
    r"RULE:^CN=(.*?),.*$/$1",
    r"RULE:^CN=(.*?),.*$/$1/X",
    r"RULE:^CN=(.*?),.*$/$1/LU",
    r"RULE:(/a/",
    r"RULE://x/",
    r"RULE:(?i)^cn=(.*?),.*$/$1/",
    r"RULE:^cn=(.*?),.*$/$1/",
    r"RULE:^CN=(\w+).*$/$1/",
    r"RULE:^CN=([^,]++),.*$/$1/",
    r"RULE:^CN=((.*?)\,.*)$/$2/",
    r"RULE:^(CN=.*?)(,.*)?$/$1/",
    r"RULE:a/b/c/d/",
    r"RULE:^CN=(.*?),.*$/$1, $2/,DEFAULT",
    r"RULE:^CN=(.*?),.*$/$a/",
    r"RULE:^CN=(.*?),.*$/x$/",
    r"RULE:^CN=(.*?),.*$/x\/",
)  # fmt: skip


def tlv(tag: int, value: bytes) -> bytes:
    """One element of DER."""
    size = len(value)
    if size < 0x80:
        return bytes((tag, size)) + value
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(digits))) + digits + value


def oid(dotted: str) -> bytes:
    """An object identifier."""
    first, second, *rest = map(int, dotted.split("."))
    encoded = b""
    for number in (40 * first + second, *rest):
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(number & 0x7F | 0x80)
        encoded += bytes(reversed(digits))
    return tlv(6, encoded)


def attribute(kind: str, tag: int, text: str) -> bytes:
    """One attribute of a name."""
    coding = {BMP: "utf-16-be", UNIVERSAL: "utf-32-be", UTF8: "utf-8"}.get(tag, "latin-1")
    return tlv(48, oid(kind) + tlv(tag, text.encode(coding, "replace")))


def names() -> Iterator[bytes]:
    """Contents of subjects in DER."""
    yield b""
    for kind in OIDS:
        for tag in STRINGS:
            yield tlv(49, attribute(kind, tag, "12 ä"))
    for text in TEXTS:
        yield tlv(49, attribute(CN, UTF8, text)) + tlv(49, attribute(ORG, PRINTABLE, "b"))
        yield tlv(49, attribute(CN, BMP, text))
    two = b"".join(sorted((attribute(CN, UTF8, "a"), attribute(OTHER, UTF8, "b"))))
    yield tlv(49, attribute(C, PRINTABLE, "DE")) + tlv(49, two) + tlv(49, attribute(EMAIL, IA5, "a@b.c"))
    yield tlv(49, tlv(48, oid(CN) + tlv(UTF8, b"a\xff\xfe")))


def b64(text: str) -> str:
    """As a word of a line."""
    return base64.b64encode(text.encode()).decode()


def user(rules: str, subject: str) -> str | None:
    """Ours; None: an error."""
    try:
        return MappingRules(rules).user(subject)
    except ValueError:
        return None


def test_subjects_and_rules_are_as_brokers_read_them() -> None:
    """Character by character, over every string type, special character and form of a rule."""
    ders, pairs = list(names()), [(rules, subject) for rules in RULES for subject in SUBJECTS]
    lines = [f"dn {tlv(48, der).hex()}" for der in ders]
    lines += [f"rule {b64(rules)} {b64(subject)}" for rules, subject in pairs]
    done = run_java(str(SOURCE), stdin="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    theirs = [None if word == "-" else base64.b64decode(word).decode() for word in done.stdout.splitlines()]
    ours = [written(der) for der in ders] + [user(rules, subject) for rules, subject in pairs]
    different = [(line, a, b) for line, a, b in zip(lines, theirs, ours, strict=True) if a != b]
    assert different == []
