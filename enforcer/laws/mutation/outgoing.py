"""Events on their way out, and what else need not be done before a client's request goes on."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from enforcer.core.reports import Acknowledged

Called = Callable[[], None]


class Sender(Protocol):
    """Where events go; see reports.Reports."""

    def send(self, event: Mapping[str, Any], key: str, *, acked: Acknowledged | None = None) -> bool:
        """Hand an event over; False if it was dropped."""
        ...

    def room(self) -> bool:
        """Whether an event handed over now would not be dropped."""
        ...


class Outgoing:
    """Hands events over, in the order in which they were given: by their times the job counts on that.

    The event of a request that was decided here goes beside the request (docs/contract.md 3.1). To write it
    takes longer than to decide, so it is put off for the moment that the loop needs to send the request on.

    Args:
        sender: takes events.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._waiting: deque[Called] = deque()
        self.soon: Callable[[Called], object] = lambda function: function()
        """Calls a function once what was written to sockets has left; set by whoever owns the loop."""

    def send(self, event: Mapping[str, Any], key: str, *, acked: Acknowledged | None = None) -> bool:
        """Hand an event over now, behind those that wait; False if it was dropped."""
        self.catch_up()
        return self._sender.send(event, key, acked=acked)

    def room(self) -> bool:
        """Whether there is room for one more, those that were put off aside: of these there are few."""
        return self._sender.room()

    def send_soon(self, event: Mapping[str, Any], key: str, acked: Acknowledged) -> None:
        """Hand an event over in a moment; `acked` is told None if it was dropped."""
        self.later(partial(self._send, event, key, acked))

    def later(self, function: Called) -> None:
        """Call a function in a moment, in its turn."""
        self._waiting.append(function)
        if len(self._waiting) == 1:
            self.soon(self.catch_up)

    def catch_up(self) -> None:
        """Do all that was put off."""
        try:
            while self._waiting:
                self._waiting.popleft()()
        finally:
            if self._waiting:
                # A mistake in one: the others have their turn all the same.
                self.soon(self.catch_up)

    def _send(self, event: Mapping[str, Any], key: str, acked: Acknowledged) -> None:
        if not self._sender.send(event, key, acked=acked):
            acked(None)
