"""The life of one part of the stack, with real child processes and a clock of our own."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.contract.errors import WeirError
from weir.foreground import AWAY, HERE, StopSignal, write_ready_file
from weir.stack.parts import BACKOFF_MAX_S, RESTARTS_MAX, STEADY_S, Broker, Change, Part, look_after
from weir.stack.process import Child, running, wait_until_gone
from weir.stack.scrape import joined
from weir.stack.server import LocalServer

START_S = 10.0


class Clock:
    """Monotonic seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """At 100 s."""
    return Clock()


@pytest.fixture
def part(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Part]:
    """A part whose process only sleeps; it may fail three times."""
    monkeypatch.setattr("weir.stack.parts.RESTARTS_MAX", 3)
    log = tmp_path / "job.log"
    made = Part("job", [], log=log, run_dir=tmp_path, start_s=START_S, now=clock)
    made.child = Child("job", [sys.executable, "-c", "import time; time.sleep(60)"], log=log)
    yield made
    made.kill()


def test_part_is_ready_once_its_file_is_there(part: Part, tmp_path: Path) -> None:
    """What an earlier run left is not taken for it."""
    (tmp_path / "job.json").write_text('{"pid": 1}')
    part.start()
    assert part.look() is Change.NONE
    write_ready_file(tmp_path / "job.json", {"pid": part.child.pid, "metrics": None})
    assert part.look() is Change.READY
    assert part.look() is Change.NONE
    assert part.ready == {"pid": part.child.pid, "metrics": None}


@pytest.mark.parametrize("alone", [False, True])
def test_a_proxy_that_serves_without_the_job(tmp_path: Path, clock: Clock, alone: bool) -> None:
    """The stack waits for the job to decide, however long; workers are ready, and once more then."""
    file = tmp_path / "proxy.json"
    part = Part("proxy", [], log=None, run_dir=tmp_path, start_s=START_S, alone=alone, now=clock)
    part.child = Child("proxy", [sys.executable, "-c", "import time; time.sleep(60)"], log=None)
    part.start()
    try:
        write_ready_file(file, {"job": AWAY})
        assert [part.look() for _ in range(2)] == [Change.READY if alone else Change.NONE, Change.NONE]
        assert (part.ready is not None) == alone
        clock.now += START_S + 0.1
        assert part.look() is Change.NONE
        write_ready_file(file, {"job": HERE})
        assert [part.look() for _ in range(2)] == [Change.READY, Change.NONE]
        assert part.ready == {"job": HERE}
    finally:
        part.kill()


def test_part_that_is_not_ready_in_time_is_late(part: Part, clock: Clock) -> None:
    """After its limit, not before."""
    part.start()
    clock.now += START_S
    assert part.look() is Change.NONE
    clock.now += 0.1
    assert part.look() is Change.LATE
    assert part.why().startswith("job was not ready after 10 s of silence; the end of ")


def test_part_that_says_something_is_not_late(part: Part, clock: Clock, tmp_path: Path) -> None:
    """It lives, and would begin anew; silent from then on it is."""
    part.start()
    for said in range(3):
        clock.now += START_S
        with (tmp_path / "job.log").open("a") as log:
            log.write(f"not ready yet {said}\n")
        assert part.look() is Change.NONE
    clock.now += START_S + 0.1
    assert part.look() is Change.LATE


def test_dead_part_is_explained_by_its_log(part: Part, tmp_path: Path) -> None:
    """The exit status and the last lines."""
    code = "print('first'); print('no memory left', flush=True); raise SystemExit(3)"
    part.child = Child("job", [sys.executable, "-c", code], log=tmp_path / "job.log")
    part.start()
    assert part.child.wait(20)
    assert part.look() is Change.DIED
    why = part.why(lines=1)
    assert "job ended with status 3" in why and "no memory left" in why and "first" not in why


def test_restarts_come_later_and_later_and_end(part: Part, clock: Clock) -> None:
    """1, 2, 4 s; then none."""
    part.start()
    for pause in (1.0, 2.0, 4.0):
        assert part.plan_restart() == pause
        assert part.look() is Change.NONE and not part.child.alive()
        clock.now += pause
        assert part.look() is Change.NONE and part.child.alive()
    assert part.plan_restart() is None


def test_a_restart_without_room_for_a_process_is_a_failure_like_any(
    part: Part, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine with too many processes: all other parts, and workers with their clients, ended with it."""

    def refuse(*args: object, **others: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    part.start()
    part.plan_restart()
    clock.now += 1.0
    with monkeypatch.context() as patched:
        patched.setattr("weir.stack.process.subprocess.Popen", refuse)
        assert part.look() is Change.NONE
    assert part.look() is Change.DIED and part.plan_restart() == 2.0


def test_one_that_ends_is_started_again_as_often_as_may_be(part: Part, clock: Clock) -> None:
    """Which is said each time; then, or where nobody wants it, all the others are ended with it."""
    said: list[str] = []
    part.child = Child("job", [sys.executable, "-c", ""], log=None)
    part.start()
    for pause_s in (1.0, 2.0, 4.0):
        assert part.child.wait(20) and look_after([part], said.append)
        ended = f"job (process {part.child.pid}) ended with status 0; see its lines above"
        assert said[-1] == f"{ended}\nrestarting job in {pause_s} s"
        clock.now += pause_s
        assert not look_after([part], said.append)
    assert part.child.wait(20)
    for restart, why in ((False, "see its lines above$"), (True, "above\njob failed too often$")):
        with pytest.raises(WeirError, match=why):
            look_after([part], said.append, restart=restart)
    assert len(said) == 3


def test_pause_before_a_restart_has_a_bound(tmp_path: Path, clock: Clock) -> None:
    """However often it fails, and it fails so often only."""
    part = Part("job", [], log=tmp_path / "log", run_dir=tmp_path, start_s=1.0, now=clock)
    assert max(part.plan_restart() or 0.0 for _ in range(RESTARTS_MAX)) == BACKOFF_MAX_S
    assert part.plan_restart() is None


class Sleeping(LocalServer):
    """A server that answers once it is told to; it says something meanwhile."""

    name = "Kafka"
    answers = False

    def _begin(self) -> None:
        self.children.append(Child("kafka", ["sleep", "60"], log=self.data_dir / "kafka.log"))
        self.children[0].start()

    def unready(self) -> str:
        """Until then."""
        with (self.data_dir / "kafka.log").open("a") as log:
            log.write("starting\n")
        return "" if self.answers else "it does not answer"


def test_a_broker_is_started_again_as_any_part(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was at once and for ever, while nobody looked after others; one start that failed ended all."""
    monkeypatch.setattr("weir.stack.parts.RESTARTS_MAX", 2)
    server, said = Sleeping(tmp_path), list[str]()
    broker = Broker(server, start_s=START_S)
    broker._now = clock
    broker.start()
    server.answers = True
    assert look_after([broker], said.append) and broker.ready == {"pid": server.pids[0]}
    assert said == [f"kafka (process {server.pids[0]}) is ready (0.0 s)"]
    server.kill()
    look_after([broker], said.append)
    assert said[-1].startswith(f"kafka ended with status -9; the end of {tmp_path}/kafka.log:")
    assert said[-1].endswith("\nrestarting kafka in 1.0 s") and broker.ready is None
    server.answers = False
    clock.now += 1.0
    assert not look_after([broker], said.append) and broker.child.alive()
    clock.now += START_S
    assert not look_after([broker], said.append)
    clock.now += 0.1
    assert look_after([broker], said.append) and not broker.child.alive()
    assert said[-1].startswith("kafka was not ready after 10 s; the end of ")
    clock.now += 2.0
    look_after([broker], said.append)
    server.kill()
    with pytest.raises(WeirError, match=r"kafka failed too often$"):
        look_after([broker], said.append)


def test_part_that_ran_for_long_starts_a_new_count(part: Part, clock: Clock, tmp_path: Path) -> None:
    """Its failures of long ago are forgotten."""
    part.start()
    assert part.plan_restart() == 1.0
    clock.now += 1.0
    part.look()
    write_ready_file(tmp_path / "job.json", {"pid": 1})
    assert part.look() is Change.READY
    clock.now += STEADY_S + 1
    part.look()
    assert part.plan_restart() == 1.0


def test_child_that_ignores_term_is_killed(tmp_path: Path) -> None:
    """TERM first, KILL after the limit, and the caller hears of it."""
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('on', flush=True); time.sleep(60)"
    )
    child = Child("deaf", [sys.executable, "-c", code], log=tmp_path / "log")
    child.start()
    while not child.last_lines():
        assert child.alive()
    assert child.stop(term_s=0.2) is False
    assert child.poll() == -signal.SIGKILL
    assert wait_until_gone(child.pid, 5) and not running(child.pid)


def test_child_that_ends_on_term_ended_by_itself(tmp_path: Path) -> None:
    """No kill is needed."""
    child = Child("good", [sys.executable, "-c", "import time; time.sleep(60)"], log=tmp_path / "log")
    child.start()
    assert child.stop(term_s=10) is True
    assert child.poll() == -signal.SIGTERM


def test_child_that_never_started_is_no_trouble(tmp_path: Path) -> None:
    """Stopping, killing and asking are harmless."""
    child = Child("none", ["true"], log=tmp_path / "log")
    assert child.stop() is True
    child.kill()
    assert (child.pid, child.poll(), child.alive(), child.last_lines()) == (0, None, False, [])


def test_last_lines_forge_nothing(tmp_path: Path) -> None:
    """A part logs what clients call themselves; its own lines are told apart by line feeds alone."""
    child = Child("loud", ["true"], log=tmp_path / "log")
    child.log.write_bytes(b"first\r\n\tat a\x1b[2K\x85b\xc2\x85\xe2\x80\xaec\n")
    assert child.last_lines() == ["first", "    at a\\x1b[2K\ufffdb\\x85\\u202ec"]
    assert child.last_lines(1) == child.last_lines()[1:]


def test_second_signal_forces() -> None:
    """The first one only asks."""
    forced: list[bool] = []
    stop = StopSignal(force=lambda: forced.append(True))
    stop.install()
    assert not stop.wait(0)
    signal.raise_signal(signal.SIGTERM)
    assert stop.asked and forced == []
    signal.raise_signal(signal.SIGINT)
    assert forced == [True]


def test_a_part_may_be_another_ones_command(tmp_path: Path) -> None:
    """Two proxies are two parts."""
    made = Part(
        "pulsar_proxy", ["--help"], command="proxy", log=tmp_path / "pulsar_proxy.log", run_dir=tmp_path,
        start_s=START_S,
    )  # fmt: skip
    made.start()
    assert made.child.wait(30)
    assert made.look() is Change.DIED
    assert "usage: weir proxy" in (tmp_path / "pulsar_proxy.log").read_text()
    assert made.why().startswith("pulsar_proxy ended with status 0")


def test_metrics_of_parts_that_do_not_answer_are_zero() -> None:
    """A part without an address or with a dead one is down, and the others' text is not lost."""
    text = joined({"job": None, "proxy": "http://127.0.0.1:1/metrics", "collect": "nonsense"}, 0.2)
    assert text.splitlines()[2:] == [
        f'weir_part_up{{part="{part}"}} 0' for part in ("job", "proxy", "collect")
    ]
