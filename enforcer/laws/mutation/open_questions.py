"""Who waits for what: subjects that must wait, and those with too many questions open.

A question takes the job's time, and a subject that asks very many at once would make everybody else wait for
theirs. So each has so many open at a time, and its next ones stand in line, first come, first served.
"""

from collections.abc import Callable
from typing import Final

Wake = Callable[[], None]
_LINE: Final = "line "
_WOKEN_MAX: Final = 8
"""Called at a time: each may handle a request, and the loop has other things to do."""


class OpenQuestions:
    """Open questions by subject, and whom to call when somebody may go on.

    Args:
        per_subject: questions that one subject may have open,
        in_all: and all of them together.
    """

    def __init__(self, per_subject: int, in_all: int) -> None:
        self._per_subject = per_subject
        self._in_all = in_all
        self._open: dict[str, int] = {}
        self._open_in_all = 0
        # In order of arrival; as many as there are connections, each is in one line at most.
        self._waiting: dict[str, dict[Wake, None]] = {}

    def full(self, subject: str) -> bool:
        """Whether a further question of the subject has to wait."""
        return self._open_in_all >= self._in_all or self._open.get(subject, 0) >= self._per_subject

    def busy(self, subject: str) -> bool:
        """Whether any question of the subject is open."""
        return subject in self._open

    def begin(self, subject: str) -> None:
        """A question of the subject is open from now on."""
        self._open[subject] = self._open.get(subject, 0) + 1
        self._open_in_all += 1

    def end(self, subject: str) -> None:
        """One is not open any more: call those that stand in line for it."""
        left = self._open.pop(subject) - 1
        if left:
            self._open[subject] = left
        was_full = self._open_in_all >= self._in_all
        self._open_in_all -= 1
        own = line_of(subject)
        if was_full:
            # The place is everybody's: who has waited longest may be of a subject that has none open.
            other = next((name for name in self._waiting if name.startswith(_LINE) and name != own), None)
            for wake in list(self._waiting.get(other or "", ()))[:1]:
                wake()
        for wake in list(self._waiting.get(own, ()))[:_WOKEN_MAX]:
            if self.full(subject):
                break
            wake()

    def wait_for(self, name: str, wake: Wake) -> None:
        """Call `wake` when it is time; it stays until `stop_waiting`.

        Args:
            name: a subject whose not-before time is waited for, or the `line_of` one.
        """
        self._waiting.setdefault(name, {})[wake] = None

    def stop_waiting(self, name: str, wake: Wake) -> None:
        """Undo `wait_for`."""
        waiting = self._waiting.get(name, {})
        waiting.pop(wake, None)
        if not waiting:
            self._waiting.pop(name, None)

    def wake(self, name: str) -> None:
        """Call all who wait for this."""
        for wake in list(self._waiting.get(name, ())):
            wake()

    def wake_all(self) -> None:
        """Call everybody."""
        for name in list(self._waiting):
            self.wake(name)


def line_of(subject: str) -> str:
    """The name under which one stands in line for a subject's open questions; no subject begins so."""
    return f"{_LINE}{subject}"
