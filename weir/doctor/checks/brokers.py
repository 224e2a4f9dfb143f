"""Checks of the brokers: do they answer, how old are they, and who gets at them past the proxy."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from confluent_kafka.admin import AclOperation

from enforcer.kafka.guard.apis import HIDDEN, READABLE
from enforcer.wire.kafka.frames import METADATA
from streaming.contract.errors import WeirError
from streaming.contract.topics import address_text
from weir.doctor.checks.visit import Visit, too_old, visit
from weir.doctor.findings import Finding, error, ok, warning
from weir.doctor.patient import BROKERS_MAX, Address, Patient, Unreached, broker_settings, metadata
from weir.foreground import host_port

HARMFUL: Final = frozenset({
    AclOperation.ALL, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS,
})  # fmt: skip
"""Whoever may do one of these to Weir's topics sets limits, or ends them."""
_OF_3_1: Final = (METADATA, 12)
"""An API, and the version of it that Kafka 3.1 brought (KIP-516)."""
_HERE: Final = "seen from this machine only: try it where clients are"


def check_cluster(patient: Patient) -> Iterator[Finding]:
    """Whether it answers."""
    try:
        found = patient.once(metadata)
    except Unreached as failure:
        yield error(str(failure), failure.mend)
        return
    yield ok(f"{_count(len(found.brokers), 'broker')} at {patient.cluster.bootstrap}")


def check_reach(patient: Patient) -> Iterator[Finding]:
    """What a client without a login gets past the proxy, from here."""
    for one in patient.once(visits):
        yield _met(one, patient)


def _met(one: Visit, patient: Patient) -> Finding:
    where = address_text(*one.address)
    if not one.reached:
        return ok(f"{where} is out of reach ({_HERE})")
    if not one.answered:
        return ok(f"{where} can be reached past the proxy and answers no client without a login ({_HERE})")
    open_to = sorted(topic for topic, bits in one.allowed.items() if _harmful(bits))
    firewall = f"let only proxies, the job and brokers reach {where} (firewall)"
    if open_to:
        return error(
            f"{where} lets clients without a login past the proxy write to {', '.join(open_to)} ({_HERE})",
            f"{firewall}; demand a login and set authorizer.class.name (docs/security.md)",
        )
    known = patient.once(metadata).topics
    why = "" if set(patient.cluster.topics.all()) <= set(known) else ", and Weir's topics are not there yet"
    return warning(f"{where} answers clients without a login past the proxy{why} ({_HERE})", firewall)


def check_versions(patient: Patient) -> Iterator[Finding]:
    """Whether the proxy can speak for these brokers."""
    told = [one for one in patient.once(visits) if one.versions]
    if not told:
        yield warning("no broker has told its versions", "run it where the brokers can be reached")
        return
    for one in told:
        yield _age(one)


def _age(one: Visit) -> Finding:
    where = address_text(*one.address)
    newest = {key: last for key, (_, last) in one.versions.items()}
    gone = [key for key, (first, _) in one.versions.items() if key in READABLE and first > READABLE[key][1]]
    if gone:
        what = f"{where} is too new: APIs {', '.join(map(str, gone))} have no version that Weir can read"
        return error(what, "update Weir, or keep the brokers at a version that docs/operate.md names")
    if too_old(one.versions):
        return error(f"{where} is older than Kafka 3.0", "update the brokers")
    if newest.get(_OF_3_1[0], 0) < _OF_3_1[1]:
        what = f"{where} is older than Kafka 3.1: clients cannot delete topics by id"
        return warning(what, "update the brokers")
    above = sum(newest[key] > READABLE[key][1] for key in newest if key in READABLE and key not in HIDDEN)
    also = f"; of {_count(above, 'API')} clients get an older version than it has" if above else ""
    return ok(f"{where} speaks what Weir does{also}")


def visits(patient: Patient) -> list[Visit]:
    """A visit to each place where brokers say that they are; raises WeirError if they do not say."""
    found = sorted({(one.host, one.port) for one in patient.once(metadata).brokers.values()})
    addresses = list(dict.fromkeys([*found, *_advertised(patient)]))[:BROKERS_MAX]
    topics = patient.cluster.topics.all()

    async def all_at_once() -> list[Visit]:
        return await asyncio.gather(*(visit(address, topics) for address in addresses))

    return asyncio.run(all_at_once())


def _advertised(patient: Patient) -> Iterator[Address]:
    """Of all listeners, where the brokers tell their settings; else those of our own are known."""
    try:
        settings = patient.once(broker_settings)
    except WeirError:
        return
    for of_one in settings.values():
        controllers = set((of_one.get("controller.listener.names") or "").split(","))
        listeners = of_one.get("advertised.listeners") or of_one.get("listeners") or ""
        for listener in listeners.split(","):
            name, _, address = listener.strip().partition("://")
            if name in controllers or address.startswith(":"):
                continue
            with suppress(ValueError):
                yield host_port(address)


def _harmful(bits: int) -> bool:
    # An answer without them has the least number (KIP-430).
    return bits >= 0 and any(bits >> operation.value & 1 for operation in HARMFUL)


def _count(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"
