"""A job that was away for longer than its topics hold events."""

import signal
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from job_broker_kit import WAIT_S, Broker
from job_kit import Job

REQUESTS = "weir.requests"


@pytest.mark.soak
def test_a_job_says_what_it_could_not_read_and_goes_on(
    make_job: Callable[..., Job], broker: Broker, bootstrap: str
) -> None:
    """Three requests are gone when it comes back: not charged, told, and what came later is decided."""
    job = make_job()
    broker.limit("u1", 1)
    broker.request("before", "u1", 4)
    broker.flush()
    job.start()
    broker.wait_for({"before"})
    job.end(signal.SIGKILL)
    for number in range(3):
        broker.request(f"gone-{number}", "u1", 100)
    broker.flush()
    upto = TopicPartition(REQUESTS, 0, 4)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_records([upto])[upto].result(WAIT_S)
    broker.request("later", "u1", 1)
    broker.flush()
    job.start()
    said = {one["id"]: one for one in broker.wait_for({"later"})}
    assert said.keys() == {"before", "later"} and said["later"]["outcome"] == "allow"
    assert f"3 records of {REQUESTS} were gone before this job read them" in job.log.read_text()
    assert job.end(signal.SIGTERM) == 0
