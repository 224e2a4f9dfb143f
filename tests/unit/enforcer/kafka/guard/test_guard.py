"""Every list that may name something of Weir's: taken out of the request, refused in the answer."""

import struct
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from each_kit import each

from enforcer.core.metrics import Metrics
from enforcer.core.settings import Alter, ProxySettings
from enforcer.kafka.guard.answers import AnswerFilter
from enforcer.kafka.guard.apis import APIS, FILTERED, REFUSED
from enforcer.kafka.guard.guard import (
    CONSUMER_GROUP_HEARTBEAT,
    Guard,
    GuardPart,
    api_versions_refusal,
    names_none_of,
)
from enforcer.kafka.guard.protected import OwnTopics
from enforcer.kafka.guard.refusals import RemovedEntry, add
from enforcer.kafka.guard.rules import RULES, SHOWN, TRANSACTION_OF, Kind, Rule, rules_of
from enforcer.kafka.part import Link, Request
from enforcer.wire.kafka import frames
from enforcer.wire.kafka.codec import ASKED_MAX, request_layout, response_layout
from streaming.contract.topics import Topics

METADATA = 3
NAMING = [
    (key, version)
    for key in RULES
    for version in range((APIS[key].versions or (0, 0))[0], (APIS[key].versions or (0, 0))[1] + 1)
    if any(rule.kind in (Kind.TOPICS, Kind.TRANSACTIONS) for rule in rules_of(key, version))
]
OURS, OTHER = b"weir.policies", b"mine"
OUR_ID, OTHER_ID = b"W" * 16, b"M" * 16


def guard(**settings: Any) -> Guard:
    """A guard that knows an id."""
    protected = OwnTopics(Topics(), settings.pop("protect", True))
    protected.learn([OUR_ID])
    return Guard(protected, ProxySettings(**settings), Metrics(10), lambda: 0.0)


def framed(key: int, version: int, body: frames.Fields) -> bytes:
    """A request."""
    head = struct.pack(">hhih", key, version, 7, 1) + b"c" + frames.tags(frames.is_flexible(key, version))
    return head + request_layout(key, version).write(body)


def entry(rule: Rule, name: bytes, topic_id: bytes) -> Any:
    """An entry of a list, with partition 5."""
    if rule.name is None:
        return name
    parts = {rule.parts: [5 if rule.number is None else {rule.number: 5}]} if rule.parts else {}
    return {rule.name: name, "TopicId": topic_id, **parts}


def asking(key: int, version: int, names: dict[bytes, bytes]) -> bytes:
    """A request whose lists hold these, name -> id."""
    body: frames.Fields = {"KeyType": 1, "Acks": 1}
    for rule in rules_of(key, version):
        outer, _, inner = rule.asked.partition(".")
        entries = [entry(rule, name, topic_id) for name, topic_id in names.items()]
        body[outer] = [{rule.key: b"outer", inner: entries}] if inner else entries
    return framed(key, version, body)


def looked(one: Guard, frame: bytes, user: str) -> SimpleNamespace | None:
    """What is left of a request, what finishes its answer, and ours; None: it goes on as it came."""
    request, answers = Request(frame, frames.parse_header(frame), user), list[bytes]()
    link = SimpleNamespace(answer=lambda _request, response: answers.append(response))
    goes_on = GuardPart(cast(Link, link), one).take(request)
    if goes_on and request.frame is frame:
        return None
    left, answer = request.frame if goes_on else None, answers[0] if answers else None
    return SimpleNamespace(frame=left, finish=request.finish, answer=answer)


def judged(key: int, version: int, names: dict[bytes, bytes]) -> Any:
    """What a guard says of such a request."""
    frame = asking(key, version, names)
    return looked(guard(), frame, "mallory")


def test_no_api_is_forgotten() -> None:
    """What the table calls filtered or refused has a rule."""
    ruled = RULES.keys() | TRANSACTION_OF.keys() | SHOWN.keys() | {CONSUMER_GROUP_HEARTBEAT}
    assert ruled == FILTERED | REFUSED


def test_a_first_refusal_is_an_increase() -> None:
    """What may be refused is counted from 0: WeirForbiddenTried looks at increases."""
    metrics = Metrics(10)
    Guard(OwnTopics(Topics(), True), ProxySettings(), metrics, lambda: 0.0)
    told = {
        (sample.name, sample.labels.get("api"))
        for family in metrics.registry.collect()
        for sample in family.samples
    }
    changed = {"AlterClientQuotas", "AlterUserScramCredentials", "IncrementalAlterConfigs", "DeleteAcls"}
    assert {("weir_proxy_refused_changes_total", name) for name in changed} <= told
    assert {("weir_proxy_refused_topics_total", APIS[key].name) for key in FILTERED} <= told


@each(("key", "version"), NAMING)
def test_what_is_weirs_is_taken_out_and_refused(key: int, version: int) -> None:
    """Among others: they go on alone, and the answer has an error for what was taken out."""
    assert judged(key, version, {OTHER: OTHER_ID}) is None
    found = judged(key, version, {OTHER: OTHER_ID, OURS: OUR_ID})
    assert OURS not in found.frame and OUR_ID not in found.frame
    assert found.frame == asking(key, version, {OTHER: OTHER_ID})
    flexible = frames.is_flexible(key, version)
    answer = bytes(4) + frames.tags(flexible) + response_layout(key, version).write({})
    finished = found.finish(answer)
    rule = rules_of(key, version)[0]
    if rule.silent:
        assert finished == answer
    else:
        assert OURS in finished or OUR_ID in finished
        assert rule.kind.value.to_bytes(2, "big") in finished
    response_layout(key, version).read(finished, frames.response_body_offset(key, version, finished))


@each(("key", "version"), NAMING)
def test_with_nothing_left_the_broker_is_asked_only_for_what_else_it_says(key: int, version: int) -> None:
    """The answer is made here, but for Metadata, sessions of Fetch and lists within structs."""
    found = judged(key, version, {OURS: OUR_ID})
    rule = rules_of(key, version)[0]
    assert (found.frame is not None) is rule.forwarded
    assert (found.answer is None) is rule.forwarded


def test_all_topics_are_not_asked_for_instead_of_none() -> None:
    """In version 0 of Metadata an empty list asks for all: what comes then is not for the client."""
    found = judged(METADATA, 0, {OURS: OUR_ID})
    everything = bytes(4) + response_layout(METADATA, 0).write({"Topics": [{"Name": b"mine"}]})
    finished = found.finish(everything)
    assert b"mine" not in finished and OURS in finished


def test_without_acks_nobody_is_answered() -> None:
    """Nothing is left, nothing is said."""
    body = {"TopicData": [{"Name": OURS, "PartitionData": [{"Index": 0}]}]}
    frame = framed(0, 9, body)
    assert looked(guard(), frame, "") == SimpleNamespace(frame=None, finish=None, answer=None)


class Compared(bytes):
    """Counts how often one is compared with another."""

    count = 0

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return bytes.__eq__(self, other)

    __hash__ = bytes.__hash__


def test_refusals_of_many_groups_cost_the_same_each() -> None:
    """Each was looked for among all groups of the answer: 2,000 took a fifth of a second at once."""
    (rule,) = rules_of(9, 8)
    groups = [Compared(number) for number in range(200)]
    answer: frames.Fields = {"Groups": [{"GroupId": group, "Topics": []} for group in groups[::2]]}
    ours = entry(rule, OURS, OUR_ID)
    add(answer, [RemovedEntry(rule, 0, Compared(group), ours, rule.kind.value) for group in groups])
    assert sorted(group["GroupId"] for group in answer["Groups"]) == groups
    assert all(len(group["Topics"]) == 1 for group in answer["Groups"])
    assert Compared.count < 1_000


def test_too_many_refusals_are_too_large() -> None:
    """An answer with an error for each of so many partitions is not made."""
    parts = [{"PartitionIndex": 0}] * (ASKED_MAX + 1)
    frame = framed(2, 1, {"Topics": [{"Name": OURS, "Partitions": parts}]})
    with pytest.raises(frames.BadFrame):
        looked(guard(), frame, "")


def test_what_is_held_is_counted_once() -> None:
    """A later part may hold what is left of a request, which is judged again each time that it may go on."""
    one, frame = guard(), asking(2, 1, {OTHER: OTHER_ID, OURS: OUR_ID})
    verdicts: list[Any] = [looked(one, frame, "mallory") for _ in range(3)]
    counted = partial(one._metrics.registry.get_sample_value, "weir_proxy_refused_topics_total")
    assert counted({"api": "ListOffsets"}) == 0
    verdicts[-1].finish(bytes(4) + response_layout(2, 1).write({}))
    assert counted({"api": "ListOffsets"}) == 1


@each(("key", "version"), NAMING)
def test_names_are_read_alone(key: int, version: int) -> None:
    """Those of topics, of each API that has them; what else may be Weir's is not said to be nobody's."""
    protected = guard().protected
    for names, none in (({OTHER: OTHER_ID}, True), ({OTHER: OTHER_ID, OURS: OUR_ID}, False)):
        frame = asking(key, version, names)
        of_topics = all(rule.kind is Kind.TOPICS for rule in rules_of(key, version))
        assert names_none_of(protected, frame, frames.parse_header(frame)) is (none and of_topics)


@pytest.mark.parametrize("version", [7, 9])
def test_names_that_look_like_weirs_are_looked_at(version: int) -> None:
    """With a byte before the prefix that may be a length; of however many entries, but for one of Weir's."""
    parts = [{"PartitionIndex": 0}] * (ASKED_MAX + 1)
    others = {"Name": b"acme.weir." + b"o" * 45, "Partitions": parts}
    frame = framed(8, version, {"Topics": [others]})
    assert looked(guard(), frame, "") is None
    frame = framed(8, version, {"Topics": [others, {"Name": OURS, "Partitions": parts}]})
    with pytest.raises(frames.BadFrame):
        looked(guard(), frame, "")


def test_nothing_is_protected_if_the_setting_says_so() -> None:
    """Then names pass; quotas are another setting's."""
    frame = asking(2, 1, {OURS: OUR_ID})
    assert looked(guard(protect=False), frame, "") is None
    frame = framed(49, 0, {"Entries": [{}]})
    assert looked(guard(protect=False), frame, "") is not None
    assert looked(guard(alter_client_quotas=Alter.ALLOW), frame, "") is None


def test_only_a_newer_api_versions_is_answered_here() -> None:
    """Whatever is protected; one that can be read goes on."""
    for version, newer in ((99, True), (4, False)):
        frame = struct.pack(">hhihb", 18, version, 7, -1, 0)
        refusal = api_versions_refusal(frames.parse_header(frame))
        found = looked(guard(protect=False), frame, "")
        assert (refusal is not None) is newer
        assert found == (SimpleNamespace(frame=None, finish=None, answer=refusal) if newer else None)


def test_a_heartbeat_may_name_no_topic_of_weirs() -> None:
    """The new consumer protocol is told 29 as a whole, and gets no assignment of such topics."""
    for version in (0, 1):
        frame = framed(68, version, {"SubscribedTopicNames": [OTHER, OURS], "TopicPartitions": None})
        found = looked(guard(), frame, "")
        assert found is not None and found.frame is None and found.answer is not None
        answer = response_layout(68, version).read(found.answer, 5)
        assert answer["ErrorCode"] == 29
        assigned = [{"TopicId": topic_id, "Partitions": (1,)} for topic_id in (OUR_ID, OTHER_ID)]
        body = bytes(5) + response_layout(68, version).write({"Assignment": {"TopicPartitions": assigned}})
        shown = AnswerFilter(guard().protected, lambda _key, _version, response: response)(68, version, body)
        assert OUR_ID not in shown and OTHER_ID in shown


@each(("key", "path"), [(key, path) for key, paths in SHOWN.items() for path in paths.split()])
def test_what_is_weirs_is_cut_out_of_a_list(key: int, path: str) -> None:
    """However deep it is and of whatever length, as of all topics of a broker; the rest stays as it came."""
    show = AnswerFilter(guard().protected, lambda *whole: whole[2])
    *holders, field, names = path.split(".")
    first, last = APIS[key].versions or (0, 0)
    for version in range(first, last + 1):
        layout, before = response_layout(key, version), bytes(4 + frames.is_flexible(key, version))

        def body(name: str, *entries: bytes, write: Any = layout.write) -> Any:
            values: Any = {field: list(entries) if name == "Text" else [{name: one} for one in entries]}
            for holder in reversed(holders):
                one = holder in ("Assignment", "TargetAssignment", "Topology")
                values = {holder: values if one else [values]}
            return write(values)

        for name in names.replace("|", ",").split(","):
            ours, other = (OUR_ID, OTHER_ID) if name == "TopicId" else (OURS, OTHER)
            for left in (0, 1, 40_000 // len(SHOWN[key].split()) if version == last else 2):
                came = before + body(name, *[other] * left, ours)
                there = ours in came
                assert show(key, version, came) == (before + body(name, *[other] * left) if there else came)
                assert there or version < last or name == "Name"


@pytest.mark.parametrize("version", range(5))
def test_settings_that_name_addresses_are_blank_of_brokers_alone(version: int) -> None:
    """Those of a topic that is called so are shown as they are, beside hundreds of others' too."""
    configs = [{"Name": b"listeners", "Value": b"IN://inside:1"}, *[{"Name": b"x", "Value": b"1"}] * 40]
    layout, show = response_layout(32, version), AnswerFilter(guard().protected, lambda *whole: whole[2])
    for kind, count in ((4, 1), (2, 400)):
        results = [{"ResourceType": kind, "ResourceName": b"order-listeners", "Configs": configs}] * count
        body = bytes(4 + (version >= 4)) + layout.write({"Results": results})
        shown = show(32, version, body)
        assert (shown == body) is (kind == 2) and (b"inside" in shown) is (kind == 2)


def test_who_is_refused_is_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """Once a principal, again after ten minutes; the memory of it is bounded."""
    now = SimpleNamespace(ms=0.0)
    protected = OwnTopics(Topics(), active=True)
    one = Guard(protected, ProxySettings(), Metrics(10), lambda: cast(float, now.ms))
    frame = asking(2, 1, {OURS: OUR_ID})
    for now.ms, user in ((0, "a"), (1, "a"), (2, "b"), (599_999, "a"), (600_000, "a")):
        looked(one, frame, user)
    assert [record.args[1] for record in caplog.records if record.args] == ["a", "b", "a"]  # type: ignore[index]
    for number in range(1_500):
        looked(one, frame, f"user-{number}")
    assert len(one._logged) == 1_000


@pytest.mark.parametrize(
    "field", ["SourceTopics", "RepartitionSinkTopics", "StateChangelogTopics", "RepartitionSourceTopics"]
)
def test_a_topology_that_names_ours_is_refused(field: str) -> None:
    """As a whole, whatever it would do with the topic; one of others' topics is not."""
    for name, refused in ((OURS, True), (OTHER, False)):
        named = name if field in ("SourceTopics", "RepartitionSinkTopics") else {"Name": name}
        topology = {"Epoch": 0, "Subtopologies": [{"SubtopologyId": b"0", field: [named]}]}
        for body in ({"Topology": topology}, {"Topology": None}):
            frame = framed(frames.STREAMS_HEARTBEAT, 0, {"GroupId": OURS, **body})
            verdict = looked(guard(), frame, "alice")
            if not refused or body["Topology"] is None:
                assert verdict is None
                continue
            assert verdict is not None and verdict.frame is None and verdict.answer is not None
            offset = frames.response_body_offset(frames.STREAMS_HEARTBEAT, 0, verdict.answer)
            said = response_layout(frames.STREAMS_HEARTBEAT, 0).read(verdict.answer, offset)
            assert said["ErrorCode"] == 29
