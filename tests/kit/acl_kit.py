"""The ACLs of docs/security.md on a broker, and what its authorizer says of their use."""

import re
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from stack_kit import run_java

from streaming.collect.backlog.action_log import ActionLog
from streaming.collect.reports import Reports
from streaming.contract.backlog.actions import BacklogAction
from streaming.contract.topics import Cluster, Topics
from streaming.kafka_io.weir_topics import look
from weir.collect.feeds import DecisionFeed, PolicyFeed, shares_in

ROOT = Path(__file__).parents[2]
_PAGE = ROOT / "docs" / "security.md"
_TOOLS = ROOT / "tests" / "attack" / "Tools.java"
_QUIET = ("org.slf4j.simpleLogger.defaultLogLevel=error",)
_LIMIT_S = 60.0
ACLS = "kafka-acls --bootstrap-server HOST:PORT"
AUDIT = "-Dorg.slf4j.simpleLogger.log.kafka.authorizer.logger=debug"
"""Option of a broker's JVM: its log tells each right that was used, not only those that were lacking."""
_TOLD = re.compile(
    r"Principal = User:(\S+) is (Allowed|Denied) operation = (\w+) from host"
    r" = \S+ on resource = (\w+):LITERAL:(\S+) for request = (\S+)"
)
BEGUN = BacklogAction(
    id="a", ts=1, topic="t", quota_type="size", policy="p", limit=1, actor="c", step="begun"
)
_IMPLIES = {"DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"}, "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"}}
"""Operation -> others whose right is one to it as well, as Kafka has it."""


class Asked(NamedTuple):
    """Something that a user was allowed, or denied."""

    user: str
    operation: str
    kind: str
    name: str
    request: str


class Acl(NamedTuple):
    """One right."""

    user: str
    operation: str
    kind: str
    name: str
    prefixed: bool

    def grants(self, asked: Asked) -> bool:
        """Whether it alone is enough."""
        same = self.name == asked.name or (self.name == "*" and not self.prefixed)
        return (
            (self.user, self.kind) == (asked.user, asked.kind)
            and self.operation in {asked.operation, *_IMPLIES.get(asked.operation, ())}
            and (asked.name.startswith(self.name) if self.prefixed else same)
        )


def grant_the_pages(bootstrap: str, *more: str) -> None:
    """Carry out all commands of the page, and more."""
    lines = [line for line in _PAGE.read_text().splitlines() if line.startswith("kafka-")]
    assert len(lines) > 10
    run_tools(bootstrap, *lines, *more)


def run_tools(bootstrap: str, *lines: str) -> None:
    """Carry out commands with Kafka's own tools."""
    said = "\n".join(lines).replace("HOST:PORT", bootstrap)
    done = run_java(str(_TOOLS), stdin=said, heap_mb=128, properties=_QUIET)
    assert done.returncode == 0, done.stderr


def acls_of(bootstrap: str) -> set[Acl]:
    """What is granted there."""
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found: Iterable[AclBinding] = admin.describe_acls(everything).result(_LIMIT_S)
    return {
        Acl(
            one.principal.removeprefix("User:"),
            one.operation.name,
            {"BROKER": "CLUSTER", "TRANSACTIONAL_ID": "TRANSACTIONALID"}.get(
                one.restype.name, one.restype.name
            ),
            one.name,
            one.resource_pattern_type is ResourcePatternType.PREFIXED,
        )
        for one in found
    }


def told(log: Path) -> tuple[set[Asked], set[Asked]]:
    """What a broker with AUDIT has allowed, and what it has denied, by its log."""
    allowed: set[Asked] = set()
    denied: set[Asked] = set()
    for found in _TOLD.finditer(log.read_text()):
        user, result, operation, kind, name, request = found.groups()
        (allowed if result == "Allowed" else denied).add(Asked(user, operation, kind.upper(), name, request))
    return allowed, denied


def unneeded(granted: Iterable[Acl], allowed: Collection[Asked]) -> set[Acl]:
    """Those without which all that was allowed would be allowed too."""
    acls = set(granted)
    return {
        acl
        for acl in acls
        if all(
            any(other.grants(asked) for other in acls if other != acl)
            for asked in allowed
            if acl.grants(asked)
        )
    }


async def collect_of_pulsar(login: dict[str, str]) -> None:
    """Do what `weir collect pulsar` does on Kafka, as somebody who has these properties."""
    topics, bootstrap = Topics(), login["bootstrap.servers"]
    assert look(AdminClient(login), Cluster(bootstrap, topics), _LIMIT_S).faults == ()
    unusable: list[None] = []
    cluster = Cluster(bootstrap=bootstrap, topics=topics, client=login)
    policies = PolicyFeed(cluster, lambda: unusable.append(None))
    read = partial(shares_in, policies.clock.now_ms)
    shares = DecisionFeed(cluster, read, lambda _share: None, lambda: unusable.append(None), 60_000)
    await policies.start()
    await shares.start()
    await policies.stop()
    await shares.stop()
    assert unusable == []
    log = ActionLog(cluster, _LIMIT_S)
    await log.write(BEGUN)
    log.close()
    for lease in ("pulsar-c", "backlog-pulsar-c"):
        with Reports(cluster, f"{topics.usage}-{lease}", _LIMIT_S) as reports:
            event = {"type": "group_usage", "id": "1", "broker": "b", "period_ms": 1, "usage": {}}
            reports.write([("b", event)])
