"""What becomes of a client is noted (tests/soak)."""

from pathlib import Path

from soak_clients import Client
from soak_history import History, Recorder


class Failing(Client):
    """Ends by an error."""

    def run(self) -> None:
        """See Client."""
        raise ValueError("broken\noff")


def test_a_client_that_fails_is_noted(tmp_path: Path) -> None:
    """Its thread's end alone would look like that of any other."""
    file = tmp_path / "history.jsonl"
    with Recorder(file) as told, Failing(told, "who"):
        pass

    failed = {"kind": "failed", "who": "who", "why": "ValueError('broken\\noff')"}
    assert History.read(file)["failed"] == [failed]
