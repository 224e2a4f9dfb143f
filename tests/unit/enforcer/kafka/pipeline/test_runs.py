"""Plain Produce requests that are charged as they lie: what is told, refunded and held is as if read."""

from collections.abc import Mapping
from typing import Any

import pytest
from connection_kit import Rig, framed, frames_of
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceResponse
from kafka_kit import decode
from meter_kit import TOPIC
from traffic_kit import batch, produce, produce_response, topic_id

from enforcer.kafka.part import Request
from enforcer.kafka.shares.part import SharesLimit
from streaming.policy.policy_set import PolicySet

OTHER = "acme.other.t"
PLENTY = 1_000_000
GROUPS: dict[str, Any] = {
    "resourcegroups.rg1": {"publishRateInMsgs": PLENTY},
    "resourcegroups.rg2": {"publishRateInMsgs": PLENTY},
    "namespaces.acme/orders": {"resourcegroup": "rg1"},
}


class Charged(Rig):
    """A connection whose traffic is metered; `read` are the requests that its part was given to read."""

    def __init__(self, policies: Mapping[str, Any] = GROUPS, proven: bool = True, **more: Any) -> None:
        super().__init__(**more)
        self.set_policies(policies)
        self.read: list[Request] = []
        self.answered = 0
        part = self.part(SharesLimit, make=True)
        part._connection_meter.naming.proven = proven
        take = part.take
        part.take = lambda request: self.read.append(request) or take(request)

    def set_policies(self, policies: Mapping[str, Any]) -> None:
        """These are in force from now on."""
        self.meter.set_policies(PolicySet(dict(policies)))

    def used(self, group: str = "rg1") -> int:
        """Records that a group was charged, and that were not given back."""
        account = self.meter.accounts[group]
        return account.used[0] - account.refunded[0]

    def act(self, step: Any) -> None:
        """Requests come, time passes, the broker answers the next one, or policies change."""
        if isinstance(step, list):
            self.come(*step)
        elif isinstance(step, int):
            self.desk.run(step)
        elif isinstance(step, dict):
            self.set_policies(step)
        elif len(self.upstream.sent) > self.answered and not self.client.closed:
            frame = self.upstream.sent[self.answered]
            self.answered += 1
            (topic,) = {name for name in (TOPIC, OTHER, "elsewhere") if name.encode() in frame}
            self.answer([produce_response(9, {topic: [int(step)]})])

    def seen(self) -> tuple[Any, ...]:
        """What anybody can see."""
        accounts = {
            name: (one.used, one.refunded, [bucket and bucket.tokens for bucket in one.buckets])
            for name, one in self.meter.accounts.items()
        }
        return self.upstream.sent, self.client.data, self.client.closed, accounts, self.meter.unmetered

    def come(self, *frames: bytes) -> list[bytes]:
        """Requests come at once; what the broker gets."""
        before = len(self.upstream.sent)
        self.connection.data_received(b"".join(map(framed, frames)))
        return self.upstream.sent[before:]


def plain(count: int, version: int = 9, topic: str = TOPIC, **more: Any) -> bytes:
    """A request that brings so many records."""
    return produce(version, {topic: [batch(count)]}, **more)[0]


@pytest.fixture
def rig() -> Charged:
    """A connection of somebody whom the broker has let in."""
    return Charged()


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_several_leave_in_one_piece(rig: Charged, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """As they came; each is charged, and an answer without errors is the client's as it is."""
    pieces = list[bytes]()
    monkeypatch.setattr(rig.upstream.broker, "write", lambda data: pieces.append(bytes(data)))
    asked = [plain(3, version), plain(4, version)]
    rig.come(*asked)
    assert pieces == [b"".join(map(framed, asked))] and rig.used() == 7 and not rig.read
    rig.answer([produce_response(version, {TOPIC: [0]})] * 2)
    assert rig.client.data == framed(produce_response(version, {TOPIC: [0]})) * 2
    assert rig.used() == 7 and not rig.connection._responses.due


def test_what_a_broker_refuses_is_refunded(rig: Charged) -> None:
    """Whichever of several it is, and though the others need not be looked at."""
    rig.come(plain(3), plain(4), plain(5))
    rig.answer([produce_response(9, {TOPIC: [error]}) for error in (0, 6, 0)])
    assert rig.used() == 8
    answers = [decode(ProduceResponse, 9, frame) for frame in frames_of(rig.client.data)]
    assert [one.responses[0].partition_responses[0].error_code for one in answers] == [0, 6, 0]


def test_answers_hold_no_requests(rig: Charged) -> None:
    """A slot that knows who reads its answer, who knows it, would wait for the collector."""
    rig.come(plain(1))
    (slot,) = rig.connection._responses.due
    assert slot.done is not None
    rig.answer([produce_response(9, {TOPIC: [0]})])
    assert slot.done is None


def test_who_would_have_to_wait_is_read() -> None:
    """Up to the one that brings debt they go on, and it is told of that; the next waits for its turn."""
    rig = Charged({**GROUPS, "resourcegroups.rg1": {"publishRateInMsgs": 100}})
    assert len(rig.come(plain(2), plain(3), plain(1))) == 2
    assert rig.used() == 5 and not rig.connection.pacer.idle and len(rig.read) == 1
    rig.answer([produce_response(9, {TOPIC: [0]})] * 2)
    told = [decode(ProduceResponse, 9, frame).throttle_time_ms for frame in frames_of(rig.client.data)]
    assert told == [0, 500]


def test_other_policies_charge_others(rig: Charged) -> None:
    """What was found of a topic holds while nothing changes."""
    rig.come(plain(3))
    rig.set_policies({**GROUPS, "namespaces.acme/orders": {"resourcegroup": "rg2"}})
    rig.come(plain(4))
    assert rig.used("rg2") == 4 and not rig.read
    elsewhere = {"namespaces.acme/orders": {}, "namespaces.acme/other": {"resourcegroup": "rg1"}}
    rig.set_policies({**GROUPS, **elsewhere})
    before = rig.used()
    rig.come(plain(5))
    rig.come(plain(6, topic=OTHER))
    assert rig.used() == before + 6 and not rig.read


def test_a_refusal_is_refunded_to_whom_it_was_charged(rig: Charged) -> None:
    """Though its topic is another's by then."""
    rig.come(plain(3))
    rig.set_policies({**GROUPS, "namespaces.acme/orders": {"resourcegroup": "rg2"}})
    rig.come(plain(4))
    rig.answer([produce_response(9, {TOPIC: [6]})])
    assert rig.used() == 0 and rig.used("rg2") == 4


def test_a_users_bytes_are_charged() -> None:
    """All of the request, as it is when it is read; by the client id of each."""
    path = "quotas[user=ANONYMOUS,client-id=one]"
    rig = Charged({path: {"producer_byte_rate": PLENTY}})
    frames = [plain(3, client_id="one"), plain(3, client_id="two"), plain(4, client_id="one")]
    assert rig.come(*frames) == frames and not rig.read
    (account,) = rig.meter.accounts.values()
    assert account.used[1] == len(frames[0]) + len(frames[2])


def test_ids_without_a_name_are_looked_up(rig: Charged) -> None:
    """By who reads it; once the name is known it is charged as it lies."""
    sent = rig.come(plain(3, 13))
    assert len(rig.read) == 1 and sent[0][:2] == b"\0\3"
    rig.frame_meter.names.update({topic_id(TOPIC).bytes: TOPIC})
    rig.connection.pacer.wake()
    rig.desk.run(1)
    assert rig.come(plain(4, 13)) == [plain(4, 13)]
    assert rig.used() == 7 and len(rig.read) == 1


def test_who_finds_no_room_is_counted() -> None:
    """Once for each request, by who reads it: the only account that there may be owes, and stays."""
    limited = {"resourcegroups.rg1": {"publishRateInMsgs": 100}, "tenants.acme": {"resourcegroup": "rg2"}}
    rig = Charged({**GROUPS, **limited}, subjects_max=1)
    rig.come(plain(5))
    assert len(rig.come(plain(3, topic=OTHER))) == 1
    assert len(rig.read) == 1 and rig.meter.unmetered == 1 and list(rig.meter.accounts) == ["rg1"]


def test_nobody_unknown_is_charged() -> None:
    """A client whom the broker has not let in is asked for first."""
    rig = Charged(proven=False)
    assert rig.come(plain(3))[0][:2] == b"\0\3" and len(rig.read) == 1
    assert not rig.meter.accounts


def test_weirs_own_topics_are_kept_back(rig: Charged) -> None:
    """By their names, and by ids that became known since the same request went on."""
    assert rig.come(plain(1, topic="weir.policies")) == []
    rig.frame_meter.names.update({topic_id(TOPIC).bytes: TOPIC})
    assert len(rig.come(plain(3, 13))) == 1
    rig.protected.saw([topic_id(TOPIC).bytes])
    assert rig.come(plain(3, 13)) == [] and rig.used() == 3


def test_a_session_that_is_over_charges_nobody(rig: Charged) -> None:
    """The broker would take nothing more."""
    rig.come(plain(3))
    rig.answer([produce_response(9, {TOPIC: [0]})])
    rig.connection.pacer.session_until_ms = rig.desk.now_ms
    assert rig.come(plain(4)) == [] and rig.used() == 3


def test_another_limit_reads_it(rig: Charged) -> None:
    """While some topic is blocked: whether the client was let in is asked for that, too."""
    rig.come(plain(3))
    rig.blocks.blocks.active = True
    assert rig.come(plain(4))[0][:2] == b"\0\3" and rig.used() == 3


def test_one_without_acks_is_read(rig: Charged) -> None:
    """What is refused of it is known only if its leader is asked."""
    rig.come(plain(3), plain(4, acks=0), plain(5))
    assert len(rig.read) == 1 and rig.used() == 12 and len(rig.upstream.sent) == 3


def test_one_that_is_too_long_ends_the_connection() -> None:
    """Nothing of it is charged; what came before it went on."""
    rig = Charged(max_frame_bytes=4_096)
    assert len(rig.come(plain(4), plain(500))) == 1
    assert rig.used() == 4 and rig.client.closed


TIGHT: dict[str, Any] = {
    **GROUPS, "resourcegroups.rg1": {"publishRateInMsgs": 400},
    "resourcegroups.rg2": {"publishRateInBytes": 40_000}, "tenants.acme": {"resourcegroup": "rg2"},
    "quotas[user=ANONYMOUS,client-id=one]": {"producer_byte_rate": 3_000},
}
MOVED = {**TIGHT, "namespaces.acme/orders": {"resourcegroup": "rg2"}, "namespaces.acme/other": {}}
REQUESTS = st.builds(
    plain, st.integers(1, 30), st.just(9), st.sampled_from((TOPIC, OTHER, "elsewhere")),
    client_id=st.sampled_from(("one", "two")), acks=st.sampled_from((1, 1, 1, 0)),
)  # fmt: skip
STEPS = st.one_of(
    st.lists(REQUESTS, min_size=1, max_size=4), st.sampled_from((1, 100, 700)),
    st.sampled_from((0, 0, 0, 6)).map(str), st.sampled_from((TIGHT, MOVED)),
)


@given(st.lists(STEPS, max_size=12), st.sampled_from((1, 2, 100)))
@settings(deadline=None)
def test_it_is_as_if_they_were_read(steps: list[Any], subjects_max: int) -> None:
    """Broker, client and accounts see the same, whoever is charged, owes, is refused or has no room."""
    unread, read = (Charged(TIGHT, subjects_max=subjects_max) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read.connection._chain, "plain_taker", lambda: None)
        for step in steps:
            for rig in (unread, read):
                rig.act(step)
            assert unread.seen() == read.seen()
