"""Load for a job on a cluster, and whether its decisions are those of the local engine, byte for byte."""

from pathlib import Path

import orjson
import stack_kit
from job_broker_kit import TOPICS, USERS, Broker
from job_kit import Job

from streaming.laws.mutation.table import WARM_ROWS


def replayed(bootstrap: str, folder: Path) -> dict[str, bytes]:
    """What the local engine makes of what stands on the topics: the decisions as they are written, by id."""
    return {orjson.loads(line)["id"]: line for line in stack_kit.replayed(bootstrap, folder)}


def limits(broker: Broker) -> None:
    """Each user's quota, before anything else: as in a dump, where they have to stand first."""
    broker.limit("<default>", 5)
    for user in range(USERS):
        broker.limit(f"u{user}", 1 + user)
    broker.flush()


def crowded(broker: Broker, job: Job) -> set[str]:
    """A job that begins with limits, one request and a crowd; the crowd's names, once all is decided."""
    limits(broker)
    job.start()
    warm(broker)
    names = crowd(broker, "first")
    broker.wait_for(names)
    return names


def warm(broker: Broker) -> None:
    """Have the first batch decided."""
    broker.request("warm", "u0", 0)
    broker.flush()
    broker.wait_for({"warm"})


def crowd(broker: Broker, name: str) -> set[str]:
    """One request each of so many users that every shard lays rows to rest beside the checkpoint."""
    names = {f"{name}-{number}" for number in range(3 * WARM_ROWS)}
    for number, each in enumerate(sorted(names)):
        broker.request(each, f"many{number}", number % 9)
    broker.flush()
    return names


def check(broker: Broker, bootstrap: str, names: set[str], folder: Path) -> None:
    """Every request is decided, repeats are equal, and all of it is what the local engine says."""
    broker.wait_for(names)
    live = broker.values(TOPICS.decisions)
    expected = replayed(bootstrap, folder)
    assert {orjson.loads(value)["outcome"] for value in live} == {"allow", "reject"}
    assert {orjson.loads(value)["id"] for value in live} == names | {"warm"}
    assert set(live) == set(expected.values())
