"""Checks of the parts' own logins: does each get in that `kafka.clients` gives one."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from streaming.kafka_io.reader import reason_of
from weir.doctor.findings import Finding, error, ok
from weir.doctor.patient import LIMIT_S, Patient, Unusable, client_of, metadata


def check_logins(patient: Patient) -> Iterator[Finding]:
    """All at a time: one that is refused costs its whole limit."""
    patient.once(metadata)
    if not patient.logins:
        yield ok("kafka.clients gives no part a login of its own")
        return
    with ThreadPoolExecutor(len(patient.logins)) as pool:
        yield from pool.map(lambda part: _login(patient, *part), patient.logins.items())


def _login(patient: Patient, part: str, properties: Mapping[str, str]) -> Finding:
    section, said = f"kafka.clients.{part}", list[KafkaError]()
    own: dict[str, Any] = {**properties, "error_cb": said.append}
    try:
        asks = client_of(patient, own, section)
    except Unusable as failure:
        return error(str(failure), failure.mend)
    try:
        asks.list_topics(timeout=LIMIT_S)
    except KafkaException as failure:
        # What the brokers said of it comes by the callback alone.
        asks.poll(0)
        why = said[-1].str() if said else reason_of(failure)
        return error(f"{section} does not get in: {why}", f"mend {section}, or that user at the brokers")
    return ok(f"{section} gets in")
