"""Produce answers that refuse every partition, as kafka-python reads them."""

from each_kit import each
from kafka.protocol.producer import ProduceResponse
from kafka_kit import decode
from traffic_kit import batch, produce, topic_id

from enforcer.kafka.slots.part import timed_out
from enforcer.wire.kafka.mutations import REQUEST_TIMED_OUT


@each("version", range(3, 14))
def test_every_partition_is_refused(version: int) -> None:
    """Under its own name and number, with the error that clients try again after."""
    topics = {"t1": [batch(3), batch(1)], "a-longer-name": [batch(2)]}
    frame, header = produce(version, topics, txn="tx")
    answer = decode(ProduceResponse, version, timed_out(frame, header))
    found = {
        (row.topic_id if version >= 13 else row.name): [
            (part.index, part.error_code, part.base_offset) for part in row.partition_responses
        ]
        for row in answer.responses
    }
    names = {name: topic_id(name) if version >= 13 else name for name in topics}
    assert found == {
        names["t1"]: [(0, REQUEST_TIMED_OUT, -1), (1, REQUEST_TIMED_OUT, -1)],
        names["a-longer-name"]: [(0, REQUEST_TIMED_OUT, -1)],
    }
    assert answer.throttle_time_ms == 0
