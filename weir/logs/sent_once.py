"""Records as they were sent first: what a producer sent again is left out, as the job does."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, cast

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from streaming.columns.sent import SENT_HEADER, SentBefore
from weir.logs.dump_lines import DumpSummary

_AT_ONCE: Final = 100
"""Messages that are held meanwhile, of up to 1 MB each."""


def sent_once(messages: Iterable[Message], counts: DumpSummary) -> Iterator[Message]:
    """The messages of one partition, in order, but for copies; these are counted."""
    every, before = iter(messages), SentBefore()
    while some := list(islice(every, _AT_ONCE)):
        places = [(one.partition(), one.offset(), one.timestamp()[1]) for one in some]
        partition, offset, ts = np.array(places, dtype=np.int64).T
        copies = before.copies(partition, offset, ts, pa.array(map(_sent, some), pa.binary())).tolist()
        counts.copies += sum(copies)
        yield from (one for one, is_copy in zip(some, copies, strict=True) if not is_copy)


def _sent(message: Message) -> bytes | None:
    # A list, whatever the library's types say.
    headers = cast(list[tuple[str, bytes | None]], message.headers() or [])
    return next((value for name, value in headers if name == SENT_HEADER), None)
