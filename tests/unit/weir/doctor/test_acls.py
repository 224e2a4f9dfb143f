"""ACLs as `weir doctor` reads them, and those of docs/security.md."""

import shlex
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from doctor_kit import patient_of, told

from weir.doctor.checks.acls import GRANTS, Acl, Grant, acls, check_acls, check_authorizer
from weir.doctor.examination import examine
from weir.doctor.patient import Unanswered, broker_settings, client

PAGE = Path(__file__).parents[4] / "docs" / "security.md"
OPEN = "allow.everyone.if.no.acl.found"
TOPIC, WRITE, READ = ResourceType.TOPIC, AclOperation.WRITE, AclOperation.READ
OTHER = Acl("User:app", READ, TOPIC, "app.", prefixed=True)
EVERYBODY = Acl("User:*", WRITE, TOPIC, "weir.policies")
OURS = [Acl("User:weir-policies", WRITE, TOPIC, "weir.", prefixed=True)]


def page() -> set[Grant]:
    """What the commands of the page give, one a user, resource and command."""
    found = set()
    for line in PAGE.read_text().splitlines():
        if not line.startswith("kafka-acls"):
            continue
        words = shlex.split(line)
        prefixed = words[-2:] == ["--resource-pattern-type", "prefixed"]
        given: dict[str, list[str]] = {}
        for option, value in pairwise(words):
            given.setdefault(option, []).append(value)
        given["--cluster"] = [""] if "--cluster" in words else []
        for kind in ("topic", "group", "transactional-id", "cluster"):
            found |= {
                Grant(user.removeprefix("User:"), tuple(given["--operation"]), kind, name, prefixed)
                for user in given["--allow-principal"]
                for name in given.get(f"--{kind}", [])
            }
    return found


def test_grants_are_those_of_the_page() -> None:
    """No more and no less; each user's rows come from its commands."""
    assert set(GRANTS) == page()
    assert len(GRANTS) == len(set(GRANTS))


def authorizer(there: Any, settings: Any = None) -> list[tuple[str, str]]:
    """What the check finds."""
    return told(check_authorizer(patient_of({acls: there, broker_settings: settings or {1: {}}})))


def test_without_an_authorizer() -> None:
    """An error, and nothing more to look at."""
    ((status, what),) = authorizer(None)
    assert status == "error" and "no authorizer" in what
    assert told(check_acls(patient_of({acls: None})))[0][0] == "warning"


def test_who_may_not_see_acls_is_told_so() -> None:
    """By both checks; librdkafka says that there are none."""
    settings = {1: {"authorizer.class.name": "org.Standard"}}
    asked = patient_of({client: NoAcls(), broker_settings: settings})
    found = examine(asked, {"authorizer": check_authorizer, "acls": check_acls})
    assert [each.status for _, each in found] == ["warning", "warning"]
    assert all("lacks Describe on the cluster" in each.what for _, each in found)


@pytest.mark.parametrize("name, prefixed", [("weir.policies", False), ("weir", True), ("*", False)])
@pytest.mark.parametrize(
    ("operation", "said"),
    [
        ("WRITE", "Write"), ("ALL", "All"), ("DELETE", "Delete"), ("ALTER", "Alter"),
        ("ALTER_CONFIGS", "AlterConfigs"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("who", ["User:*", "User:ANONYMOUS"])
def test_strangers_that_may_set_limits(
    name: str, prefixed: bool, operation: str, said: str, who: str
) -> None:
    """However the ACL is put; the command takes it away again, in the words of kafka-acls."""
    acl = Acl(who, AclOperation[operation], TOPIC, name, prefixed)
    found = list(check_authorizer(patient_of({acls: [acl, OTHER], broker_settings: {1: {}}})))
    assert {each.status for each in found} == {"error"}
    (one,) = (each for each in found if "weir.policies" in each.what)
    assert f"--remove --allow-principal '{who}' --operation {said} --topic '{name}'" in one.mend
    assert one.mend.endswith("prefixed") is prefixed


def test_an_acl_of_one_host_is_taken_away_as_one() -> None:
    """Else kafka-acls finds none that is of all hosts."""
    asked = patient_of({acls: [EVERYBODY._replace(host="10.0.0.1")], broker_settings: {1: {}}})
    (found,) = check_authorizer(asked)
    assert "--allow-principal 'User:*' --allow-host '10.0.0.1' --operation Write" in found.mend


@pytest.mark.parametrize(
    "harmless",
    [
        EVERYBODY._replace(operation=READ),
        EVERYBODY._replace(name="weir.policies2"),
        EVERYBODY._replace(name="app.", prefixed=True),
        EVERYBODY._replace(allows=False),
        EVERYBODY._replace(kind=ResourceType.GROUP),
        EVERYBODY._replace(principal="User:alice"),
    ],
)
def test_what_lets_no_stranger_in(harmless: Acl) -> None:
    """Other rights, topics, kinds and users."""
    assert authorizer([harmless])[0][0] == "ok"


def test_an_acl_that_denies_wins() -> None:
    """As at the broker; one of one host does not cover all."""
    denies = EVERYBODY._replace(allows=False, operation=AclOperation.ALL, name="weir.", prefixed=True)
    assert authorizer([EVERYBODY, denies])[0][0] == "ok"
    assert authorizer([EVERYBODY, denies._replace(host="10.0.0.1")])[0][0] == "error"


def test_who_may_write_policies_is_shown() -> None:
    """By name."""
    assert authorizer(OURS)[0][1].endswith("may write to weir.policies: User:weir-policies")


@pytest.mark.parametrize(
    ("settings", "there", "status"),
    [
        ({}, [], "ok"), ({OPEN: "false"}, [], "ok"), ({OPEN: "true"}, [], "error"),
        ({OPEN: None}, [], "warning"), ({OPEN: "true"}, OURS, "ok"), ({OPEN: None}, OURS, "ok"),
    ],
)  # fmt: skip
def test_topics_without_acls_are_open_where_the_brokers_say_so(
    settings: dict[str, str | None], there: list[Acl], status: str
) -> None:
    """Brokers do not tell settings that they do not know by name: then it is a warning."""
    assert [each for each, _ in authorizer(there, {1: settings})] == [status]
    asked = patient_of({acls: [], broker_settings: Unanswered("refused")})
    assert [each for each, _ in told(check_authorizer(asked))] == ["warning"]


def given(grants: list[Grant]) -> list[Acl]:
    """As kafka-acls would have given them."""
    kinds = {
        "topic": TOPIC, "group": ResourceType.GROUP, "transactional-id": ResourceType.TRANSACTIONAL_ID,
        "cluster": ResourceType.BROKER,
    }  # fmt: skip
    names = {"DescribeConfigs": "DESCRIBE_CONFIGS"}
    return [
        Acl(
            f"User:{grant.user}", AclOperation[names.get(operation, operation.upper())], kinds[grant.kind],
            grant.name or "kafka-cluster", grant.prefixed,
        )
        for grant in grants
        for operation in grant.operations
    ]  # fmt: skip


def test_each_acl_of_the_page_that_is_missing_is_named() -> None:
    """With the command of the page; nothing is said of users that have none, nor where all are there."""
    assert told(check_acls(patient_of({acls: [OTHER]})))[0][0] == "ok"
    assert [status for status, _ in told(check_acls(patient_of({acls: given(list(GRANTS))})))] == ["ok"]
    for grant in GRANTS:
        others = [one for one in GRANTS if one != grant]
        found = list(check_acls(patient_of({acls: given(others)})))
        # Some are given by wider ones, too.
        for each in found:
            assert each.status == "error" or len(found) == 1
            assert each.status != "error" or each.mend == grant.command("127.0.0.1:9092")
    lone = patient_of({acls: given([GRANTS[0]])})
    lacking = [each.what for each in check_acls(lone)]
    assert f"User:{GRANTS[0].user} lacks Write on topic weir.decisions" in lacking


DENIED = Acl("User:weir-proxy", AclOperation.ALL, TOPIC, "weir.", prefixed=True, allows=False)
NEEDS = "User:weir-proxy is denied All on topic 'weir.', which weir-proxy cannot do without"


@pytest.mark.parametrize(
    ("denies", "what", "mend"),
    [
        (DENIED, NEEDS, "--operation All --topic 'weir.' --resource-pattern-type prefixed"),
        # Some of what a prefix gives.
        (
            Acl("User:weir-proxy", AclOperation.DESCRIBE, TOPIC, "weir.usage", allows=False),
            NEEDS.replace("All", "Describe").replace("weir.'", "weir.usage'"),
            "--operation Describe --topic 'weir.usage'",
        ),
        # What comes with a right to read.
        (
            Acl("User:weir-job", AclOperation.DESCRIBE, TOPIC, "weir.policies", allows=False),
            "User:weir-job is denied Describe on topic 'weir.policies', which weir-job cannot do without",
            "--operation Describe --topic 'weir.policies'",
        ),
        (
            Acl("User:*", AclOperation.ALL, ResourceType.BROKER, "kafka-cluster", allows=False),
            "User:* is denied All on cluster, which weir-backlogs, weir-policies, weir-proxy cannot do"
            " without",
            "--operation All --cluster",
        ),
    ],
)
def test_what_is_denied_is_not_given(denies: Acl, what: str, mend: str) -> None:
    """Whatever else gives it; the command takes the ACL away that denies."""
    (found,) = check_acls(patient_of({acls: [*given(list(GRANTS)), denies]}))
    assert (str(found.status), found.what) == ("error", what)
    assert found.mend == (
        f"kafka-acls --bootstrap-server 127.0.0.1:9092 --remove --deny-principal '{denies.principal}' {mend}"
    )


@pytest.mark.parametrize(
    "harmless",
    [
        DENIED._replace(principal="User:other"),
        DENIED._replace(operation=AclOperation.ALTER),
        DENIED._replace(name="app."),
        DENIED._replace(kind=ResourceType.TRANSACTIONAL_ID, name="weir.policies"),
        DENIED._replace(host="10.0.0.1"),
    ],
)
def test_what_is_denied_that_nobody_needs(harmless: Acl) -> None:
    """Other users, operations, names and kinds, and one host, which need not be Weir's."""
    asked = patient_of({acls: [*given(list(GRANTS)), harmless]})
    assert [status for status, _ in told(check_acls(asked))] == ["ok"]


@pytest.mark.parametrize(
    ("operation", "lacks"), [("READ", False), ("ALTER", False), ("ALL", False), ("CREATE", True)]
)
def test_who_may_read_may_look(operation: str, lacks: bool) -> None:
    """As at the broker: Describe comes with what needs it."""
    groups = Acl("User:weir-reader", AclOperation[operation], ResourceType.GROUP, "*")
    found = [each.what for each in check_acls(patient_of({acls: [groups]}))]
    assert ("User:weir-reader lacks Describe on group weir-" in found) is lacks


def test_names_follow_the_prefix_of_the_topics() -> None:
    """Groups are Weir's own everywhere."""
    by_kind = {grant.kind: grant.under("w2.") for grant in GRANTS if grant.user == "weir-policies"}
    assert by_kind["topic"].name == "w2.policies" and by_kind["transactional-id"].name == "w2.policies"
    assert by_kind["group"].name == "weir-"


def done(result: Any) -> "Future[Any]":
    """An answer."""
    made: Future[Any] = Future()
    made.set_result(result)
    return made


class NoAcls:
    """librdkafka's client where the cluster has none, or no authorizer, or one may not see them.

    Args:
        may: what one may do with the cluster.
    """

    def __init__(self, may: list[AclOperation] | None = None) -> None:
        self._may = may

    def describe_acls(self, *_: Any, **__: Any) -> Any:
        """An empty list, at once."""
        return done([])

    def describe_cluster(self, *_: Any, **__: Any) -> Any:
        """What one may."""
        return done(SimpleNamespace(authorized_operations=self._may))


@pytest.mark.parametrize(("name", "expected"), [("", None), ("org.Standard", [])])
def test_no_acl_and_no_authorizer_are_told_apart(name: str, expected: list[Acl] | None) -> None:
    """By the brokers' settings."""
    settings = {1: {"authorizer.class.name": name}}
    seen = NoAcls([AclOperation.DESCRIBE])
    assert acls(patient_of({client: seen, broker_settings: settings})) == expected
