"""`weir policy check` and `explain`: what they print and how they end."""

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


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A policy file without mistakes."""
    path = tmp_path / "policies.yaml"
    path.write_text(POLICIES)
    return str(path)


def explained(capsys: pytest.CaptureFixture[str], file: str, *words: str) -> list[str]:
    """The lines that explain prints."""
    assert main(["policy", "explain", "--policies", file, *words]) == 0
    return capsys.readouterr().out.splitlines()


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
    ],
)
def test_explain_says_where_it_is_decided(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, keys: str, words: str
) -> None:
    """In the last line of what the quota means."""
    path = tmp_path / "policies.yaml"
    path.write_text(
        f"version: 1\nquotas:\n  - {{entity: {{user: a}}, controller_mutation_rate: 1, {keys}}}\n"
    )
    lines = explained(capsys, str(path), "--user", "a", "--client-id", "")
    assert words in lines[lines.index("What to do next:") - 2]


def test_check_says_what_a_good_file_holds(capsys: pytest.CaptureFixture[str], file: str) -> None:
    """Status 0, nothing on stderr."""
    assert main(["policy", "check", file]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{file}: no problems; entries: 5 in quotas, 2 in resourcegroups")
    assert err == ""


def test_check_warns_of_bursts_that_fill_slowly(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Above an hour, on stderr, and status 0: a new proxy does not know how much of them is used."""
    path = tmp_path / "slow.yaml"
    quota = "  - {{entity: {{user: {}}}, controller_mutation_rate: 0.01, controller_mutation_burst: {}}}\n"
    rows = (quota.format(user, burst) for user, burst in (("a", 37), ("b", 500), ("c", 36)))
    path.write_text("version: 1\nquotas:\n" + "".join(rows))
    assert main(["policy", "check", str(path)]) == 0
    said = f"{path}: warning: quotas[user=b]: its burst takes 13.9 h to fill, and 1 more; "
    assert capsys.readouterr().err == f"{said}a proxy that starts reads ten minutes back\n"


def test_check_prints_one_line_a_problem(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """On stderr, status 2."""
    path = tmp_path / "bad.yaml"
    path.write_text(
        "version: 1\nquotas:\n  - entity: {user: a}\n    controller_mutation_rate: 0\ntenant: {}\n"
    )
    assert main(["policy", "check", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(": ")[:2] for line in err.splitlines()] == [
        [f"{path}:4", "quotas[0].controller_mutation_rate"],
        [f"{path}:5", "tenant"],
    ]


def test_check_names_a_wrong_flag_of_a_backlog_quota(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A misspelt action would never be carried out: status 2, with file, line and key."""
    path = tmp_path / "bad.yaml"
    path.write_text(
        "version: 1\nnamespaces:\n  acme/orders:\n    backlogQuotaMap:\n      message_age:\n"
        "        limitTime: 5\n        policy: producer_exception\n        actions: yes\n"
    )
    assert main(["policy", "check", str(path)]) == 2
    key = "namespaces.acme/orders.backlogQuotaMap.message_age.actions"
    assert capsys.readouterr().err == f"{path}:8: {key}: is the text 'yes'; expected true or false\n"


def test_explain_begins_with_level_entity_rate_and_burst(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    """Then the eight levels in order, then what to do."""
    lines = explained(capsys, file, "--user", "alice", "--client-id", "cli")
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


def test_explain_names_the_charged_subject_of_a_default(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    """Without --user the client is ANONYMOUS, without --client-id it has the empty one."""
    first = "level 6: user=<default> (charged to user=ANONYMOUS): rate 0.7/s, burst 7.7, sampled_rate, shadow"
    lines = explained(capsys, file, "--client-id", "any")
    assert lines[0].startswith(first)
    assert "Partition mutations are averaged over 11 windows of one second." in lines
    assert explained(capsys, file, "--user", "ANONYMOUS")[0].startswith(first)


def test_explain_says_when_no_quota_applies(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Level 0, and how to set one."""
    path = tmp_path / "none.yaml"
    path.write_text("version: 1\n")
    lines = explained(capsys, str(path), "--user", "bob", "--client-id", "x")
    assert lines[0] == "level 0: no quota applies to user 'bob' with client-id 'x'"
    assert (
        "  a limit for this user alone: add - {entity: {user: bob}, controller_mutation_rate: RATE}" in lines
    )


def test_explain_proposes_only_entries_that_would_come_first(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    """Nothing comes before level 1."""
    lines = explained(capsys, file, "--user", "limited", "--client-id", "x")
    assert lines[0].startswith("level 1: user=limited,client-id=x: rate 1/s, burst 11")
    assert not any("a limit for" in line for line in lines)


def test_explain_of_a_subscription_begins_with_its_rate(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    """Its own rate comes before that of the topic."""
    lines = explained(capsys, file, "--topic", T1, "--subscription", "sub1")
    where, limit = f"topics.{T1}.subscriptions.sub1.dispatchRate", "5 messages per second"
    assert lines[0] == f"level 1: {where}: {limit} for subscription 'sub1' of {T1}"
    assert "Resource group: rg1 by tenants.acme: {publishRateInMsgs: 100}" in lines
    assert "The broker as a whole: 1000 messages per second, beside the limits above." in lines


def test_explain_of_a_topic_shows_precedence(capsys: pytest.CaptureFixture[str], file: str) -> None:
    """Topic over namespace over broker; a rate wins as a whole; what sets no limit is passed over."""
    lines = explained(capsys, file, "--topic", T1)
    assert lines[0].startswith("level 3: namespaces.acme/orders.dispatchRate: 10 messages per 2 s for ")
    assert "namespaces.acme/orders.dispatchRate" in applying(lines, "Dispatch rate of the topic")
    assert "99 bytes per second" in applying(lines, "Dispatch rate of one subscription")
    assert f"topics.{T1}.backlogQuotaMap" in applying(lines, "Backlog quota destination_storage")
    assert "3600 s, consumer_backlog_eviction" in applying(lines, "Backlog quota message_age")
    other = explained(capsys, file, "--topic", T2, "--subscription", "any")
    assert other[0].startswith("level 3: namespaces.acme/orders.subscriptionDispatchRate")
    assert "9 bytes, producer_request_hold" in applying(other, "Backlog quota destination_storage")


def test_explain_says_whether_a_backlog_quota_is_carried_out(
    capsys: pytest.CaptureFixture[str], file: str, tmp_path: Path
) -> None:
    """Both flags where they mean something; the broker's defaults are never acted on."""
    lines = explained(capsys, file, "--topic", T1)
    told = "3600 s, consumer_backlog_eviction, actions: true, allow_delete_records: false: applies"
    assert applying(lines, "Backlog quota message_age").endswith(told)
    told = "1000 bytes, producer_exception, actions: false: applies"
    assert applying(lines, "Backlog quota destination_storage").endswith(told)
    lines = explained(capsys, file, "--topic", T2)
    told = "9 bytes, producer_request_hold, actions: false: applies"
    assert applying(lines, "Backlog quota destination_storage").endswith(told)
    path = tmp_path / "deleting.yaml"
    path.write_text(
        "version: 1\nnamespaces:\n  acme/orders:\n    backlogQuotaMap:\n      destination_storage:\n"
        "        {limitSize: 5, policy: consumer_backlog_eviction, allow_delete_records: true}\n"
    )
    lines = explained(capsys, str(path), "--topic", T1)
    assert "actions: false, allow_delete_records: true" in applying(lines, "Backlog quota destination")


def test_explain_knows_short_names_and_rates_across_brokers(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    """A Kafka topic without tenant and namespace is Pulsar's in public/default."""
    full = "persistent://public/default/clicks"
    lines = explained(capsys, file, "--topic", "clicks", "--subscription", "s")
    assert lines == explained(capsys, file, "--topic", full, "--subscription", "s")
    rate, of = "3 messages per 5 s, all brokers together,", f"subscription 's' of {full}"
    assert lines[0] == f"level 3: namespaces.public/default.subscriptionDispatchRate: {rate} for {of}"


def test_explain_of_a_topic_falls_back_to_the_broker(capsys: pytest.CaptureFixture[str], file: str) -> None:
    """And says when nothing limits; a namespace's own group comes before its tenant's."""
    lines = explained(capsys, file, "--topic", OWN)
    assert lines[0].startswith("level 4: broker.dispatchThrottlingRatePerTopic*: 7 bytes per second for ")
    assert "Resource group: rg2 by namespaces.acme/own: {}" in lines
    assert applying(lines, "Backlog quota message_age") == ""
    lines = explained(capsys, file, "--topic", OWN, "--subscription", "s")
    assert lines[0] == f"level 0: no dispatch rate applies to subscription 's' of {OWN}"
    assert "Resource group: none, neither in its namespace nor in its tenant." in explained(
        capsys, file, "--topic", "persistent://x/y/z"
    )


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--subscription", "s"],
        ["--topic", "t 1"],
        ["--topic", "acme.orders.t1"],
        ["--topic", T1, "--user", "alice"],
        ["--topic", T1, "--client-id", "x"],
    ],
)
def test_explain_refuses_options_that_make_no_sense(
    capsys: pytest.CaptureFixture[str], file: str, words: list[str]
) -> None:
    """Status 2 with the usage."""
    with pytest.raises(SystemExit) as caught:
        main(["policy", "explain", "--policies", file, *words])
    assert caught.value.code == 2
    assert "usage: weir policy explain" in capsys.readouterr().err


def test_explain_does_not_guess_about_a_broken_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The same lines as check, status 2."""
    path = tmp_path / "bad.yaml"
    path.write_text("version: 2\n")
    assert main(["policy", "explain", "--policies", str(path), "--user", "a"]) == 2
    assert capsys.readouterr().err == f"{path}:1: version: is 2; expected 1\n"
