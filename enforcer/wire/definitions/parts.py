"""What the definitions of newer messages are made of."""

from typing import Any, Final

Definition = dict[str, Any]
"""A message, a struct of one or a field of that, as Kafka's JSON says it."""


def f(name: str, kind: str, versions: str = "0+", **more: Any) -> Definition:
    """A field."""
    return {"name": name, "type": kind, "versions": versions, **more}


def null(name: str, kind: str, versions: str = "0+", **more: Any) -> Definition:
    """A field that may be null, and is where nobody says anything."""
    return f(name, kind, versions, nullableVersions="0+", default="null", **more)


def by_name(name: str, *fields: Definition) -> Definition:
    """A list of topics by name."""
    return f(name, "[]Topic", fields=[f("TopicName", "string"), *fields])


def message(versions: str, *fields: Definition) -> Definition:
    """A request or response, which is of these versions."""
    return {"validVersions": versions, "fields": list(fields)}


HEARD: Final = [f("TopicId", "uuid"), f("Partitions", "[]int32")]
DESCRIBED: Final = [f("TopicId", "uuid"), f("TopicName", "string"), f("Partitions", "[]int32")]
ASSIGNMENT: Final = [f("TopicPartitions", "[]TopicPartitions", fields=DESCRIBED)]
ERROR: Final = [f("ErrorCode", "int16"), null("ErrorMessage", "string")]
THROTTLED: Final = [f("ThrottleTimeMs", "int32"), *ERROR]
