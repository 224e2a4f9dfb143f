"""`weir healthy`: well, or one line that says what is wrong."""

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from served import answering, saying

from streaming.contract.errors import WeirError
from weir.cli import DONE, FAILED, main
from weir.foreground import AWAY, HERE, forget_ready_file, write_ready_file
from weir.health import check_health

LIMIT_S = 2.0
HUNG_S = 0.3


@contextmanager
def metrics(status: int = 200, host: str = "127.0.0.1") -> Iterator[str]:
    """The URL of somebody's metrics."""
    with answering(status) as port:
        yield f"http://{host}:{port}/metrics"


@contextmanager
def ended() -> Iterator[int]:
    """The id of a process that has ended, of which nobody has taken note yet."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    try:
        yield process.pid
    finally:
        process.wait()


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """Where the ready file is."""
    return tmp_path / "ready.json"


def unwell(ready: Path, limit_s: float = LIMIT_S) -> str:
    """What is wrong."""
    with pytest.raises(WeirError) as said:
        check_health(ready, limit_s)
    assert "\n" not in str(said.value)
    return str(said.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_part_that_answers_is_well(ready: Path, host: str) -> None:
    """Who listens everywhere is asked here."""
    with metrics(host=host) as url:
        write_ready_file(ready, {"pid": os.getpid(), "jvm_pid": os.getpid(), "metrics": url})
        check_health(ready, LIMIT_S)
        assert main(["healthy", str(ready)]) == DONE


def test_one_without_metrics_is_well_while_it_runs(ready: Path) -> None:
    """They are not asked for everywhere."""
    write_ready_file(ready, {"pid": os.getpid(), "metrics": None})
    check_health(ready, LIMIT_S)


def test_before_it_is_ready_it_is_not_well(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor after it was started anew: what the last one said is gone."""
    write_ready_file(ready, {"pid": os.getpid()})
    forget_ready_file(ready)
    assert main(["healthy", str(ready)]) == FAILED
    assert capsys.readouterr().err == f"weir: not ready yet: {ready} is not there\n"


@pytest.mark.parametrize("name", ["pid", "jvm_pid"])
def test_one_of_whose_processes_ended_is_not(ready: Path, name: str) -> None:
    """As after a kill, when the file of it stays."""
    with ended() as pid:
        write_ready_file(ready, {"pid": os.getpid(), name: pid})
        assert unwell(ready) == f"process {pid} ({name}) has ended"


def test_one_that_serves_without_the_job_is_well_and_says_so(
    ready: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rollout need not wait for the job."""
    write_ready_file(ready, {"pid": os.getpid(), "workers": [{"job": HERE}, {"job": AWAY}]})
    assert main(["healthy", str(ready)]) == DONE
    assert "without the job" in capsys.readouterr().out


def test_each_of_several_workers_has_to_be_well(ready: Path) -> None:
    """They share a port, so one that hangs takes its part of the clients along."""
    with metrics() as url, metrics(status=500) as broken:
        workers = [{"pid": os.getpid(), "metrics": url}, {"pid": os.getpid(), "metrics": broken}]
        write_ready_file(ready, {**workers[0], "workers": workers})
        assert unwell(ready) == f"{broken} answers with status 500; expected 200"


def test_one_that_hangs_is_not_well(ready: Path) -> None:
    """Its process lives and takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
        write_ready_file(ready, {"pid": os.getpid(), "metrics": url})
        assert unwell(ready, HUNG_S) == f"{url} does not answer: timed out"


def test_one_that_answers_byte_by_byte_is_not_waited_for(
    ready: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each byte came within the limit of one read, so a check of four seconds took as long as it liked."""
    told = threading.Event()

    def serve() -> None:
        with server.accept()[0] as asking:
            asking.sendall(b"HTTP/1.1 ")
            while not told.wait(0.05):
                asking.sendall(b"2")

    with socket.create_server(("127.0.0.1", 0)) as server:
        slow = threading.Thread(target=serve)
        slow.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
        write_ready_file(ready, {"pid": os.getpid(), "metrics": url})
        given_up = threading.Timer(20, told.set)
        given_up.start()
        assert main(["healthy", str(ready), "--limit", str(HUNG_S)]) == FAILED
        given_up.cancel()
        told.set()
        slow.join()
    assert capsys.readouterr().err == f"weir: {ready}: not all has answered within {HUNG_S} s\n"


def test_one_that_nobody_hears_is_not_well(ready: Path) -> None:
    """Its port is closed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
    write_ready_file(ready, {"pid": os.getpid(), "metrics": url})
    assert unwell(ready).startswith(f"{url} does not answer: ")


@pytest.mark.parametrize("content", ["", "[1]", '{"pid":'])
def test_what_is_no_ready_file_is_said(ready: Path, content: str) -> None:
    """Whatever else was named."""
    ready.write_text(content)
    assert str(ready) in unwell(ready)


@pytest.mark.parametrize(("brokers", "well"), [(1, True), (0, False)])
def test_a_broker_is_asked_for_its_cluster(ready: Path, brokers: int, well: bool) -> None:
    """It has no metrics; one that knows no broker, itself included, takes nothing yet."""
    with saying(struct.pack(">iii", 8, 1, brokers)) as port:
        write_ready_file(ready, {"kafka": f"127.0.0.1:{port}", "pid": os.getpid()})
        if well:
            check_health(ready, LIMIT_S)
        else:
            assert unwell(ready) == f"the broker at 127.0.0.1:{port} does not answer"


def test_a_local_pulsar_has_to_answer_too(ready: Path) -> None:
    """One that hung was well as long as its process lived; one that wants a login answers."""
    with metrics(status=401) as url:
        write_ready_file(ready, {"pulsar": "h:1", "pulsar_admin": url, "pid": os.getpid()})
        check_health(ready, LIMIT_S)
    assert unwell(ready).startswith(f"{url} does not answer: ")
