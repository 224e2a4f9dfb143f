"""Who a connection is before, in and after a login, and which logins reach the broker."""

import struct
from collections.abc import Callable, Iterable
from itertools import chain, repeat
from math import inf

import pytest
from connection_kit import FakeTransport, framed, frames_of, header, opaque
from each_kit import each
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from kafka_kit import CORRELATION_ID, decode
from login_visit import AUTHENTICATION_FAILED, ILLEGAL_STATE, LIFETIME_MS, Visit, plain, scram
from meter_kit import TOPIC
from traffic_kit import batch, produce, produce_response

from enforcer.wire.kafka.frames import SASL_AUTHENTICATE
from streaming.policy.policy_set import PolicySet

RATED = {"quotas[user=alice]": {"producer_byte_rate": 20_000}}
"""As long as nobody has a share of it, a twentieth."""
WRITTEN = produce(9, {TOPIC: [batch(1, size=3_000)]})[0]
"""What keeps its user waiting for three seconds."""


@pytest.mark.parametrize(("error", "user"), [(0, "bob"), (ILLEGAL_STATE, "alice")])
def test_a_certificate_names_the_user_until_a_login_has_succeeded(error: int, user: str) -> None:
    """A handshake that the broker refuses must not make its client somebody without a quota."""
    visit = Visit()
    visit.rig.connection.user = "alice"
    visit.offer("PLAIN")
    visit.offered(error)
    assert visit.user == "alice"
    if not error:
        visit.token(b"\0bob\0secret")
        visit.told()
    assert visit.user == user


@each("exchange", [plain, scram])
@each("piece", [1, 2, 3, 5, 7, 11, 13, 40])
def test_a_login_may_come_in_pieces(
    exchange: Callable[[Visit], None], piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever what client and broker say is cut, it means the same; the session's life passes."""
    visit = Visit()
    connection, asked, said = visit.rig.connection, b"", b""

    def cut(take: Callable[[bytes], None], data: bytes) -> None:
        for start in range(0, len(data), piece):
            take(data[start : start + piece])

    received, responded = connection.data_received, connection.upstream_received
    monkeypatch.setattr(connection, "data_received", lambda data: cut(received, data))
    monkeypatch.setattr(connection, "upstream_received", lambda data: cut(responded, data))
    for _ in range(2):
        exchange(visit)
        assert visit.user == "alice"
    asked, said = visit.rig.upstream.data, visit.rig.client.data
    whole = Visit()
    exchange(whole)
    exchange(whole)
    assert (asked, said) == (whole.rig.upstream.data, whole.rig.client.data)
    assert decode(SaslAuthenticateResponse, 2, frames_of(said)[-1]).session_lifetime_ms == LIFETIME_MS


def test_a_new_login_of_somebody_else_does_not_reach_the_broker() -> None:
    """Who is in could try the passwords of all, and never wait; it is refused and closed, as by Kafka's."""
    visit = Visit()
    plain(visit)
    visit.begin(token=b"\0bob\0secret")
    assert visit.sent == 3
    visit.rig.desk.run(199)
    assert not visit.rig.client.closed
    visit.rig.desk.run(1)
    answer = decode(SaslAuthenticateResponse, 2, frames_of(visit.rig.client.data)[3])
    assert answer.error_code == AUTHENTICATION_FAILED and "Cannot change principals" in answer.error_message
    assert visit.user == "alice" and visit.rig.client.closed
    assert visit.count("refused_logins", reason="reauthentication") == 1


@pytest.mark.parametrize(
    ("error", "reason"), [(AUTHENTICATION_FAILED, "reauthentication"), (ILLEGAL_STATE, "state")]
)
def test_a_session_that_is_not_renewed_may_be_a_guess(error: int, reason: str) -> None:
    """Only if the broker has looked at what was sent."""
    visit = Visit(failed_logins_per_minute=1)
    for _ in range(3):
        plain(visit)
        visit.begin()
        visit.told(error)
        visit.rig.desk.run(200)
    assert visit.count("failed_logins", reason=reason) == 3
    late = Visit(visit.rig)
    late.begin()
    assert late.rig.client.closed == (reason == "reauthentication")


@pytest.mark.parametrize(("tls", "allowed", "passes"), [(1, 0, 1), (0, 1, 1), (0, 0, 0)])
def test_plain_needs_tls(tls: int, allowed: int, passes: int) -> None:
    """The handshake is refused before the password is sent, and its answer names the setting."""
    visit = Visit(tls=bool(tls), sasl_plain_without_tls=bool(allowed))
    visit.offer("PLAIN")
    assert visit.sent == passes
    if passes:
        return
    visit.rig.desk.run(200)
    answer = decode(SaslHandshakeResponse, 1, frames_of(visit.rig.client.data)[0])
    assert answer.error_code == 33 and "proxy.sasl_plain_without_tls" in str(answer.mechanisms)
    assert "PLAIN" not in answer.mechanisms and "SCRAM-SHA-512" in answer.mechanisms
    assert visit.count("refused_logins", reason="plain_without_tls") == 1
    scram(visit)
    assert visit.user == "alice"


@each(
    ("mechanism", "size", "passes"),
    [
        ("PLAIN", 4_096, True), ("PLAIN", 4_097, False), ("SCRAM-SHA-256", 16_000, False),
        ("OAUTHBEARER", 131_072, True), ("OAUTHBEARER", 131_073, False), ("", 4_097, False),
    ],
)  # fmt: skip
def test_tokens_are_bounded_by_their_mechanism(mechanism: str, size: int, passes: bool) -> None:
    """A longer one is no login, and ends its connection."""
    visit = Visit()
    if mechanism:
        visit.offer(mechanism)
        visit.offered()
    visit.token(b"x" * size)
    assert visit.rig.client.closed != passes
    assert visit.count("bad_frames", reason="too_large") == (not passes)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "OAUTHBEARER"])
def test_a_token_that_is_too_long_is_not_gathered(mechanism: str) -> None:
    """Its length is enough to end its connection."""
    visit = Visit()
    visit.offer(mechanism)
    visit.offered()
    head = struct.pack(">i", 200_000) + header(SASL_AUTHENTICATE, 2, CORRELATION_ID)
    visit.rig.connection.data_received(head)
    assert visit.rig.client.closed and visit.count("bad_frames", reason="too_large") == 1


def test_little_is_read_behind_a_login_that_waits() -> None:
    """Whatever length it claims: 50 MiB of it were kept."""
    visit = Visit(tls=False)
    visit.offer("SCRAM-SHA-256")
    client: FakeTransport = visit.rig.client
    visit.rig.connection.data_received(struct.pack(">i", 90_000_000) + header(16, 0, 2))
    for _ in range(8):
        assert client.reading
        visit.rig.connection.data_received(bytes(1 << 17))
    assert not client.reading
    visit.offered()
    assert client.reading


def rated(before: Visit | None = None, life_ms: int = 0) -> Visit:
    """A client with a byte rate, logged in for so long; 0: for ever."""
    visit = Visit(before and before.rig)
    visit.life_ms = life_ms
    visit.rig.meter.set_policies(before.rig.meter._policies if before else PolicySet(RATED))
    plain(visit)
    return visit


def written_at(lives_ms: Iterable[int], count: int = 4) -> list[float]:
    """When the broker gets so many requests of a client that connects again whenever it is closed."""
    lives, times, visit = iter(lives_ms), list[float](), None
    while len(times) < count:
        if visit is None or visit.rig.client.closed:
            visit = rated(visit, next(lives))
            now_ms, since_ms = visit.rig.now_ms, visit.rig.now_ms()
        sent = visit.sent
        visit.rig.connection.data_received(framed(WRITTEN))
        while visit.sent == sent and not visit.rig.client.closed:
            visit.rig.desk.run_next()
        if visit.sent > sent and now_ms() >= since_ms + (visit.life_ms or inf):
            visit.rig.connection.upstream_failed("lost")
        elif visit.sent > sent:
            times.append(now_ms())
            visit.rig.answer([produce_response(9, {TOPIC: [0]})])
    assert visit is not None
    (account,) = visit.rig.meter.accounts.values()
    assert account.used[1] == count * len(WRITTEN)
    return times


@given(lives_ms=st.lists(st.integers(1, 10_000), max_size=8))
@example([1, 3_037])
@example([1, 3_118])
def test_a_wait_that_outlasts_its_session_is_not_paid_twice(lives_ms: list[int]) -> None:
    """However often a client must log in anew, it gets as much as one that never must, and no more."""
    assert written_at(chain(lives_ms, repeat(0))) == written_at(repeat(0))


def test_who_is_let_in_no_longer_gets_the_answers_that_are_due() -> None:
    """As with a broker, which closes when it comes to the next request; one that no rule reads is its own."""
    visit = rated(life_ms=1_000)
    visit.rig.connection.data_received(framed(WRITTEN))
    visit.rig.desk.run(999)
    visit.rig.connection.data_received(framed(WRITTEN))
    visit.rig.desk.run(3_000)
    visit.rig.connection.data_received(opaque(1))
    assert visit.sent == 3 and not visit.rig.client.closed
    visit.rig.answer([produce_response(9, {TOPIC: [0]})])
    assert visit.answers == 3 and visit.rig.client.closed
    assert visit.count("closed_connections", reason="session") == 1 and not visit.rig.upstream.aborted


def test_what_a_client_that_is_gone_may_not_send_is_dropped() -> None:
    """Nobody sends it again, so it is counted."""
    visit = rated(life_ms=1_000)
    visit.rig.connection.data_received(framed(WRITTEN) * 3)
    visit.rig.answer([produce_response(9, {TOPIC: [0]})])
    visit.rig.lose_client()
    visit.rig.desk.run(3_500)
    assert visit.sent == 3 and visit.rig.dropped("session") == 2 and visit.rig.over


def test_what_may_not_be_sent_is_dropped_once() -> None:
    """A client's end is seen twice: as it sends no more, and as it is gone while an answer is still due."""
    visit = rated(life_ms=1_000)
    visit.rig.connection.data_received(framed(WRITTEN) * 3)
    visit.rig.connection.eof_received()
    visit.rig.desk.run(3_500)
    visit.rig.lose_client()
    assert visit.rig.dropped("session") == 2 and not visit.rig.over
    visit.rig.answer([produce_response(9, {TOPIC: [0]})])
    assert visit.rig.over


def test_a_new_login_begins_a_new_session() -> None:
    """Also after the end of the last one; an answer to its beginning alone begins none."""
    visit = rated(life_ms=1_000)
    visit.rig.desk.run(1_000)
    visit.offer("PLAIN")
    visit.offered()
    assert visit.rig.connection.pacer.session_over
    visit.token(b"\0alice\0a-secret")
    visit.rig.desk.run(10)
    visit.told()
    assert visit.rig.connection.pacer.session_until_ms == 2_000
    visit.rig.connection.data_received(framed(WRITTEN))
    assert visit.sent == 5
