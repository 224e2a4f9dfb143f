"""Policy files and policy events: every mistake is found, with its line."""

from pathlib import Path
from typing import Any

import pytest
from traces_kit import TRACES

from streaming.contract.errors import BadEvent, ConfigError
from streaming.policy import files, validation
from streaming.policy.files import check_entry, load_policies, policy_file
from streaming.policy.policy_set import Section
from streaming.policy.schema import VALUES

FULL = """\
version: 1
mode: off
quotas:
  - entity: {user: alice}
    controller_mutation_rate: 5
    controller_mutation_burst: 500
    algorithm: token_bucket
    producer_byte_rate: 1048576
    consumer_byte_rate: 1048576
    shadow: false
    raise: {controller_mutation_rate: 50, until: 2026-12-01T08:00:00+01:00}
  - entity: {user: null, client-id: ""}
    controller_mutation_rate: 0.25
    algorithm: sampled_rate
  - entity: {client-id: null}
resourcegroups:
  rg1: {publishRateInMsgs: 0.5, publishRateInBytes: -1, dispatchRateInBytes: 7, shadow: true}
tenants:
  acme: {resourcegroup: rg1}
namespaces:
  acme/orders:
    resourcegroup: rg1
    dispatchRate: {dispatchThrottlingRateInMsg: 10, dispatchThrottlingRateInByte: -1, ratePeriodInSecond: 1}
    subscriptionDispatchRate: {dispatchThrottlingRateInMsg: 10}
    backlogQuotaMap:
      destination_storage: {limitSize: 0, policy: producer_request_hold}
      message_age:
        {limitTime: 3600, policy: consumer_backlog_eviction, actions: true, allow_delete_records: true}
topics:
  persistent://acme/orders/t1:
    subscriptions: {sub1: {dispatchRate: {dispatchThrottlingRateInMsg: 5}}}
broker:
  dispatchThrottlingRateInMsg: -1
  preciseBacklogSize: false
  resourceUsagePublishIntervalInSecs: 60
  backlogQuotaDefaultRetentionPolicy: producer_exception
backpressure:
  partitions:
    "*":
      algorithm: aimd
      useWindowed: true
      window: {minWindow: 1s, maxWindow: 1s, windowSize: 10, minRttThreshold: 100us}
    orders-0: {aimd: {requestTimeout: 200ms, initialLimit: 9, minLimit: 1, maxLimit: 10, backoffRatio: 0.9}}
    orders-1: {algorithm: aimd-plain, aimd-plain: {requestTimeout: 0.5s}}
    orders-2: {algorithm: fixed, fixed: {limit: 20}}
    orders-3:
      algorithm: vegas
      vegas: {alpha: 3, beta: 6*log10, threshold: log10, smoothing: 1.0, probeJitter: 0.75}
    orders-4: {algorithm: gradient, gradient: {rttTolerance: 2.0, smoothing: 0.2, probeInterval: -1}}
    orders-5: {algorithm: gradient2, gradient2: {queueSize: 4, longWindow: 600, minLimit: 20}}
"""

MARK = "  #! "


FILES = (Path(__file__).parent / "broken_policies.txt").read_text().split("\n== ")[1:]
BROKEN = {name: text for name, _, text in (file.partition("\n") for file in FILES)}
"""Name -> text, marks included: they are comments."""


def loaded(tmp_path: Path, text: str) -> dict[str, Any]:
    """The entries of a policy file."""
    file = tmp_path / "policies.yaml"
    file.write_text(text)
    return load_policies(str(file))


def problems(tmp_path: Path, text: str) -> list[tuple[int, str, str]]:
    """Line, path and message of each problem of a policy file."""
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert {problem.file for problem in caught.value.problems} == {str(tmp_path / "policies.yaml")}
    return [(problem.line, problem.path, problem.message) for problem in caught.value.problems]


@pytest.mark.parametrize("name", BROKEN)
def test_a_mistake_is_found_with_its_line_and_key(tmp_path: Path, name: str) -> None:
    """Nothing but the mistake is reported, as `what is wrong; what was expected` on one line."""
    expected = [
        (line, *mark.partition(" | ")[::2])
        for line, content in enumerate(BROKEN[name].splitlines(), start=1)
        for mark in content.split(MARK)[1:]
    ]
    found = problems(tmp_path, BROKEN[name])
    assert [(line, path) for line, path, _ in found] == [(line, path) for line, path, _ in expected]
    for (_, _, message), (_, _, words) in zip(found, expected, strict=True):
        assert words in message
        assert message.count("; expected ") == 1
        assert "\n" not in message


@pytest.mark.parametrize(("text", "line"), [("version: 1\nquotas: [\n", 3), ("- version: 1\n", 1)])
def test_what_is_no_mapping_is_one_problem(tmp_path: Path, text: str, line: int) -> None:
    """Nothing after wrong YAML can be read; of a list no missing key is named."""
    assert [(at, path) for at, path, _ in problems(tmp_path, text)] == [(line, "(file)")]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "is missing"),
        ("# nothing\n", 1, "is missing"),
        ("quotas: []\n", 1, "is missing"),
        ("quotas: []\nversion: 2\n", 2, "is 2; expected 1"),
        ("version: '1'\n", 1, "the text '1'"),
        ("version: true\n", 1, "is true"),
        ("version: 1.0\n", 1, "is 1.0"),
    ],
)
def test_the_version_must_be_one(tmp_path: Path, text: str, line: int, words: str) -> None:
    """A file of another version would mean something else."""
    found = problems(tmp_path, text)
    assert [(line, "version")] == [(at, path) for at, path, _ in found]
    assert words in found[0][2]


def test_all_problems_are_reported_in_file_order(tmp_path: Path) -> None:
    """One run of the check is enough to repair a file."""
    names = ("misspelt limit", "bad topics", "broker", "unknown section")
    text = "".join(BROKEN[name].removeprefix("version: 1\n") for name in names)
    found = problems(tmp_path, f"version: 3\n{text}")
    assert len(found) == 1 + 1 + 4 + 4 + 1
    assert found == sorted(found, key=lambda problem: problem[0])


def test_short_names_of_topics_are_written_out(tmp_path: Path) -> None:
    """As Pulsar does; the entry is found by the full name."""
    text = "version: 1\ntopics:\n  clicks.v1: {}\n  non-persistent://a/b/c: {}\n"
    expected = {"topics.persistent://public/default/clicks.v1": {}, "topics.non-persistent://a/b/c": {}}
    assert loaded(tmp_path, text) == expected
    assert loaded(tmp_path, policy_file(expected)) == expected


def test_a_file_with_everything_loads(tmp_path: Path) -> None:
    """Values as written; whole numbers stay whole."""
    entries = loaded(tmp_path, FULL)
    assert list(entries)[:5] == [
        "mode",
        "quotas[user=alice]",
        "quotas[user=<default>,client-id=]",
        "quotas[client-id=<default>]",
        "resourcegroups.rg1",
    ]
    assert entries["quotas[user=alice]"]["controller_mutation_rate"] == 5
    assert type(entries["quotas[user=alice]"]["controller_mutation_rate"]) is int
    assert entries["quotas[client-id=<default>]"] == {}
    assert entries["tenants.acme"] == {"resourcegroup": "rg1"}
    assert entries["broker"]["resourceUsagePublishIntervalInSecs"] == 60
    assert entries["backpressure.partitions.*"]["algorithm"] == "aimd"


def test_sections_may_be_left_empty(tmp_path: Path) -> None:
    """A section whose lines are all commented out is an empty one."""
    sections = "version: 1\nquotas:\nresourcegroups:\ntenants:\ntopics:\nbroker:\nbackpressure:\n"
    assert loaded(tmp_path, sections) == {}
    assert loaded(tmp_path, "version: 1\nbackpressure: {partitions: }\nbroker: {}\n") == {"broker": {}}


def test_the_trace_policies_are_there() -> None:
    """All four laws that have policies."""
    assert {path.parent.name for path, _ in TRACES.values()} >= {"mutation", "shares", "dispatch", "backlog"}


@pytest.mark.parametrize("path", [policies for policies, _ in TRACES.values()], ids=TRACES)
def test_reference_policies_load_and_survive_writing(tmp_path: Path, path: Path) -> None:
    """Each entry passes as an event, and the file that `weir policy get` would print is equal."""
    entries = load_policies(str(path))
    for name, value in entries.items():
        check_entry(name, value)
    assert loaded(tmp_path, policy_file(entries)) == entries


def test_written_files_quote_what_they_must(tmp_path: Path) -> None:
    """Names that look like numbers, defaults or YAML."""
    entries = {
        "quotas[user=1e6,client-id=]": {"controller_mutation_rate": 1e-7},
        "quotas[user=%3Cdefault>]": {"controller_mutation_rate": 2},
        "quotas[user=<default>]": {},
        "quotas[user=a: b #\u2028,client-id=<default>]": {"shadow": True},
        "resourcegroups.null": {"publishRateInMsgs": 0.1},
        "backpressure.partitions.*": {"aimd": {"requestTimeout": "1.5s"}},
        "broker": {},
    }
    assert loaded(tmp_path, policy_file(entries)) == entries


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (
            "quotas[user=a]",
            {"controller_mutation_rate": 0},
            "policy quotas[user=a]: controller_mutation_rate: is 0",
        ),
        ("quotas[user=a]", {"entity": {"user": "a"}}, "entity: is not a known key"),
        ("quotas[user=a]", [], "is an empty list; expected"),
        ("quotas[user=a]", [1], "is a list; expected"),
        ("quotas[user=]", {}, "user: has 0 characters"),
        ("quotas[]", None, "names nobody"),
        ("quotas[client-id=c,user=u]", {}, "is not an entity"),
        ("topics.t1", {}, "persistent://TENANT"),
        ("topics.t1", None, "persistent://TENANT"),
        ("namespaces.acme", {}, "TENANT/NAMESPACE"),
        ("tenants.acme", {}, "resourcegroup: is missing"),
        ("resourcegroups.quota/x", {}, "kept for quotas"),
        ("backpressure.partitions.p", {"algorithm": "x"}, "algorithm: is the text 'x'"),
        ("backpressure.partitions.p", {"exempt": ["sasl", "produce"]}, "text 'produce'; expected one"),
        ("backpressure.partitions.p", {"exempt": "sasl"}, "exempt: is the text 'sasl'"),
        ("backpressure.partitions.p", {"exempt": None}, "exempt: is empty"),
        ("version", 1, "is not known"),
        (f"resourcegroups.{'x' * 1025}", {}, "has 1025 characters; expected 1 to 1024"),
        ("quotas[user=a]", {"algorithm": "x" * 90}, f"is the text '{'x' * 80}...'; expected one of"),
    ],
)
def test_policy_events_are_held_to_the_same_rules(path: str, value: Any, words: str) -> None:
    """One reason names the entry and what is wrong."""
    with pytest.raises(BadEvent) as caught:
        check_entry(path, value)
    assert words in caught.value.reason
    assert "policy" in caught.value.reason


def test_a_removal_needs_only_a_path() -> None:
    """Whatever the entry was."""
    for path in (
        "quotas[user=<default>]", "broker", "topics.persistent://a/b/c", "backpressure.partitions.*",
    ):  # fmt: skip
        check_entry(path, None)


def test_few_groups_are_looked_for_by_their_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each among all others: 400 that are misspelt alike took ten seconds, twice as many four times that."""
    asked = list[str]()

    def suggestion(name: str, known: list[str]) -> str:
        asked.append(name)
        return f"{known[0]} (did you mean that?)"

    monkeypatch.setattr(files, "suggestion", suggestion)
    tenants = "".join(f"  t{n}: {{resourcegroup: g_{n % 30}}}\n" for n in range(90))
    text = f"version: 1\nresourcegroups: {{g-0: {{publishRateInMsgs: 1}}}}\ntenants:\n{tenants}"
    found = [message for _, _, message in problems(tmp_path, text)]
    assert len(found) == 90 and asked == [f"g_{n}" for n in range(20)]
    assert found[0].endswith("expected g-0 (did you mean that?)") and found[60] == found[0]
    assert found[29].endswith("expected one that resourcegroups holds")


def test_few_unknown_keys_are_looked_for_by_their_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a value: who may change one entry, with a body of 64 kB, held up the admin API for half a second."""
    asked = list[str]()

    def suggestion(name: str, known: list[str]) -> str:
        asked.append(name)
        return known[0]

    monkeypatch.setattr(validation, "suggestion", suggestion)
    found = VALUES[Section.RESOURCE_GROUPS].check({f"key{n}": 1 for n in range(90)})
    assert len(found) == 90 and asked == [f"key{n}" for n in range(20)]
    assert found[0].message.endswith("expected dispatchRateInBytes")
    assert "; expected one of dispatchRateInBytes, dispatchRateInMsgs, " in found[20].message
