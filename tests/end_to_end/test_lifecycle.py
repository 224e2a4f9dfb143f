"""How a stack ends, whoever ends it, and the demo: each has a stack of its own."""

import os
import signal
from pathlib import Path

import pytest
from stack_kit import Up, did, running, until


def starting(folder: Path) -> tuple[Up, dict[str, int]]:
    """A stack whose parts have been started but may not be ready, and their process ids by name."""
    stack = Up(folder)
    stack.launch()
    assert stack.process is not None
    children = Path(f"/proc/{stack.process.pid}/task/{stack.process.pid}/children")
    # Kafka is a Java program, all others are commands of ours.
    names = ("kafka.Kafka", "job", "proxy", "admin", "collect")

    def found() -> dict[str, int]:
        words = {int(pid): Path(f"/proc/{pid}/cmdline").read_text() for pid in children.read_text().split()}
        return {name: pid for pid, said in words.items() for name in names if name in said.split("\0")}

    until(lambda: len(found()) == len(names), what="all parts", limit_s=60)
    return stack, found()


def test_dead_part_is_named_and_stops_the_rest(tmp_path: Path) -> None:
    """Without --restart a part that dies is named with the end of its log, and the exit status is 1."""
    stack, pids = starting(tmp_path)
    os.kill(pids["proxy"], signal.SIGKILL)

    assert stack.wait() == 1
    assert "weir: proxy ended with status -9" in stack.text()
    until(lambda: not any(map(running, pids.values())), what="the end of all parts", limit_s=10)


def test_killed_stack_leaves_no_process_behind(tmp_path: Path) -> None:
    """kill -9 of `weir up` itself takes its children along, though no code of ours runs then."""
    stack, pids = starting(tmp_path)

    stack.signal(signal.SIGKILL)

    stack.wait()
    until(lambda: not any(map(running, pids.values())), what="the end of all parts", limit_s=10)


@pytest.mark.soak
def test_demo_shows_decisions_and_ends_by_itself(tmp_path: Path) -> None:
    """What `make run` runs: three real clients, the job's decisions and what each client saw, exit 0."""
    settings = tmp_path / "weir.yaml"
    settings.write_text("local: {kafka_port: 0}\nproxy: {decision_timeout_ms: 10000}\n")
    shown = did(
        "demo", "--once", "--data", str(tmp_path / "data"), "--settings", str(settings),
        "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--admin", "127.0.0.1:0", limit_s=240,
    )  # fmt: skip
    for seen in (
        "created, created, created, error 89",
        "waited and tried again: created",
        "Created topic",
        "retry after",
        "job decides",
        "confluent-2, 1 partitions: created after",
    ):
        assert seen in shown
