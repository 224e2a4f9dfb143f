"""The ACLs of docs/security.md: which user of Weir needs what. A test holds them equal to that page."""

from typing import Final, NamedTuple

from streaming.contract.topics import DEFAULT_PREFIX

TOPIC, GROUP, TRANSACTION, CLUSTER = "topic", "group", "transactional-id", "cluster"
"""Kinds of resources, as options of kafka-acls."""


class Grant(NamedTuple):
    """What one user may do.

    Attributes:
        user: its name on that page.
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
    *_of("weir-backlogs", "Describe", CLUSTER),
    *_of("weir-backlogs", "Write", TOPIC, "weir.usage weir.decisions"),
    *_of("weir-backlogs", "Write", TRANSACTION, "weir.usage-backlog-kafka-", prefixed=True),
    *_of("weir-reader", "Read", TOPIC, "weir.", prefixed=True),
)
