"""Policies in memory: names of entries, and which quota applies to whom (docs/contract.md 2).

A set of policies is a flat table, path -> JSON value. One path is one entry of the file, one record key of
`weir.policies` and one `path` of a policy event:

    quotas[user=alice,client-id=<default>]      resourcegroups.rg1      tenants.acme
    namespaces.acme/orders      topics.persistent://acme/orders/t1      broker
    backpressure.partitions.NAME        mode

The path of a quota is written like a subject, so finding a quota is at most eight look-ups in that table.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from sys import getsizeof
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

from streaming.contract.errors import BadEvent
from streaming.contract.names import DEFAULT_NAME, encode_name, parse_subject, split_names
from streaming.contract.times import instant_ms

Key = TypeVar("Key")

UNLIMITED = -1
# One text each, not one for every client that they apply to.
_DEFAULT_BOTH = f"quotas[user={DEFAULT_NAME},client-id={DEFAULT_NAME}]"
_DEFAULT_USER, _DEFAULT_CLIENT = f"quotas[user={DEFAULT_NAME}]", f"quotas[client-id={DEFAULT_NAME}]"
_KINDS = ("user", "client-id")
# Kafka's default is 11 samples of one second: what its own token bucket holds (docs/protocol_notes.md 1.1).
DEFAULT_BURST_SECONDS = 11
# Users and client-ids come from the network: forget the oldest rather than grow with them, in number or size.
ALL_OTHERS = "*"
"""The entry of `backpressure.partitions` for those without one of their own."""
CACHED_QUOTA_BYTES = 40 * 2**20
"""What the quotas of requests that are remembered may take, and once more those of subjects, about."""
_CACHED_BYTES = 300
"""What one takes beside its names."""


class Section(StrEnum):
    """The parts of a policy file that hold entries."""

    QUOTAS = "quotas"
    RESOURCE_GROUPS = "resourcegroups"
    TENANTS = "tenants"
    NAMESPACES = "namespaces"
    TOPICS = "topics"
    BROKER = "broker"
    PARTITIONS = "backpressure.partitions"
    MODE = "mode"


class Mode(StrEnum):
    """What policies do, all of them."""

    ENFORCE = "enforce"
    TRACK = "track"
    """Each is a shadow one: decided and charged, and nobody acts on it."""
    OFF = "off"
    """No limit is in force: all pass, undecided and uncharged."""


RAISE = "raise"
"""The key of an entry that holds other values of its keys until a time."""
UNTIL = "until"
_SHADOWED = ("quotas[", f"{Section.RESOURCE_GROUPS}.")
"""How the paths of entries begin that have a key `shadow`."""
_RATES = ("dispatchThrottlingRate", "backlogQuotaDefaultLimit")
"""How the keys of `broker` begin that limit something."""
_NAMED = (Section.RESOURCE_GROUPS, Section.TENANTS, Section.NAMESPACES, Section.TOPICS, Section.PARTITIONS)


class Algorithm(StrEnum):
    """How partition mutations are counted (docs/contract.md 3.1)."""

    TOKEN_BUCKET = "token_bucket"
    SAMPLED_RATE = "sampled_rate"


class Decide(StrEnum):
    """Where partition mutations are decided (docs/contract.md 3.1)."""

    LOCAL = "local"
    """In the proxy that was asked, by what it knows; the job confirms."""
    STRICT = "strict"
    """In the job; the request waits for it."""


Entity = Mapping[str, str | None]
"""Whom a quota is for, as files say it: `user`, `client-id` or both, each a name or None for the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPath:
    """A path taken apart.

    Attributes:
        section: where in the file it stands.
        name: the entry's name; empty for `broker`, `mode` and quotas.
        entity: whom a quota is for, None for all else.
    """

    section: Section
    name: str = ""
    entity: Entity | None = None


class MutationQuota(NamedTuple):
    """The quota on partition mutations in force for one subject.

    Attributes:
        subject: the entity with concrete names, whose balance is charged.
        path: the entry it comes from.
        level: 1 to 8, the order of docs/contract.md 2.
        rate: mutations per second.
        burst: mutations that may be done at once.
        algorithm: an Algorithm's value.
        shadow: decided and charged, but nobody acts on it.
        decide: a Decide's value; None: as the proxy's settings say.
    """

    subject: str
    path: str
    level: int
    rate: float
    burst: float
    algorithm: str
    shadow: bool
    decide: str | None = None


class Candidate(NamedTuple):
    """One of the eight places where a quota is looked for: its level, entry path and subject."""

    level: int
    path: str
    subject: str


def entity_path(entity: Entity) -> str:
    """The path of an entity's quota, `quotas[user=...,client-id=...]`, in its one canonical form."""
    names = {kind: entity[kind] for kind in _KINDS if kind in entity}
    parts = (f"{kind}={DEFAULT_NAME if name is None else encode_name(name)}" for kind, name in names.items())
    return f"quotas[{','.join(parts)}]"


def parse_path(path: str) -> EntryPath:
    """Take an entry's path apart.

    Raises:
        BadEvent: no such section, an empty name, or a quota's path that is not in its canonical form.
    """
    if path in (Section.BROKER, Section.MODE):
        return EntryPath(section=Section(path))
    if path.startswith("quotas[") and path.endswith("]"):
        return EntryPath(section=Section.QUOTAS, entity=_parse_entity(path))
    for section in _NAMED:
        name = path.removeprefix(f"{section}.")
        if name and name != path:
            return EntryPath(section=section, name=name)
    raise BadEvent(
        f"policy path {path!r} is not known; expected quotas[...], resourcegroups.NAME, tenants.NAME, "
        "namespaces.TENANT/NAMESPACE, topics.TOPIC, broker, backpressure.partitions.NAME or mode"
    )


def candidates(user: str, client_id: str) -> Iterator[Candidate]:
    """The eight places in which a request's quota is looked for, first match wins (docs/contract.md 2)."""
    of_user, of_client = f"user={encode_name(user)}", f"client-id={encode_name(client_id)}"
    of_both = f"{of_user},{of_client}"
    yield Candidate(1, f"quotas[{of_both}]", of_both)
    yield Candidate(2, f"quotas[{of_user},client-id={DEFAULT_NAME}]", of_both)
    yield Candidate(3, f"quotas[{of_user}]", of_user)
    yield Candidate(4, f"quotas[user={DEFAULT_NAME},{of_client}]", of_both)
    yield Candidate(5, _DEFAULT_BOTH, of_both)
    yield Candidate(6, _DEFAULT_USER, of_user)
    yield Candidate(7, f"quotas[{of_client}]", of_client)
    yield Candidate(8, _DEFAULT_CLIENT, of_client)


def candidates_of(subject: str) -> Iterator[Candidate]:
    """Those that charge this very subject: 1, 2, 4, 5 of a user with a client-id, 3 and 6 of a user, 7 and 8
    of a client-id; none of what is no subject.
    """
    try:
        user, client_id = parse_subject(subject)
    except BadEvent:
        return
    # A missing part leaves the levels that need it with other subjects.
    yield from (each for each in candidates(user or "", client_id or "") if each.subject == subject)


class _Cache(OrderedDict[Key, "MutationQuota | None"]):
    """Quotas by what they were asked for, the oldest first; to forget all at once takes tens of ms."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes: deque[int] = deque()
        self._size = 0

    def keep(self, key: Key, quota: "MutationQuota | None", names_size: int) -> "MutationQuota | None":
        """Note a quota in place of the oldest ones; names that are very long are not worth it."""
        # Beside the key stand the names in the subject and in the path.
        size = _CACHED_BYTES + 3 * names_size
        if size > CACHED_QUOTA_BYTES // 8:
            return quota
        self[key] = quota
        self._sizes.append(size)
        self._size += size
        while self._size > CACHED_QUOTA_BYTES:
            self.popitem(last=False)
            self._size -= self._sizes.popleft()
        return quota


class PolicySet:
    """The policies in force at one moment; never changes once built.

    Attributes:
        entries: what is in force: no raise is in it, and no mode.
        written: the same as it was written.
        tracks: the mode is TRACK: nobody acts on any of it.
        at: see there.

    Args:
        written: path -> value, as checked by policy_check. Not copied, so the caller leaves it alone.
        version: what `policy_version` in decisions says; an empty set is version 1.
        at: the moment, ms since the epoch, by which raises have ended or not; by default all have.
    """

    __slots__ = ("__weakref__", "_of_request", "_of_subject", "at", "entries", "tracks", "version", "written")

    def __init__(self, written: Mapping[str, Any] | None = None, version: int = 1, at: float = inf) -> None:
        self.written: Mapping[str, Any] = {} if written is None else written
        self.at = at
        self.entries = _in_force(self.written, at)
        self.tracks = self.written.get(Section.MODE) == Mode.TRACK
        self.version = version
        self._of_request: _Cache[tuple[str, str]] = _Cache()
        self._of_subject: _Cache[str] = _Cache()

    def mutation_quota(self, user: str, client_id: str) -> MutationQuota | None:
        """The first of the eight levels that sets a rate; None: not limited.

        An empty client-id is a client-id like any other, and so is the user ANONYMOUS.
        """
        # Twenty times faster than eight look-ups, and the same clients ask again and again.
        key = (user, client_id)
        try:
            return self._of_request[key]
        except KeyError:
            size = getsizeof(user) + getsizeof(client_id)
            return self._of_request.keep(key, self._first(candidates(user, client_id)), size)

    def mutation_quota_of_subject(self, subject: str) -> MutationQuota | None:
        """The quota for a subject that was stamped elsewhere, maybe under an older version of the policies.

        None: no such quota any more, or not a subject (`parse_subject` says which).
        """
        try:
            return self._of_subject[subject]
        except KeyError:
            found = self._first(candidates_of(subject))
            return self._of_subject.keep(subject, found, getsizeof(subject))

    def _first(self, levels: Iterator[Candidate]) -> MutationQuota | None:
        for candidate in levels:
            quota = mutation_quota_at(candidate, self.entries.get(candidate.path))
            if quota is not None:
                return quota
        return None


def paths_of(subject: str) -> set[str]:
    """The entries that what limits a subject of mutations may depend on."""
    user, comma, client = subject.partition(",")
    own = (subject, f"{user},client-id={DEFAULT_NAME}", f"user={DEFAULT_NAME},{client}")[: 3 if comma else 1]
    return {*(f"quotas[{name}]" for name in own), _DEFAULT_BOTH, _DEFAULT_USER, _DEFAULT_CLIENT, Section.MODE}


def raised_until(value: Any) -> int | None:
    """When an entry's raise ends, ms since the epoch; None: it has none."""
    return instant_ms(value[RAISE][UNTIL]) if isinstance(value, Mapping) and RAISE in value else None


def next_end(written: Mapping[str, Any], at: float) -> float:
    """When the first raise ends after a time, both ms since the epoch; infinite: there is none."""
    ends = (raised_until(value) for value in written.values())
    return min((end for end in ends if end is not None and end > at), default=inf)


def unraised(value: Mapping[str, Any], at: float = inf) -> Mapping[str, Any]:
    """What an entry says at a time (ms); each key of its raise stands whole in place of the entry's own."""
    until = raised_until(value)
    if until is None:
        return value
    raised = {**value, **value[RAISE]} if at < until else value
    return {name: item for name, item in raised.items() if name not in (RAISE, UNTIL)}


def _in_force(written: Mapping[str, Any], at: float) -> Mapping[str, Any]:
    """What entries come to at a time (ms); mostly that is what was written, and then it is the same table."""
    mode = written.get(Section.MODE, Mode.ENFORCE)
    if mode == Mode.OFF:
        # Rounds keep their rhythm.
        broker = unraised(written.get(Section.BROKER, {}), at)
        return {Section.BROKER: {key: item for key, item in broker.items() if not key.startswith(_RATES)}}
    raised = {path: unraised(value, at) for path, value in written.items() if RAISE in value}
    if not raised and Section.MODE not in written:
        return written
    entries = {**written, **raised}
    entries.pop(Section.MODE, None)
    if mode == Mode.TRACK:
        for path, value in entries.items():
            if path.startswith(_SHADOWED):
                entries[path] = {**value, "shadow": True}
    return entries


def partition_entry(policies: PolicySet, partition: str) -> Mapping[str, Any] | None:
    """The entry of `backpressure.partitions` that a partition goes by; None: not limited."""
    own = policies.entries.get(f"{Section.PARTITIONS}.{partition}")
    found: Mapping[str, Any] | None = (
        policies.entries.get(f"{Section.PARTITIONS}.{ALL_OTHERS}") if own is None else own
    )
    return found


def mutation_quota_at(candidate: Candidate, value: Mapping[str, Any] | None) -> MutationQuota | None:
    """The quota that an entry sets at this place; None if there is no entry or it sets no mutation rate."""
    rate = UNLIMITED if value is None else value.get("controller_mutation_rate", UNLIMITED)
    if value is None or rate == UNLIMITED:
        return None
    return MutationQuota(
        subject=candidate.subject,
        path=candidate.path,
        level=candidate.level,
        rate=float(rate),
        burst=float(value.get("controller_mutation_burst", DEFAULT_BURST_SECONDS * rate)),
        algorithm=value.get("algorithm", Algorithm.TOKEN_BUCKET.value),
        shadow=value.get("shadow", False),
        decide=value.get("decide"),
    )


def refill_times(entries: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Each token bucket's path, and how long an empty one takes to be full, s."""
    for path, value in entries.items():
        if path.startswith("quotas["):
            quota = mutation_quota_at(Candidate(level=0, path=path, subject=""), value)
            if quota is not None and quota.algorithm == Algorithm.TOKEN_BUCKET:
                yield path, quota.burst / quota.rate


def _parse_entity(path: str) -> Entity:
    inner = path.removeprefix("quotas[").removesuffix("]")
    found = zip(_KINDS, split_names(inner, f"policy path {path!r}"), strict=True)
    entity = {
        kind: None if name == DEFAULT_NAME else unquote(name) for kind, name in found if name is not None
    }
    if not entity:
        raise BadEvent(f"policy path {path!r} names nobody; expected a user, a client-id or both")
    # Two spellings of one entity would be two entries, of which one is never found.
    if entity_path(entity) != path:
        raise BadEvent(f"policy path {path!r} is not in its canonical form; expected {entity_path(entity)!r}")
    return entity
