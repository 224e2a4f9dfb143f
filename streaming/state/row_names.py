"""The names by which rows of the mutation law are found: subjects, but none longer than it needs to be.

Kafka takes names of 32,767 bytes, and whoever makes up client-ids under a limit for `<default>` gets a row
for each. So a name beyond NAME_BYTES stands in rows as its digest. Decisions say the whole subject.
"""

from hashlib import sha256
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import bytes_in

NAME_BYTES: Final = 255
"""Longer names of users and client-ids, as subjects write them, are digested."""
_UTF8_BYTES: Final = 4
"""Of one character at most."""
_REPEATS: Final = 4
"""Of a digest's 64 hexadecimal digits: one more byte than NAME_BYTES, so it is nobody's name."""


def row_names(subjects: pa.Array) -> pa.Array:
    """Names of the rows of these canonical subjects, Arrow text; of nearly all the subject itself."""
    _, ends = bytes_in(subjects)
    long = np.diff(ends) > NAME_BYTES
    if not long.any():
        return subjects
    names = map(row_name, subjects.filter(pa.array(long)).to_pylist())
    return pc.replace_with_mask(subjects, pa.array(long), pa.array(names, pa.string()))


def row_name(subject: str) -> str:
    """Name of the row of a canonical subject.

    >>> row_name("user=alice,client-id=c")
    'user=alice,client-id=c'
    >>> len(row_name("user=alice,client-id=" + "c" * 32_767))
    277
    """
    if len(subject) * _UTF8_BYTES <= NAME_BYTES:
        return subject
    return ",".join(map(_short, subject.split(",")))


def _short(part: str) -> str:
    """`user=NAME` or `client-id=NAME` with a name that is not too long."""
    kind, equals, name = part.partition("=")
    text = name.encode()
    if len(text) <= NAME_BYTES:
        return part
    return f"{kind}{equals}{sha256(text).hexdigest() * _REPEATS}"
