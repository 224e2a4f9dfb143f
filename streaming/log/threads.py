"""Stages of one work at the same time: Arrow and compiled code run without Python's lock."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Final, TypeVar

_Item = TypeVar("_Item")
_WAITING: Final = 1
"""Pieces of work that may wait while another is done: this bounds memory."""


def ahead(items: Iterable[_Item]) -> Iterator[tuple[_Item, bool]]:
    """Items, and whether each is the last one; while one is used the next but one is made in a thread."""
    source = iter(items)

    def make() -> list[_Item]:
        return list(islice(source, 1))

    with ThreadPoolExecutor(1) as thread:
        item, following = make(), thread.submit(make)
        while item:
            after = following.result()
            following = thread.submit(make)
            yield item[0], not after
            item = after


@contextmanager
def behind() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Takes work that a thread does in order; the end of the context waits until all is done.

    Raises:
        Exception: what the work raised.
    """
    waiting: deque[Future[None]] = deque()
    with ThreadPoolExecutor(1) as thread:

        def put(work: Callable[[], None]) -> None:
            while len(waiting) > _WAITING:
                waiting.popleft().result()
            waiting.append(thread.submit(work))

        try:
            yield put
            for each in waiting:
                each.result()
        finally:
            thread.shutdown(wait=True, cancel_futures=True)
