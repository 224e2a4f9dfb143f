"""Who is ended when connections hold too much."""

from enforcer.core.metrics import Traffic
from enforcer.host.memory import MemoryBudget, resident_bytes


class Held:
    """Somebody who holds bytes."""

    def __init__(self, size: int) -> None:
        self.held_bytes = size
        self.reason = ""

    def cut(self, reason: str) -> None:
        """Ended."""
        self.reason = reason


def look(resident: int, *sizes: int) -> list[bool]:
    """Which of those who hold so much are ended at a bound of 200."""
    held, traffic = [Held(size) for size in sizes], Traffic()
    MemoryBudget(200, lambda: held, traffic, lambda: resident).look()
    assert traffic.resident == resident
    return [one.reason == "memory" for one in held]


def test_the_greediest_end_until_the_rest_fits() -> None:
    """Half of the bound is theirs; who holds most goes first, nobody else."""
    assert look(150, 10, 70, 30, 60) == [False, True, False, False]
    assert look(150, 10, 70, 90, 60) == [False, True, True, False]
    assert look(150, 10, 90) == [False, False]


def test_nobody_is_asked_while_the_process_is_small() -> None:
    """Connections cannot hold more than the process has."""
    assert look(100, 500) == [False]


def test_the_process_is_measured() -> None:
    """A page at least, and less than the machine has."""
    assert 1 << 20 < resident_bytes() < 1 << 40
