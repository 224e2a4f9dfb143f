"""What commands take over of their process."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Those of this process, put back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
