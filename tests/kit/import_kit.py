"""Lines of Kafka's request log, made up."""

from typing import Any

import orjson


def line(key: int, time: str = "2026-11-26 10:00:00,500", **fields: Any) -> str:
    """A line as Kafka writes it."""
    logged = {
        "isForwarded": False, "totalTimeMs": 20.4, "principal": "User:alice", "listener": "PLAINTEXT",
        "connection": "10.0.0.1:9092-10.0.0.9:40000-0-0", "request": {}, "response": {},
        "requestHeader": {"requestApiKey": key, "requestApiVersion": 7, "clientId": "c"},
    } | fields  # fmt: skip
    # Kafka's own order: the header comes early.
    ordered = {"isForwarded": logged.pop("isForwarded"), "requestHeader": logged.pop("requestHeader")}
    text = orjson.dumps(ordered | logged).decode()
    return f"[{time}] DEBUG Completed request:{text} (kafka.request.logger)"


def produce(size: int, time: str, **fields: Any) -> str:
    """A Produce of one partition."""
    data = [{"name": "acme.orders.a", "partitionData": [{"index": 0, "recordsSizeInBytes": size}]}]
    return line(0, time, request={"topicData": data}, **fields)


def delete(name: str, code: int = 0) -> str:
    """A DeleteTopics."""
    answer = [{"name": name, "errorCode": code}]
    return line(20, request={"topicNames": [name]}, response={"responses": answer})


def create(code: int, partitions: int = 3, told: int = -1, **more: Any) -> str:
    """A CreateTopics of one topic."""
    asked = [{"name": "t", "numPartitions": partitions, "assignments": []}]
    answer = [{"name": "t", "errorCode": code, "numPartitions": told}]
    return line(19, request={"topics": asked, **more}, response={"topics": answer})
