"""Checks of what Weir has on the cluster: are its topics as they must be, do its parts' logins get in."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from streaming.kafka_io.reader import reason_of
from streaming.kafka_io.weir_topics import STOPPING, Fault, look
from weir.doctor.findings import Finding, error, ok, warning
from weir.doctor.patient import LIMIT_S, Patient, Unusable, client, client_of, metadata

_ERRORS: Final = STOPPING | {Fault.MISSING}
REPLICAS: Final = 3
"""Of a topic that must outlive a broker while another one is being restarted."""


def check_topics(patient: Patient) -> Iterator[Finding]:
    """As every part looks at them while it runs."""
    cluster = patient.cluster
    patient.once(metadata)
    seen = look(patient.once(client), cluster, LIMIT_S)
    for each in seen.faults:
        yield (error if each.fault in _ERRORS else warning)(each.what, each.mend)
    if not seen.faults:
        yield ok(f"the {len(seen.ids)} topics of {cluster.topics.prefix} are as they must be")


def check_replicas(patient: Patient) -> Iterator[Finding]:
    """Whether records of theirs have leaders, and copies."""
    found = patient.once(metadata)
    ours = patient.cluster.topics.all()
    known = {name: found.topics[name].partitions.values() for name in ours if name in found.topics}
    if not known:
        yield warning("no topic of Weir's can be seen", "see `topics`")
        return
    headless = [name for name, parts in known.items() if any(part.leader < 0 for part in parts)]
    if headless:
        yield error(f"no broker leads {', '.join(headless)}", "start the brokers that hold them")
    # More copies than brokers there cannot be.
    wanted = min(REPLICAS, len(found.brokers))
    few = [name for name, parts in known.items() if any(len(part.replicas) < wanted for part in parts)]
    if few:
        mend = f"kafka-reassign-partitions, to {wanted} replicas"
        yield warning(f"{', '.join(few)}: fewer than {wanted} replicas on {len(found.brokers)} brokers", mend)
    if not headless and not few:
        yield ok(f"{len(known)} topics have leaders, and at least {wanted} replicas")


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
