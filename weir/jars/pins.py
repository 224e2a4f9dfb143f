"""The jars of a pom, each with its SHA-256 and its place in a Maven repository, as they are committed
beside it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streaming.contract.errors import WeirError

LIST: Final = "jars.sha256"
POM: Final = "pom.xml"
_HEX_DIGITS: Final = 64


@dataclass(frozen=True, slots=True, order=True)
class Pin:
    """One jar.

    Attributes:
        path: in any Maven repository, from its root: group, artifact, version, file.
        digest: its SHA-256, in hexadecimal.
    """

    path: str
    digest: str

    @property
    def name(self) -> str:
        """Of the file; no two jars of a pom share one."""
        return self.path.rpartition("/")[2]


def pins_of(source: Path) -> list[Pin]:
    """The pins of a pom, in the order of their paths.

    Args:
        source: folder with the pom and its list, whose lines are those of `sha256sum` in a repository's root.

    Raises:
        WeirError: there is no list, or it is not one.
    """
    file = source / LIST
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise WeirError(f"the list of jars {file} cannot be read: {error.strerror}") from error
    pins = []
    for number, line in enumerate(lines, 1):
        digest, _, path = line.partition("  ")
        if len(digest) != _HEX_DIGITS or not path.endswith(".jar"):
            raise WeirError(f"{file}:{number}: expected a SHA-256, two spaces and a path, got {line!r}")
        pins.append(Pin(path, digest))
    return pins


def written(pins: Sequence[Pin]) -> str:
    """The text of a list."""
    return "".join(f"{pin.digest}  {pin.path}\n" for pin in sorted(pins))


def digest_of(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def differences(folder: Path, pins: Sequence[Pin]) -> list[str]:
    """What keeps the jars in a folder from being exactly the pinned ones, a line each."""
    wanted = {pin.name: pin.digest for pin in pins}
    found = {file.name: digest_of(file) for file in sorted(folder.glob("*.jar"))}
    return [
        *(f"{name} is not in the list" for name in found if name not in wanted),
        *(
            f"{name} has SHA-256 {digest}, expected {wanted[name]}"
            for name, digest in found.items()
            if digest != wanted.get(name, digest)
        ),
        *(f"{name} was not fetched" for name in wanted if name not in found),
    ]
