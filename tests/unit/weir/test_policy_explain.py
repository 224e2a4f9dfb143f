"""`weir policy check` and `explain`: what they print and how they end."""

from collections.abc import Callable
from pathlib import Path

import pytest

from weir.cli import main

POLICIES = """\
version: 1
quotas:
  - entity: {user: alice}
    controller_mutation_rate: 5
    controller_mutation_burst: 500
  - entity: {user: alice, client-id: cli}
    producer_byte_rate: 100
  - entity: {user: null}
    controller_mutation_rate: 0.7
    algorithm: sampled_rate
    shadow: true
  - entity: {user: null, client-id: null}
    controller_mutation_rate: -1
  - entity: {user: limited, client-id: x}
    controller_mutation_rate: 1
resourcegroups:
  rg1: {publishRateInMsgs: 100}
  rg2: {}
tenants: {acme: {resourcegroup: rg1}}
namespaces:
  acme/orders:
    dispatchRate: {dispatchThrottlingRateInMsg: 10, ratePeriodInSecond: 2}
    subscriptionDispatchRate: {dispatchThrottlingRateInByte: 99}
    backlogQuotaMap: {message_age: {limitTime: 3600, policy: consumer_backlog_eviction, actions: true}}
  acme/own: {resourcegroup: rg2}
  public/default:
    subscriptionDispatchRate: {dispatchThrottlingRateInMsg: 3, ratePeriodInSecond: 5, across_brokers: true}
topics:
  persistent://acme/orders/t1:
    subscriptionDispatchRate: {dispatchThrottlingRateInMsg: -1}
    subscriptions: {sub1: {dispatchRate: {dispatchThrottlingRateInMsg: 5}}}
    backlogQuotaMap:
      destination_storage: {limitSize: 1000, policy: producer_exception}
      message_age: {limitTime: -1, policy: producer_exception}
broker:
  dispatchThrottlingRateInMsg: 1000
  dispatchThrottlingRatePerTopicInByte: 7
  backlogQuotaDefaultLimitBytes: 9
"""
T1, T2, OWN = "persistent://acme/orders/t1", "persistent://acme/orders/t2", "persistent://acme/own/t"


Explain = Callable[..., list[str]]
Check = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Explain:
    """Gives the lines that explain prints, of a policy file without mistakes or of another text."""

    def lines(*words: str, text: str = POLICIES) -> list[str]:
        path = tmp_path / "policies.yaml"
        path.write_text(text)
        assert main(["policy", "explain", "--policies", str(path), *words]) == 0
        return capsys.readouterr().out.splitlines()

    return lines


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Gives status, output and errors of a check of a text, its file called F."""

    def checked(text: str) -> tuple[int, str, str]:
        path = tmp_path / "policies.yaml"
        path.write_text(text)
        status = main(["policy", "check", str(path)])
        out, err = (said.replace(str(path), "F") for said in capsys.readouterr())
        return status, out, err

    return checked


def applying(lines: list[str], title: str) -> str:
    """The line of a searched list that says `applies`; empty if none does."""
    start = next(number for number, line in enumerate(lines) if line.startswith(title))
    end = lines.index("", start)
    return next((line for line in lines[start:end] if line.endswith(": applies")), "")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("", "setting proxy.decide"),
        ("decide: local", "The proxy that is asked decides at once"),
        ("decide: strict", "a request waits for it"),
        ("algorithm: sampled_rate", "as always with this algorithm"),
        ("decide: local, shadow: true", "the entry is a shadow"),
        ("algorithm: sampled_rate, shadow: true", "the entry is a shadow"),
    ],
)
def test_explain_says_where_it_is_decided(explain: Explain, keys: str, words: str) -> None:
    """In the last line of what the quota means."""
    text = f"version: 1\nquotas:\n  - {{entity: {{user: a}}, controller_mutation_rate: 1, {keys}}}\n"
    lines = explain("--user", "a", "--client-id", "", text=text)
    assert words in lines[lines.index("What to do next:") - 2]


def test_explain_says_until_when_a_topics_group_is_raised(explain: Explain) -> None:
    """Beside its limit, which is that of the raise."""
    group = "{publishRateInMsgs: 1, raise: {publishRateInMsgs: 5, until: '2999-01-01T00:00:00Z'}}"
    text = f"version: 1\nresourcegroups: {{g: {group}}}\ntenants: {{acme: {{resourcegroup: g}}}}\n"
    lines = explain("--topic", T1, text=text)
    assert lines[1] == "resourcegroups.g is raised until 2999-01-01T00:00:00Z."
    assert "Resource group: g by tenants.acme: {publishRateInMsgs: 5}" in lines


def test_check_says_what_a_good_file_holds(check: Check) -> None:
    """Status 0, nothing on stderr."""
    status, out, err = check(POLICIES)
    assert out.startswith("F: no problems; entries: 5 in quotas, 2 in resourcegroups")
    assert (status, err) == (0, "")


def test_check_warns_of_bursts_that_fill_slowly(check: Check) -> None:
    """Above an hour, on stderr, and status 0: a new proxy does not know how much of them is used."""
    quota = "  - {{entity: {{user: {}}}, controller_mutation_rate: 0.01, controller_mutation_burst: {}}}\n"
    rows = (quota.format(user, burst) for user, burst in (("a", 37), ("b", 500), ("c", 36)))
    status, _, err = check("version: 1\nquotas:\n" + "".join(rows))
    said = "F: warning: quotas[user=b]: its burst takes 13.9 h to fill, and 1 more; "
    assert (status, err) == (0, f"{said}a proxy that starts reads ten minutes back\n")


def test_check_prints_one_line_a_problem(check: Check) -> None:
    """On stderr, status 2."""
    text = "version: 1\nquotas:\n  - entity: {user: a}\n    controller_mutation_rate: 0\ntenant: {}\n"
    status, out, err = check(text)
    assert (status, out) == (2, "")
    lines = [line.split(": ")[:2] for line in err.splitlines()]
    assert lines == [["F:4", "quotas[0].controller_mutation_rate"], ["F:5", "tenant"]]


def test_explain_begins_with_level_entity_rate_and_burst(explain: Explain) -> None:
    """Then the eight levels in order, then what to do."""
    lines = explain("--user", "alice", "--client-id", "cli")
    assert lines[0] == "level 3: user=alice: rate 5/s, burst 500, token_bucket"
    levels = [line.split(maxsplit=2) for line in lines[3:11]]
    assert [number for number, _, _ in levels] == list("12345678")
    assert [found for _, _, found in levels] == [
        "entry without a controller_mutation_rate, passed over",
        "no entry",
        "matched",
        "no entry",
        "entry with controller_mutation_rate -1, passed over",
        "entry, not reached: level 3 comes first",
        "no entry",
        "no entry",
    ]
    assert any("weir policy apply" in line for line in lines)


def test_explain_names_the_charged_subject_of_a_default(explain: Explain) -> None:
    """Without --user the client is ANONYMOUS, without --client-id it has the empty one."""
    first = "level 6: user=<default> (charged to user=ANONYMOUS): rate 0.7/s, burst 7.7, sampled_rate, shadow"
    lines = explain("--client-id", "any")
    assert lines[0].startswith(first)
    assert "Partition mutations are averaged over 11 windows of one second." in lines
    assert explain("--user", "ANONYMOUS")[0].startswith(first)


def test_explain_says_when_no_quota_applies(explain: Explain) -> None:
    """Level 0, and how to set one."""
    lines = explain("--user", "bob", "--client-id", "x", text="version: 1\n")
    assert lines[0] == "level 0: no quota applies to user 'bob' with client-id 'x'"
    assert (
        "  a limit for this user alone: add - {entity: {user: bob}, controller_mutation_rate: RATE}" in lines
    )


def test_explain_proposes_only_entries_that_would_come_first(explain: Explain) -> None:
    """Nothing comes before level 1."""
    lines = explain("--user", "limited", "--client-id", "x")
    assert lines[0].startswith("level 1: user=limited,client-id=x: rate 1/s, burst 11")
    assert not any("a limit for" in line for line in lines)


def test_explain_of_a_subscription_begins_with_its_rate(explain: Explain) -> None:
    """Its own rate comes before that of the topic."""
    lines = explain("--topic", T1, "--subscription", "sub1")
    where, limit = f"topics.{T1}.subscriptions.sub1.dispatchRate", "5 messages per second"
    assert lines[0] == f"level 1: {where}: {limit} for subscription 'sub1' of {T1}"
    assert "Resource group: rg1 by tenants.acme: {publishRateInMsgs: 100}" in lines
    assert "The broker as a whole: 1000 messages per second, beside the limits above." in lines


def test_explain_of_a_topic_shows_precedence(explain: Explain) -> None:
    """Topic over namespace over broker; a rate wins as a whole; what sets no limit is passed over."""
    lines = explain("--topic", T1)
    assert lines[0].startswith("level 3: namespaces.acme/orders.dispatchRate: 10 messages per 2 s for ")
    assert "namespaces.acme/orders.dispatchRate" in applying(lines, "Dispatch rate of the topic")
    assert "99 bytes per second" in applying(lines, "Dispatch rate of one subscription")
    assert f"topics.{T1}.backlogQuotaMap" in applying(lines, "Backlog quota destination_storage")
    assert "3600 s, consumer_backlog_eviction" in applying(lines, "Backlog quota message_age")
    other = explain("--topic", T2, "--subscription", "any")
    assert other[0].startswith("level 3: namespaces.acme/orders.subscriptionDispatchRate")
    assert "9 bytes, producer_request_hold" in applying(other, "Backlog quota destination_storage")


def test_explain_says_whether_a_backlog_quota_is_carried_out(explain: Explain) -> None:
    """Both flags where they mean something; the broker's defaults are never acted on."""
    lines = explain("--topic", T1)
    told = "3600 s, consumer_backlog_eviction, actions: true, allow_delete_records: false: applies"
    assert applying(lines, "Backlog quota message_age").endswith(told)
    told = "1000 bytes, producer_exception, actions: false: applies"
    assert applying(lines, "Backlog quota destination_storage").endswith(told)
    lines = explain("--topic", T2)
    told = "9 bytes, producer_request_hold, actions: false: applies"
    assert applying(lines, "Backlog quota destination_storage").endswith(told)
    text = (
        "version: 1\nnamespaces:\n  acme/orders:\n    backlogQuotaMap:\n      destination_storage:\n"
        "        {limitSize: 5, policy: consumer_backlog_eviction, allow_delete_records: true}\n"
    )
    lines = explain("--topic", T1, text=text)
    assert "actions: false, allow_delete_records: true" in applying(lines, "Backlog quota destination")


def test_explain_knows_short_names_and_rates_across_brokers(explain: Explain) -> None:
    """A Kafka topic without tenant and namespace is Pulsar's in public/default."""
    full = "persistent://public/default/clicks"
    lines = explain("--topic", "clicks", "--subscription", "s")
    assert lines == explain("--topic", full, "--subscription", "s")
    rate, of = "3 messages per 5 s, all brokers together,", f"subscription 's' of {full}"
    assert lines[0] == f"level 3: namespaces.public/default.subscriptionDispatchRate: {rate} for {of}"


def test_explain_of_a_topic_falls_back_to_the_broker(explain: Explain) -> None:
    """And says when nothing limits; a namespace's own group comes before its tenant's."""
    lines = explain("--topic", OWN)
    assert lines[0].startswith("level 4: broker.dispatchThrottlingRatePerTopic*: 7 bytes per second for ")
    assert "Resource group: rg2 by namespaces.acme/own: {}" in lines
    assert applying(lines, "Backlog quota message_age") == ""
    lines = explain("--topic", OWN, "--subscription", "s")
    assert lines[0] == f"level 0: no dispatch rate applies to subscription 's' of {OWN}"
    nothing = "Resource group: none, neither in its namespace nor in its tenant."
    assert nothing in explain("--topic", "persistent://x/y/z")


def test_explain_names_commands_that_work_as_they_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a file with a blank in its name too."""
    path = tmp_path / "a b.yaml"
    path.write_text("version: 1\n")
    for words in (("--user", "u"), ("--topic", "clicks")):
        assert main(["policy", "explain", "--policies", str(path), *words]) == 0
        assert f"weir policy apply '{path}' --kafka HOST:PORT\n" in capsys.readouterr().out
