"""Checks of Weir's own topics: are they as they must be, and would they outlive a broker."""

from collections.abc import Iterator
from typing import Final

from streaming.kafka_io.weir_topics import STOPPING, Fault, look
from weir.doctor.findings import Finding, error, ok, warning
from weir.doctor.patient import LIMIT_S, Patient, client, metadata

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
