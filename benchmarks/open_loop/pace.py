"""Publishing at a rate that waits for nobody, and when each record was there.

`python -m benchmarks.open_loop.pace publish|read ...`: each of the two has a process of its own, so that
neither waits for the other's turn. A record begins with the time at which it was due: what a publisher was
held up by counts as the delay of all that were due meanwhile (no coordinated omission).
"""

import subprocess
import sys
import time
from array import array
from collections.abc import Sequence
from threading import Timer
from typing import Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from streaming.contract.errors import WeirError

_TURN_S: Final = 0.001
_READ_LIMIT_S: Final = 30.0
_READY_LIMIT_S: Final = 60.0
_END: Final = 0
"""Stands in a record instead of its time: the last of its topic."""
_STAMP: Final = 8


def delays_ms(address: str, topics: Sequence[str], rate: float, seconds: float, size: int) -> list[float]:
    """Publish and read through one address.

    Args:
        address: `HOST:PORT`.
        topics: of one partition each, that get the same share.
        rate: records a second of all of them.
        seconds: for which.
        size: bytes of a record.

    Returns:
        Of each record in the order in which they were due, how long after it was due it was there, ms.

    Raises:
        WeirError: not all were there in time.
    """
    own = [sys.executable, "-m", __spec__.name]
    with subprocess.Popen(
        [*own, "read", address, *topics], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as reader:
        try:
            assert reader.stdout is not None
            # It says so when it stands at the end of all topics.
            patience = Timer(_READY_LIMIT_S, reader.kill)
            patience.start()
            ready = reader.stdout.readline()
            patience.cancel()
            if not ready:
                raise WeirError(f"nobody could read from {address}")
            words = [address, str(rate), str(seconds), str(size), *topics]
            limit_s = seconds + _READY_LIMIT_S
            subprocess.run([*own, "publish", *words], check=True, timeout=limit_s)
            told, _ = reader.communicate(timeout=_READY_LIMIT_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise WeirError(f"publishing {rate:,.0f}/s to {address}: {error}") from error
        finally:
            reader.kill()
    found = array("q")
    found.frombytes(told)
    dues = found[::2]
    if len(dues) < int(rate * seconds):
        raise WeirError(f"{len(dues):,} of {int(rate * seconds):,} records came through {address}")
    return [(there - due) / 1e6 for due, there in sorted(zip(dues, found[1::2], strict=True))]


def publish(address: str, rate: float, seconds: float, size: int, topics: Sequence[str]) -> None:
    """Send what is due, every millisecond; OpenMessaging's settings of a producer."""
    failed: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": address, "linger.ms": 1, "batch.size": 131_072, "acks": "all",
            "queue.buffering.max.messages": 2_000_000, "queue.buffering.max.kbytes": 1_048_576,
            "on_delivery": lambda error, _message: failed.append(error) if error else None,
        }
    )  # fmt: skip
    padding, total, sent = bytes(size - _STAMP), int(rate * seconds), 0
    begun, each_ns, count = time.time_ns(), 1e9 / rate, len(topics)
    while sent < total:
        due = min(total, int((time.time_ns() - begun) / each_ns))
        for number in range(sent, due):
            stamp = begun + int(number * each_ns)
            producer.produce(topics[number % count], stamp.to_bytes(_STAMP, "big") + padding)
        sent = max(sent, due)
        producer.poll(0)
        time.sleep(_TURN_S)
    for topic in topics:
        producer.produce(topic, _END.to_bytes(_STAMP, "big"))
    if producer.flush(_READ_LIMIT_S) or failed:
        raise WeirError(f"records were not taken: {failed[:1]}")


def read(address: str, topics: Sequence[str]) -> "array[int]":
    """When each that comes to these topics from now on was due, and when it was there, in turn, ns."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "pace", "enable.auto.commit": False})
    places = [TopicPartition(topic, 0) for topic in topics]
    for place in places:
        place.offset = consumer.get_watermark_offsets(place, _READ_LIMIT_S)[1]
    consumer.assign(places)
    print(flush=True)
    found, left = array("q"), len(topics)
    while left and (message := consumer.poll(_READ_LIMIT_S)) is not None:
        if message.error():
            raise WeirError(str(message.error()))
        due = int.from_bytes((message.value() or b"")[:_STAMP], "big")
        if due == _END:
            left -= 1
        else:
            found.extend((due, time.time_ns()))
    consumer.close()
    return found


def main(what: str, address: str, *words: str) -> None:
    """One of the two processes."""
    if what == "publish":
        rate, seconds, size, *topics = words
        publish(address, float(rate), float(seconds), int(size), topics)
    else:
        sys.stdout.buffer.write(read(address, words).tobytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
