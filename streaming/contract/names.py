"""Names as events, policies and decisions write them: quota entities, topics, groups (docs/contract.md 2)."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from streaming.contract.errors import BadEvent

DEFAULT_NAME: Final = "<default>"
QUOTA_GROUP_PREFIX: Final = "quota/"
"""Byte rates of a quota are shared out as the group of this name and the quota's subject."""
DISPATCH_GROUP_PREFIX: Final = "dispatch/"
"""Dispatch rates across brokers are shared out as the group of this name, the topic and the subscription."""
INFLIGHT_GROUP_PREFIX: Final = "inflight/"
"""A partition's limit on requests in flight is shared out as the group of this name and the partition's."""
GROUP_PREFIXES: Final = (QUOTA_GROUP_PREFIX, DISPATCH_GROUP_PREFIX, INFLIGHT_GROUP_PREFIX)
"""No resource group's name begins so."""
PROBE_SUFFIX: Final = "-probe"
"""Ends the id of a request by which a proxy only asks whether the job decides; no client has a say in ids."""
# The less-than sign, so that a user called <default> is not the default user.
_MEANING = frozenset("%,=<")
_ENCODED = {ord("%"): "%25", ord(","): "%2C", ord("="): "%3D", ord("<"): "%3C"}

# Pulsar's rule for the names of tenants and namespaces; a topic's own name may hold more, but no slash.
_PULSAR_NAME = r"[-=:.\w]{1,255}"
NAMESPACE: Final = re.compile(rf"{_PULSAR_NAME}/{_PULSAR_NAME}", re.ASCII)
TENANT: Final = re.compile(_PULSAR_NAME, re.ASCII)
TOPIC: Final = re.compile(
    rf"(?:persistent|non-persistent)://{_PULSAR_NAME}/{_PULSAR_NAME}/[^/\x00-\x1f]{{1,1024}}", re.ASCII
)
TOPIC_EXPECTED: Final = "persistent://TENANT/NAMESPACE/TOPIC or non-persistent://..."
# Kafka's rule for the names of topics.
_SHORT_TOPIC: Final = re.compile(r"(?!\.\.?\Z)[-.\w]{1,249}", re.ASCII)
_PARTITION: Final = "-partition-"
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_THREE_PARTS: Final = re.compile(r"([^.]+)\.([^.]+)\.(.+)")


def encode_name(name: str) -> str:
    """Percent-encode what has a meaning in subjects: `%`, `,`, `=` and `<`."""
    # Hardly any name has one of them, and looking is faster than translating.
    return name if _MEANING.isdisjoint(name) else name.translate(_ENCODED)


def subject_of(user: str | None, client_id: str | None) -> str:
    """Write a subject with concrete names; a part that is None does not belong to it."""
    parts = []
    if user is not None:
        parts.append(f"user={encode_name(user)}")
    if client_id is not None:
        parts.append(f"client-id={encode_name(client_id)}")
    return ",".join(parts)


def parse_subject(subject: str) -> tuple[str | None, str | None]:
    """Read a subject back: (user, client_id), decoded.

    Raises:
        BadEvent: it is not what `subject_of` writes. The empty subject is (None, None).
    """
    user, client_id = split_names(subject, f"subject {subject!r}")
    names = (None if user is None else unquote(user), None if client_id is None else unquote(client_id))
    # Also refuses <default>, which is no name that anybody can be charged under.
    if subject_of(*names) != subject:
        raise BadEvent(f"subject {subject!r} is not in its canonical form; expected {subject_of(*names)!r}")
    return names


def split_names(text: str, what: str) -> tuple[str | None, str | None]:
    """Split `user=U,client-id=C`, either part absent, into its still encoded names."""
    user, client_id, rest = None, None, text
    if rest.startswith("user="):
        # Commas inside names are encoded, so the first one ends the user.
        user, comma, rest = rest.removeprefix("user=").partition(",")
        if comma and not rest:
            raise BadEvent(f"{what} ends with a comma; expected a client-id after it")
    if rest.startswith("client-id="):
        client_id, rest = rest.removeprefix("client-id="), ""
    if rest or "," in (client_id or "") or "=" in (user or "") + (client_id or ""):
        raise BadEvent(f"{what} is not an entity; expected user=NAME, client-id=NAME or both, in this order")
    return user, client_id


def is_probe(decision: Mapping[str, Any]) -> bool:
    """Whether an admission is of a proxy's own probe and cost nothing, so that people may do without it."""
    name = decision.get("id")
    return isinstance(name, str) and name.endswith(PROBE_SUFFIX) and decision.get("mutations") == 0


def topic_of(short: str) -> str:
    """The full name that Pulsar gives to a topic without tenant and namespace.

    >>> topic_of("clicks")
    'persistent://public/default/clicks'
    """
    return f"persistent://public/default/{short}"


def full_topic(name: str) -> str:
    """The full name of a topic that people may have written in short.

    >>> full_topic("clicks"), full_topic("persistent://acme/orders/t1")
    ('persistent://public/default/clicks', 'persistent://acme/orders/t1')

    Raises:
        BadEvent: `what is wrong; what was expected`: no name of a topic, or one that may be read in two ways:
            most Kafka proxies take `a.b.c` for tenant, namespace and topic, and Pulsar does not.
    """
    if TOPIC.fullmatch(name):
        return name
    if not _SHORT_TOPIC.fullmatch(name):
        raise BadEvent(f"is not a valid name; expected {TOPIC_EXPECTED}, or a Kafka topic's name")
    parts = _THREE_PARTS.fullmatch(name)
    if parts:
        meant = f"persistent://{'/'.join(parts.groups())}"
        raise BadEvent(f"may mean two topics; expected {meant} or {topic_of(name)}")
    return topic_of(name)


def partitioned_topic_of(topic: str) -> str | None:
    """The topic whose partition, by Pulsar's naming, this one is; None: its name says nothing of a partition.

    >>> partitioned_topic_of("persistent://acme/orders/t1-partition-12")
    'persistent://acme/orders/t1'
    >>> partitioned_topic_of("persistent://acme/orders/t1-partition-012") is None
    True
    """
    whole, _, number = topic.rpartition(_PARTITION)
    # Pulsar writes no leading zeros, so such a name is a topic of its own.
    return whole if whole and _NUMBER.fullmatch(number) else None


def namespace_of(topic: str) -> str:
    """`TENANT/NAMESPACE` of a topic.

    Raises:
        BadEvent: not a full topic name.
    """
    if not TOPIC.fullmatch(topic):
        raise BadEvent(f"topic {topic!r} is not a valid name; expected {TOPIC_EXPECTED}")
    # The pattern has made sure of exactly two slashes behind the domain.
    return topic.partition("://")[2].rpartition("/")[0]
