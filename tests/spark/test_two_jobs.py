"""Two jobs on one Kafka, each with a checkpoint of its own: only one of them decides."""

import signal
from collections.abc import Callable

import orjson
import pytest
from job_broker_kit import WAIT_S, Broker
from job_kit import START_S, Job
from stack_kit import until


@pytest.mark.soak
def test_a_second_job_decides_only_once_the_first_is_gone(
    make_job: Callable[..., Job], broker: Broker
) -> None:
    """It names that one and ends. Nobody waits for what was killed on its own checkpoint, or for who left."""
    first, second = make_job("first"), make_job("second")
    broker.limit("u1", 1)
    broker.request("before", "u1", 1)
    broker.flush()
    first.start()
    broker.wait_for({"before"})
    until(
        lambda: any(orjson.loads(value)["type"] == "tick" for value in broker.values("weir.usage")),
        what="a tick", limit_s=WAIT_S,
    )  # fmt: skip
    first.end(signal.SIGKILL)
    pid = first.start()["pid"]
    assert "waiting for at most" not in first.log.read_text()
    with pytest.raises(AssertionError, match=rf"another job decides by weir\.usage on .*\(pid {pid} on host"):
        second.start()
    assert second.status() == 1
    broker.request("after", "u1", 1)
    broker.flush()
    decided = broker.wait_for({"before", "after"})
    assert [one["id"] for one in decided].count("after") == 1
    assert first.end(signal.SIGTERM) == 0
    said = len(second.log.read_text())
    second.start()
    assert "waiting for at most" not in second.log.read_text()[said:]
    assert second.end(signal.SIGTERM) == 0


@pytest.mark.soak
def test_of_two_jobs_that_start_together_one_goes_on(make_job: Callable[..., Job], broker: Broker) -> None:
    """Neither has ticked as both look for others, and both decided for good."""
    jobs = [make_job("first"), make_job("second")]
    broker.limit("u1", 1)
    broker.request("before", "u1", 1)
    broker.flush()
    for job in jobs:
        job.launch()
    until(lambda: any(job.status() == 1 for job in jobs), what="the later one has ended", limit_s=START_S)
    ended, goes_on = sorted(jobs, key=lambda job: job.status() is None)
    assert "another job decides by weir.usage" in ended.log.read_text() and goes_on.status() is None
    broker.request("after", "u1", 1)
    broker.flush()
    decided = broker.wait_for({"before", "after"})
    assert [one["id"] for one in decided].count("after") == 1
    assert goes_on.end(signal.SIGTERM) == 0
