"""What settings say of our connections changes nothing that records rest on."""

from typing import Any

import pytest

from streaming.kafka_io import writer


def test_a_clients_properties_change_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are written once, where murmur2 says; the caller's own properties come last."""
    given = dict[str, Any]()
    monkeypatch.setattr(writer, "Producer", lambda properties, logger: given.update(properties))
    hostile = {
        "enable.idempotence": False, "partitioner": "consistent_random", "allow.auto.create.topics": True,
        "linger.ms": 900, "security.protocol": "SSL",
    }  # fmt: skip
    writer.connected(hostile, {"linger.ms": 5})
    assert given["enable.idempotence"] is True and given["partitioner"] == "murmur2_random"
    assert given["allow.auto.create.topics"] is False
    assert (given["linger.ms"], given["security.protocol"]) == (5, "SSL")
