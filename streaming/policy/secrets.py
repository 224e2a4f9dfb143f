"""Settings that stand in a file of their own: `${dir:FOLDER:FILE}` is the content of FOLDER/FILE (KIP-421).

So a settings file holds no password, and containers get theirs as they get all secrets: as files.
"""

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator

from streaming.policy.validation import expected, wrong

# As Kafka's ConfigTransformer reads ${PROVIDER:PATH:KEY}, for DirectoryConfigProvider alone.
_REFERENCE: Final = re.compile(r"\$\{dir:([^}:]*):([^}]*)\}")
_MAX_BYTES: Final = 64 * 1024
"""No password, token or certificate is longer."""
_EXPECTED: Final = "expected ${dir:FOLDER:FILE}, FOLDER from / on, FILE a name without a /"


def with_files(text: str) -> str:
    """The text with each reference replaced by its file's content, without the line break at its end.

    Raises:
        PydanticCustomError: a file cannot be read, or is no text; its content is never in the message.
    """
    return _REFERENCE.sub(_content, text)


def without_files(text: str) -> str:
    """The text as it is.

    Raises:
        PydanticCustomError: it refers to a file, but stands where others could read what it holds.
    """
    if _REFERENCE.search(text):
        raise wrong(
            "refers to a file, but stands on the command line of a process, which everybody may read;"
            " expected a property that names the file itself, or an environment variable"
        )
    return text


def _content(found: re.Match[str]) -> str:
    folder, name = found.groups()
    if not folder.startswith("/") or not name or "/" in name or name in (".", ".."):
        raise wrong(f"has {found.group()!r}; {_EXPECTED}")
    path = Path(folder) / name
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise wrong(
            f"refers to {path}, which cannot be read: {error.strerror}; expected a file with the value"
        ) from error
    if len(content) > _MAX_BYTES:
        raise wrong(f"refers to {path}, which is too long; expected at most {_MAX_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        # Without its cause, which would show some of it.
        raise wrong(f"refers to {path}, which is no text in UTF-8; expected a file with the value") from None
    return text.removesuffix("\n").removesuffix("\r")


SecretText = Annotated[str, AfterValidator(with_files), expected("text", writeOnly=True)]
"""A text of the settings that may refer to files."""
OpenText = Annotated[str, AfterValidator(without_files)]
"""A text that may not, since it does not stay with us."""
