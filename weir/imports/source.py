"""What a kind of log is to the command: which events its lines become, and what it does not say."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from weir.imports.reading import LogLine

Event = dict[str, Any]


class Source(ABC):
    """A log of requests, read line by line.

    Attributes:
        counted: how many lines became what; for people.
        lacking: how often the log did not say what had to be known.
    """

    what: ClassVar[str]
    """What its lines are, as people call them."""
    expected: ClassVar[str]
    """How one looks."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self.lacking: Counter[str] = Counter()

    @abstractmethod
    def is_one(self, value: bytes) -> bool:
        """Whether a line is one of such a log: others may stand between them."""

    @abstractmethod
    def time_of(self, value: bytes, file: str) -> int | None:
        """The time of a line of a file, ms since the epoch; None: it has none."""

    @abstractmethod
    def events(self, line: LogLine) -> Iterator[Event]:
        """What a line becomes.

        Raises:
            BadEvent: it cannot be used, and why.
            KeyError, TypeError, ValueError, OverflowError, AttributeError: it has not the form that it
                should have.
        """

    def rest(self) -> Iterable[Event]:
        """What is left when all lines were read."""
        return ()

    def notes(self) -> Iterable[str]:
        """What people have to know of what the log did not say."""
        return ()
