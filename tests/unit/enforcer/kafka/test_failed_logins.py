"""What becomes of logins that fail: when they are answered, and how long the next must wait."""

import pytest
from connection_kit import Rig, frames_of, opaque
from kafka.protocol.sasl import SaslAuthenticateResponse
from kafka_kit import decode
from login_visit import AUTHENTICATION_FAILED, ILLEGAL_STATE, SCRAM, Visit, plain

from enforcer.kafka.login.part import ADDRESSES_MAX, MOMENT_MS, FailedLogins


@pytest.mark.parametrize("broker_closes", [True, False])
def test_a_failed_login_is_answered_after_a_constant_time(broker_closes: bool) -> None:
    """Though the broker has answered earlier, and closed; then the connection ends as the broker's has."""
    visit = Visit()
    visit.begin()
    visit.rig.desk.run(120)
    visit.told(AUTHENTICATION_FAILED)
    if broker_closes:
        visit.rig.connection.upstream_failed("lost")
    visit.rig.connection.data_received(opaque(9))
    visit.rig.desk.run(79)
    assert visit.answers == 1 and not visit.rig.client.closed
    visit.rig.desk.run(1)
    answer = decode(SaslAuthenticateResponse, 2, frames_of(visit.rig.client.data)[1])
    assert answer.error_code == AUTHENTICATION_FAILED
    assert visit.rig.client.closed == broker_closes
    # What came behind it waited, and goes on where there is a broker.
    assert visit.sent == 2 + (not broker_closes)
    assert visit.count("failed_logins", reason="credentials") == 1 and visit.user == "ANONYMOUS"


def test_who_does_not_wait_for_the_answer_has_failed_as_well() -> None:
    """Closing early saves nobody from being counted, and leaves nothing behind."""
    visit = Visit()
    visit.begin()
    visit.rig.lose_client()
    visit.told(AUTHENTICATION_FAILED)
    visit.rig.connection.upstream_failed("lost")
    visit.rig.desk.run(200)
    assert visit.count("failed_logins", reason="credentials") == 1 and visit.rig.over


def test_a_refusal_of_ours_takes_as_long() -> None:
    """It is no guess, but who tries again at once shall not keep us busy."""
    visit = Visit()
    visit.begin(token=b"no user")
    visit.rig.desk.run(199)
    assert visit.answers == 1
    visit.rig.desk.run(1)
    assert visit.answers == 2 and visit.count("refused_logins", reason="name") == 1
    plain(visit)
    assert visit.user == "alice"


@pytest.mark.parametrize(
    ("mechanism", "error", "reason"), [("PLAIN", 33, "mechanism"), ("PLAIN", ILLEGAL_STATE, "state")]
)
def test_a_handshake_that_fails_is_counted_and_no_guess(mechanism: str, error: int, reason: str) -> None:
    """Nobody else of that address has to wait for it."""
    visit = Visit(failed_logins_per_minute=1)
    for _ in range(5):
        visit.offer(mechanism)
        visit.offered(error)
        visit.rig.desk.run(200)
    assert visit.count("failed_logins", reason=reason) == 5
    plain(visit)
    assert visit.user == "alice"


def test_a_refused_bearer_token_is_counted_once() -> None:
    """It is refused as a challenge, and again when the client has acknowledged that."""
    visit = Visit()
    visit.begin("OAUTHBEARER", b"n,,\x01auth=Bearer e30.eyJzdWIiOiJhbGljZSJ9.x\x01\x01")
    visit.told(challenge=b"{}")
    visit.rig.desk.run(200)
    visit.token(b"\x01")
    visit.told(AUTHENTICATION_FAILED)
    assert visit.answers == 3
    assert [visit.count("failed_logins", reason=reason) for reason in ("token", "credentials")] == [1, 0]


def test_the_end_of_a_refused_bearer_token_is_no_login() -> None:
    """It waits for no turn; another token does."""
    token = b"n,,\x01auth=Bearer e30.eyJzdWIiOiJhbGljZSJ9.x\x01\x01"
    visit = Visit(failed_logins_per_minute=1)
    for _ in range(2):
        visit.begin("OAUTHBEARER", token)
        visit.told(challenge=b"{}")
        visit.rig.desk.run(200)
    visit.token(b"\x01")
    assert visit.sent == 5
    visit.told(AUTHENTICATION_FAILED)
    visit.offer("OAUTHBEARER")
    visit.offered()
    visit.token(token)
    assert visit.rig.client.closed and visit.sent == 6


def test_logins_at_the_same_moment_share_their_turns() -> None:
    """Beyond what is free they wait until it is known of those before; nobody is closed for good ones."""
    first = Visit(failed_logins_per_minute=4, failed_login_delay_ms=0)
    visits = [first, *(Visit(first.rig) for _ in range(19))]
    for visit in visits:
        visit.begin()
    assert [visit.sent for visit in visits] == [2] * 5 + [1] * 15
    for done in range(0, 20, 5):
        for visit in visits[done : done + 5]:
            visit.told()
            assert visit.user == "alice"
        first.rig.desk.run(MOMENT_MS)
    assert not any(visit.rig.client.closed for visit in visits) and first.count("held_logins") == 0


@pytest.mark.parametrize("answered", [True, False])
def test_guesses_at_the_same_moment_are_bounded(answered: bool) -> None:
    """Also those that do not wait for the answer."""
    first = Visit(failed_logins_per_minute=4, failed_login_delay_ms=0)
    visits = [first, *(Visit(first.rig) for _ in range(19))]
    for visit in visits:
        visit.begin()
    for visit in visits[:5]:
        if answered:
            visit.told(AUTHENTICATION_FAILED)
        else:
            visit.rig.lose_client()
            visit.rig.connection.upstream_failed("lost")
    first.rig.desk.run(MOMENT_MS)
    assert [visit.sent for visit in visits] == [2] * 5 + [1] * 15
    assert all(visit.rig.client.closed for visit in visits[5:])


def test_an_exchange_that_a_handshake_interrupts_has_its_turn_once() -> None:
    """The proof that follows is what tries a password."""
    first = Visit(failed_logins_per_minute=4, failed_login_delay_ms=0)
    visits = [first, *(Visit(first.rig) for _ in range(9))]
    for visit in visits:
        visit.begin("SCRAM-SHA-512", SCRAM[0])
        if visit.sent == 2:
            visit.told(challenge=b"r=noncenonce,s=salt,i=4096")
            visit.offer("GSSAPI")
            visit.rig.desk.run(1)
            visit.token(SCRAM[1])
    assert [visit.sent for visit in visits] == [3] * 5 + [1] * 5


def test_an_address_that_fails_often_waits_for_its_turns() -> None:
    """No other address, and nobody who is logged in; a good login gives its turn back."""
    settings = {"failed_logins_per_minute": 10, "failed_login_delay_ms": 0}
    known = Visit(**settings)
    plain(known)
    guesser = Visit(known.rig).fail(11)
    first, second = Visit(known.rig), Visit(known.rig)
    for visit in (first, second):
        visit.begin()
        assert visit.sent == 1
    other = Visit(known.rig, peer="10.0.0.2")
    for visit in (other, known):
        plain(visit)
        assert visit.user == "alice"
    first.rig.desk.run(6_000)
    assert (first.sent, second.sent) == (2, 1)
    first.told()
    assert first.user == "alice" and guesser.count("held_logins") == 1


def test_a_login_that_would_wait_too_long_ends_its_connection() -> None:
    """Clients come again; a refusal would be the end for many."""
    visit = Visit(failed_logins_per_minute=4, failed_login_delay_ms=0).fail(5)
    late = Visit(visit.rig)
    late.begin()
    assert late.rig.client.closed and late.rig.closed("failed_logins") == 1 and late.sent == 1


def test_turns_of_an_address() -> None:
    """A minute's worth is free, what fails at once on many connections is not, and a minute forgives it."""
    clock = Rig()
    failed = FailedLogins(60, clock.now_ms)
    assert [failed.turn_ms("a") for _ in range(61)] == [0] * 61
    assert failed.turn_ms("a") is None
    for _ in range(61):
        failed.decide("a", waited=False, failed=True)
    assert [failed.turn_ms("a") for _ in range(11)] == [1_000 * turn for turn in range(1, 12)]
    assert failed.turn_ms("a") == 11_000
    failed.decide("a", waited=True, failed=False)
    assert failed.turn_ms("a") == 10_000
    for _ in range(1_000):
        failed.add("a")
    assert failed.turn_ms("a") == 60_000 and failed.turn_ms("b") == 0
    clock.desk.run(60_000)
    assert failed.turn_ms("a") == 0
    none = FailedLogins(0, clock.now_ms)
    none.add("a")
    assert none.turn_ms("a") == 0


def test_logins_at_once_are_bounded_in_every_minute() -> None:
    """However many come: a minute's worth, and those that wait."""
    clock = Rig()
    failed = FailedLogins(60, clock.now_ms)
    tried = 0
    for _ in range(10):
        free = sum(failed.turn_ms("a") == 0 for _ in range(5_000))
        clock.desk.run(100)
        for _ in range(free):
            failed.decide("a", waited=False, failed=True)
        tried += free
        clock.desk.run(60_000)
    assert 600 <= tried <= 611


def test_good_logins_leave_nothing() -> None:
    """Their addresses push nobody out."""
    clock = Rig()
    failed = FailedLogins(60, clock.now_ms)
    for name in range(10):
        failed.turn_ms(str(name))
        clock.desk.run(10)
        failed.decide(str(name), waited=False, failed=False)
    assert not failed._until_ms and not failed._undecided


def test_the_table_of_addresses_is_bounded() -> None:
    """Who failed longest ago is forgotten."""
    clock = Rig()
    failed = FailedLogins(1, clock.now_ms)
    for name in range(ADDRESSES_MAX + 1):
        for _ in range(2):
            failed.add(str(name))
    assert len(failed._until_ms) == ADDRESSES_MAX
    assert failed.turn_ms("1") == 60_000 and failed.turn_ms("0") == 0
