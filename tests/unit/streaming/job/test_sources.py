"""What the job's sources ask of Spark."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.contract.topics import Topics
from streaming.job.sources import kafka_policies, kafka_requests, kafka_usage
from streaming.job.spark.settings import JobSettings, Profile


class Reader:
    """A stream reader that notes its options."""

    def __init__(self) -> None:
        self.noted: dict[str, Any] = {}

    def format(self, name: str) -> "Reader":
        """Its kind."""
        return self.options(format=name)

    def options(self, **options: Any) -> "Reader":
        """Many at once."""
        self.noted |= options
        return self

    def option(self, name: str, value: Any) -> "Reader":
        """One."""
        return self.options(**{name: value})

    def load(self) -> dict[str, Any]:
        """In place of a frame, what it was asked for."""
        return self.noted


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize(
    ("source", "topic", "cap"),
    [
        (kafka_requests, "weir.requests", 7),
        (kafka_usage, "weir.usage", 3),
        (kafka_policies, "weir.policies", None),
    ],
)
def test_each_topic_has_its_own_cap(
    source: Callable[..., Any], topic: str, cap: int | None, profile: Profile
) -> None:
    """A batch of usage has fewer records than one of requests, since each may be large; policies no cap."""
    settings = JobSettings(max_events_per_batch=7, max_usage_per_batch=3, profile=profile)
    found = source(SimpleNamespace(readStream=Reader()), settings, "h:1", Topics())
    assert (found["subscribe"], found.get("maxOffsetsPerTrigger")) == (topic, cap)
