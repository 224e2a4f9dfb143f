"""Checks of who may do what at the brokers: is there an authorizer, who may write to Weir's topics."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from streaming.contract.errors import WeirError
from streaming.contract.topics import DEFAULT_PREFIX
from weir.doctor.checks.brokers import HARMFUL
from weir.doctor.findings import Finding, error, ok, warning
from weir.doctor.patient import LIMIT_S, Patient, Unanswered, broker_settings, client, metadata, taken

TOPIC, GROUP, TRANSACTION, CLUSTER = "topic", "group", "transactional-id", "cluster"
"""Kinds of resources, as options of kafka-acls."""


class Grant(NamedTuple):
    """What one user may do.

    Attributes:
        user: its name in docs/security.md.
        operations: as kafka-acls names them.
        kind: of the resource.
        name: of the resource; of the cluster none.
        prefixed: the name is what the resource's begins with.
    """

    user: str
    operations: tuple[str, ...]
    kind: str
    name: str = ""
    prefixed: bool = False

    def under(self, prefix: str) -> "Grant":
        """The same for an installation whose topics begin so."""
        if self.kind == GROUP or not self.name.startswith(DEFAULT_PREFIX):
            return self
        return self._replace(name=prefix + self.name.removeprefix(DEFAULT_PREFIX))

    def command(self, bootstrap: str) -> str:
        """What gives it."""
        words = ["kafka-acls --bootstrap-server", bootstrap, "--add --allow-principal", f"User:{self.user}"]
        words += [f"--operation {operation}" for operation in self.operations]
        words += [f"--{self.kind}", *([self.name.replace("*", "'*'")] if self.name else [])]
        return " ".join([*words, "--resource-pattern-type prefixed"] if self.prefixed else words)


def _of(user: str, operations: str, kind: str, names: str = "", *, prefixed: bool = False) -> list[Grant]:
    done = tuple(operations.split())
    return [Grant(user, done, kind, name, prefixed) for name in names.split() or [""]]


_SEEING: Final = ("weir-proxy", "weir-policies", "weir-collect")
_LOOKING: Final = ("weir-job", *_SEEING)
_IN_GROUPS: Final = (*_LOOKING, "weir-reader")
GRANTS: Final[tuple[Grant, ...]] = (
    *(one for user in _LOOKING for one in _of(user, "DescribeConfigs", TOPIC, "weir.", prefixed=True)),
    *(one for user in _SEEING for one in _of(user, "Describe", TOPIC, "weir.", prefixed=True)),
    *(one for user in _IN_GROUPS for one in _of(user, "Describe", GROUP, "weir-", prefixed=True)),
    *_of("weir-job", "Read", TOPIC, "weir.requests weir.usage weir.policies"),
    *_of("weir-job", "Write", TOPIC, "weir.decisions weir.deadletter weir.usage"),
    *_of("weir-proxy", "Write", TOPIC, "weir.requests weir.usage"),
    *_of("weir-proxy", "Read", TOPIC, "weir.requests weir.usage weir.policies weir.decisions"),
    *_of("weir-proxy", "DescribeConfigs", CLUSTER),
    *_of("weir-policies", "Read", TOPIC, "weir.policies weir.requests weir.usage weir.decisions"),
    *_of("weir-policies", "Write", TOPIC, "weir.policies"),
    *_of("weir-policies", "Write", TRANSACTION, "weir.policies"),
    *_of("weir-policies", "DescribeConfigs", CLUSTER),
    *_of("weir-collect", "Write", TOPIC, "weir.usage"),
    *_of("weir-collect", "Read", TOPIC, "weir.policies weir.decisions"),
    *_of("weir-collect", "Write", TRANSACTION, "weir.usage-pulsar-", prefixed=True),
    *_of("weir-collect", "Write", TOPIC, "weir.decisions"),
    *_of("weir-collect", "Write", TRANSACTION, "weir.usage-backlog-pulsar-", prefixed=True),
    *_of("weir-backlogs", "Read", TOPIC, "*"),
    *_of("weir-backlogs", "Read", GROUP, "*"),
    *_of("weir-backlogs", "DescribeConfigs", TOPIC, "weir.", prefixed=True),
    *_of("weir-backlogs", "Describe", CLUSTER),
    *_of("weir-backlogs", "Write", TOPIC, "weir.usage weir.decisions"),
    *_of("weir-backlogs", "Write", TRANSACTION, "weir.usage-backlog-kafka-", prefixed=True),
    *_of("weir-reader", "Read", TOPIC, "weir.", prefixed=True),
)
"""The ACLs of docs/security.md: which user of Weir needs what. A test holds them equal to that page."""


_ANY: Final[Any] = None
_ALL: Final = AclBindingFilter(
    ResourceType.ANY, _ANY, ResourcePatternType.ANY, _ANY, _ANY, AclOperation.ANY, AclPermissionType.ANY
)
_STRANGERS: Final = ("User:*", "User:ANONYMOUS")
"""Everybody, and who has not logged in."""
_WRITERS: Final = frozenset({AclOperation.WRITE, AclOperation.ALL})
_AUTHORIZER: Final = "authorizer.class.name"
_IMPLIED: Final = {
    AclOperation.DESCRIBE: frozenset({
        AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER,
    }),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}  # fmt: skip
"""What brokers take for a right as well (Kafka's StandardAuthorizer)."""
_OPEN: Final = "allow.everyone.if.no.acl.found"
_KINDS: Final = {
    TOPIC: ResourceType.TOPIC, GROUP: ResourceType.GROUP,
    TRANSACTION: ResourceType.TRANSACTIONAL_ID, CLUSTER: ResourceType.BROKER,
}  # fmt: skip
_CLUSTER_NAME: Final = "kafka-cluster"
_NONE: Final[frozenset[AclOperation]] = frozenset()
_EVERY: Final = "*"
"""Any name, or any host."""


class Acl(NamedTuple):
    """One ACL, as Kafka's."""

    principal: str
    operation: AclOperation
    kind: ResourceType
    name: str
    prefixed: bool = False
    allows: bool = True
    host: str = _EVERY


def acls(patient: Patient) -> list[Acl] | None:
    """All of the cluster, None without an authorizer; raises Unreached or Unanswered."""
    patient.once(metadata)
    there = taken(patient.once(client).describe_acls(_ALL, request_timeout=LIMIT_S))
    # librdkafka gives an empty list also where the broker says "security is disabled", or "you may not see".
    if not there:
        if not any(one.get(_AUTHORIZER) for one in patient.once(broker_settings).values()):
            return None
        cluster = patient.once(client).describe_cluster(
            include_authorized_operations=True, request_timeout=LIMIT_S
        )
        if AclOperation.DESCRIBE not in (taken(cluster).authorized_operations or ()):
            raise Unanswered("ACLs are not told to this login: it lacks Describe on the cluster")
    return [_acl(one) for one in there]


def _acl(one: Any) -> Acl:
    prefixed = one.resource_pattern_type is ResourcePatternType.PREFIXED
    allows = one.permission_type is AclPermissionType.ALLOW
    return Acl(one.principal, one.operation, one.restype, one.name, prefixed, allows, one.host)


def check_authorizer(patient: Patient) -> Iterator[Finding]:
    """Whether anything keeps strangers from Weir's topics, and who may write to them."""
    there = patient.once(acls)
    if there is None:
        what = "the brokers have no authorizer: whoever reaches one may set limits by Weir's topics"
        mend = f"set {_AUTHORIZER} and {_OPEN}=false; then give the ACLs of docs/security.md"
        yield error(what, mend)
        return
    topics, policies = patient.cluster.topics.all(), patient.cluster.topics.policies
    # What is said of all topics is said once.
    found = dict.fromkeys(one for topic in topics for one in _of_topic(topic, there, patient))
    writers = ", ".join(sorted({acl.principal for acl in there if _lets(acl, policies, _WRITERS)}))
    yield from found or [
        ok(f"no stranger may write to Weir's topics; by ACL may write to {policies}: {writers or 'nobody'}")
    ]


def _of_topic(topic: str, there: list[Acl], patient: Patient) -> Iterator[Finding]:
    bootstrap = patient.cluster.bootstrap
    for stranger in _STRANGERS:
        for acl in there:
            if acl.principal == stranger and _lets(acl, topic, HARMFUL) and not _denied(topic, acl, there):
                yield error(
                    f"{stranger} may {acl.operation.name} {topic}: anybody sets limits",
                    _removal(acl, bootstrap),
                )
    if not any(_covers(acl, topic) for acl in there) and (unsaid := _open(patient)):
        yield unsaid


def _open(patient: Patient) -> Finding | None:
    """What to say of a topic that has no ACL."""
    mend = f"set {_OPEN}=false on the brokers, or give Weir's topics their ACLs (docs/security.md)"
    try:
        settings = patient.once(broker_settings)
    except WeirError as failure:
        return warning(f"no ACL on Weir's topics, and {_OPEN} cannot be read: {failure}", mend)
    if any((of_one.get(_OPEN) or "").lower() == "true" for of_one in settings.values()):
        return error(f"{_OPEN}=true and no ACL on Weir's topics: anybody sets limits", mend)
    # Brokers keep what they do not know by name to themselves.
    if any(_OPEN in of_one and of_one[_OPEN] is None for of_one in settings.values()):
        return warning(f"no ACL on Weir's topics, and the brokers do not tell {_OPEN}", mend)
    return None


def _lets(acl: Acl, topic: str, operations: frozenset[AclOperation]) -> bool:
    return acl.allows and acl.operation in operations and _covers(acl, topic)


def _denied(topic: str, acl: Acl, there: Iterable[Acl]) -> bool:
    return any(
        not one.allows
        and one.principal in (_STRANGERS[0], acl.principal)
        and one.operation in (AclOperation.ALL, acl.operation)
        and one.host == _EVERY
        and _covers(one, topic)
        for one in there
    )


def _covers(acl: Acl, topic: str) -> bool:
    return acl.kind is ResourceType.TOPIC and _named(acl, topic)


def _named(acl: Acl, name: str) -> bool:
    return name.startswith(acl.name) if acl.prefixed else acl.name in (name, _EVERY)


def _removal(acl: Acl, bootstrap: str) -> str:
    side = "allow" if acl.allows else "deny"
    words = [f"kafka-acls --bootstrap-server {bootstrap} --remove --{side}-principal '{acl.principal}'"]
    words += [f"--{side}-host '{acl.host}'"] if acl.host != _EVERY else []
    words += [f"--operation {_words(acl.operation)} --{_resource(acl)}"]
    return " ".join([*words, "--resource-pattern-type prefixed"] if acl.prefixed else words)


def _resource(acl: Acl) -> str:
    """As kafka-acls knows it."""
    option = next(option for option, kind in _KINDS.items() if kind is acl.kind)
    return option if option == CLUSTER else f"{option} '{acl.name}'"


def _words(operation: AclOperation) -> str:
    return str(operation.name).title().replace("_", "")


def check_acls(patient: Patient) -> Iterator[Finding]:
    """Whether Weir's users, by their names on docs/security.md, have what they need there."""
    there = patient.once(acls)
    if there is None:
        yield warning("not looked at: there is no authorizer", "see authorizer")
        return
    principals = {acl.principal for acl in there}
    wanted = [grant.under(patient.cluster.topics.prefix) for grant in GRANTS]
    users = sorted({grant.user for grant in wanted if f"User:{grant.user}" in principals})
    denials = list(_denials([grant for grant in wanted if grant.user in users], there, patient))
    yield from denials
    missing = [grant for grant in wanted if grant.user in users and not _given(grant, there)]
    for grant in missing:
        lacks = f"{' and '.join(grant.operations)} on {grant.kind} {grant.name}".rstrip()
        yield error(f"User:{grant.user} lacks {lacks}", grant.command(patient.cluster.bootstrap))
    if not users:
        yield ok("no ACL names a user of docs/security.md; other names are not looked at")
    elif not missing and not denials:
        yield ok(f"{', '.join(users)} have the ACLs of docs/security.md")


def _denials(wanted: Iterable[Grant], there: Iterable[Acl], patient: Patient) -> Iterator[Finding]:
    """ACLs that take away what others give; those of one host may not be Weir's."""
    for acl in there:
        users = sorted({grant.user for grant in wanted if _denies(acl, grant)})
        if users:
            done = f"{acl.principal} is denied {_words(acl.operation)} on {_resource(acl)}"
            what = f"{done}, which {', '.join(users)} cannot do without"
            yield error(what, _removal(acl, patient.cluster.bootstrap))


def _denies(acl: Acl, grant: Grant) -> bool:
    """Whether it takes away some of it."""
    if acl.allows or acl.host != _EVERY or not _is_of(acl, grant):
        return False
    given = {*map(_operation, grant.operations)}
    # Who is denied what comes with a right cannot make use of that.
    given |= {implied for implied, by in _IMPLIED.items() if given & by}
    if acl.operation not in (AclOperation.ALL, *given):
        return False
    return _named(acl, grant.name or _CLUSTER_NAME) or (grant.prefixed and acl.name.startswith(grant.name))


def _given(grant: Grant, there: Iterable[Acl]) -> bool:
    """Whether ACLs give it; a wider one does, too."""
    may = {acl.operation for acl in there if acl.allows and _fits(acl, grant)}
    wanted = map(_operation, grant.operations)
    return AclOperation.ALL in may or all(each in may or may & _IMPLIED.get(each, _NONE) for each in wanted)


def _fits(acl: Acl, grant: Grant) -> bool:
    if not _is_of(acl, grant):
        return False
    if grant.kind == CLUSTER:
        return acl.name == _CLUSTER_NAME
    # What is to hold for all names that begin so is not given by one name.
    return acl.name == _EVERY if grant.prefixed and not acl.prefixed else _named(acl, grant.name)


def _is_of(acl: Acl, grant: Grant) -> bool:
    return acl.kind is _KINDS[grant.kind] and acl.principal in (f"User:{grant.user}", _STRANGERS[0])


def _operation(name: str) -> AclOperation:
    return AclOperation["DESCRIBE_CONFIGS" if name == "DescribeConfigs" else name.upper()]
