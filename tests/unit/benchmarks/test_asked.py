"""A process that is asked line by line."""

import pytest

from benchmarks.load.asked import Asked
from streaming.contract.errors import WeirError

ECHO = "import sys, json\nfor line in sys.stdin:\n    print(json.dumps([json.loads(line)]), flush=True)"


def test_it_answers_until_its_input_ends() -> None:
    """Each line with one, and ends by itself."""
    with Asked("-c", ECHO) as process:
        assert process.ask({"a": 1}) == [{"a": 1}] and process.ask(2) == [2]
        assert process.status is None and process.pid > 0
    assert process.status == 0


def test_one_that_has_ended_is_no_answer() -> None:
    """It says so, at once."""
    with Asked("-c", "input(); raise SystemExit(3)") as process:
        for _ in range(2):
            with pytest.raises(WeirError, match="status 3"):
                process.ask(1)
