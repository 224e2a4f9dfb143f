"""Where parts listen, as `weir doctor` knocks: TLS, what is served, tokens."""

import asyncio
import socket
import ssl
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from doctor_kit import NOWHERE, patient_of, told
from served import answering
from tls_kit import LOOPBACK, Authority, Pair

from weir.doctor.checks.doors import Knock, check_admin, check_doors, knock, knocks
from weir.doctor.patient import Address, Door, Patient

BEYOND = ("0.0.0.0", 1)
LIMIT_S = 10.0
HEADER = b"PROXY UNKNOWN\r\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA of our own."""
    return Authority(tmp_path / "ca")


def door(address: Address, section: str = "proxy", *, given: bool = True) -> Door:
    """A door of a section."""
    return Door(section=section, address=address, given=given)


def tls(pair: Pair) -> dict[str, Any]:
    """The key of a section."""
    return {"tls": {"certificate": pair.certificate, "key": pair.key}}


def der(pair: Pair) -> bytes:
    """What is served of it."""
    return ssl.PEM_cert_to_DER_cert(Path(pair.certificate).read_text())


def found_at(patient: Patient, met: Knock) -> tuple[str, str]:
    """What is said of the proxy's door."""
    patient.answers[knocks] = {"proxy": met}
    ((status, what),) = told(check_doors(patient))
    return status, what


@pytest.mark.parametrize(
    ("address", "with_tls", "given", "met", "status", "words"),
    [
        (NOWHERE, False, True, Knock(open=False), "warning", "nobody listens for proxy at 127.0.0.1:1"),
        (("::1", 1), False, True, Knock(open=False), "warning", "nobody listens for proxy at [::1]:1"),
        (NOWHERE, False, False, Knock(open=False), "ok", "nobody listens, and none was said to: proxy"),
        (NOWHERE, False, True, Knock(open=True), "ok", "plain text, for this machine alone"),
        (BEYOND, False, True, Knock(open=True), "warning", "listens beyond this machine in plain text"),
        (BEYOND, True, True, Knock(open=True), "error", "speaks no TLS, though proxy.tls is set"),
        (BEYOND, False, True, Knock(open=True, certificate=b"x"), "warning", "cannot be read"),
    ],
)
def test_what_is_said_of_a_door(
    address: Address, with_tls: bool, given: bool, met: Knock, status: str, words: str, authority: Authority
) -> None:
    """By where it is, and what the settings say of it."""
    patient = patient_of(
        doors={"proxy": door(address, given=given)}, proxy=tls(authority.server()) if with_tls else {}
    )
    said, what = found_at(patient, met)
    assert (said, words in what) == (status, True)


@pytest.mark.parametrize(("name", "status"), [("proxy", "ok"), ("metrics", "error")])
def test_a_door_for_load_balancers_may_be_silent(name: str, status: str, authority: Authority) -> None:
    """It closes unread who is none; that of metrics does not."""
    proxy = {**tls(authority.server()), "proxy_protocol": "required", "proxy_protocol_from": ["192.0.2.7"]}
    patient = patient_of({knocks: {name: Knock(open=True)}}, doors={name: door(BEYOND)}, proxy=proxy)
    ((said, what),) = told(check_doors(patient))
    assert (said, "proxy_protocol_from" in what) == (status, status == "ok")


def found_of_admin(address: Address, met: Knock, settings: dict[str, Any] | None = None) -> tuple[str, str]:
    """What is said of the admin API there."""
    doors = {"admin": door(address, "admin")}
    ((status, what),) = told(check_admin(patient_of({knocks: {"admin": met}}, doors=doors, admin=settings)))
    return status, what


REFUSED = Knock(open=True, refused="SSLV3_ALERT_HANDSHAKE_FAILURE")


def demanding(authority: Authority) -> dict[str, Any]:
    """A section whose clients must have a certificate."""
    return {"tls": {**tls(authority.server())["tls"], "client_ca": authority.ca, "client_auth": "required"}}


def test_a_door_that_demands_a_certificate_speaks_tls(authority: Authority) -> None:
    """Where its settings say so all is well; else somebody should look why it refuses."""
    doors = {"proxy": door(BEYOND)}
    assert found_at(patient_of(doors=doors, proxy=demanding(authority)), REFUSED) == (
        "ok", "proxy at 0.0.0.0:1 speaks TLS and demands a certificate"
    )  # fmt: skip
    for settings in ({}, tls(authority.server())):
        status, what = found_at(patient_of(doors=doors, proxy=settings), REFUSED)
        assert status == "warning" and what.endswith(f"but refused this machine's: {REFUSED.refused}")


@pytest.mark.parametrize("met", [REFUSED, Knock(open=True, certificate=b"x")])
def test_an_admin_api_that_demands_a_certificate(met: Knock, authority: Authority) -> None:
    """By TLS 1.3 it refuses when it is asked, and does not answer."""
    said = "the admin API at 127.0.0.1:1 demands a certificate"
    assert found_of_admin(NOWHERE, met, demanding(authority)) == ("ok", said)


def test_what_is_served_counts(authority: Authority) -> None:
    """It may be another one than the file holds, and end sooner."""
    pair, other = authority.server(), authority.server()
    ends = datetime.now(UTC) + timedelta(days=3, hours=1)
    soon = authority.issue(LOOPBACK, not_after=ends)
    patient = patient_of(doors={"proxy": door(NOWHERE)}, proxy=tls(pair))
    assert found_at(patient, Knock(open=True, certificate=der(pair)))[0] == "ok"
    status, what = found_at(patient, Knock(open=True, certificate=der(other)))
    assert status == "warning" and f"does not serve the certificate of {pair.certificate}" in what
    assert found_at(patient, Knock(open=True, certificate=der(soon))) == (
        "error", f"proxy at 127.0.0.1:1 serves TLS; its certificate ends in 3 days, on {ends:%Y-%m-%d}"
    )  # fmt: skip
    Path(pair.certificate).unlink()
    assert found_at(patient, Knock(open=True, certificate=der(other)))[0] == "warning"


async def knocked(pair: Pair | None, header: bytes = b"", **context_of: Any) -> Knock:
    """Of a server that waits for a header, and then speaks TLS of such a context, or closes."""

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.settimeout(LIMIT_S)
            assert connection.recv(len(header)) == header
            if pair is None:
                return
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*pair)
            for name, value in context_of.items():
                setattr(context, name, value)
            with suppress(OSError), context.wrap_socket(connection, server_side=True) as spoken:
                spoken.recv(1)

    with socket.create_server((LOOPBACK, 0)) as listening:
        listening.settimeout(LIMIT_S)
        serving = asyncio.create_task(asyncio.to_thread(serve))
        met = await knock(listening.getsockname(), header, "kafka.test")
        await serving
    return met


@pytest.mark.parametrize("header", [b"", HEADER])
async def test_a_knock_shows_the_certificate(header: bytes, authority: Authority) -> None:
    """Whoever it is for, behind the header of a load balancer, too."""
    pair = authority.server()
    assert await knocked(pair, header) == Knock(open=True, certificate=der(pair))


async def test_a_knock_where_a_certificate_is_demanded(authority: Authority) -> None:
    """By TLS 1.2 it is refused before the handshake is through."""
    newest = ssl.TLSVersion.TLSv1_2
    met = await knocked(authority.server(), verify_mode=ssl.CERT_REQUIRED, maximum_version=newest)
    assert (met.open, met.certificate, "ALERT" in met.refused) == (True, None, True)


async def test_a_knock_where_no_tls_is_spoken_and_where_nobody_is() -> None:
    """Both are answers."""
    assert await knocked(None) == Knock(open=True)
    assert await knock(NOWHERE, b"", "x") == Knock(open=False)


def test_doors_are_knocked_at_as_their_settings_say(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header where it is demanded, but not for metrics, and the name of the certificate."""
    said = {}

    async def note(address: Address, header: bytes, name: str) -> Knock:
        said[address[1]] = header, name
        return Knock(open=False)

    monkeypatch.setattr("weir.doctor.checks.doors.knock", note)
    pair = authority.server()
    proxy = {"proxy_protocol": "required", "tls": {**tls(pair)["tls"], "sni": "kafka.test"}}
    doors = {
        "proxy": door((BEYOND[0], 1)), "metrics": door(("::1", 2)), "admin": door(("a.test", 3), "admin")
    }  # fmt: skip
    assert len(knocks(patient_of(doors=doors, proxy=proxy))) == 3
    assert said == {1: (HEADER, "kafka.test"), 2: (b"", "kafka.test"), 3: (b"", "a.test")}


@pytest.mark.parametrize(
    ("host", "status", "expected", "words"),
    [
        (LOOPBACK, 401, "ok", "answers nobody without a token"),
        (LOOPBACK, 200, "ok", "answers this machine alone"),
        (BEYOND[0], 401, "ok", "answers nobody without a token"),
        (BEYOND[0], 200, "warning", "has no tokens"),
        (BEYOND[0], 403, "warning", "has no tokens"),
        (LOOPBACK, 503, "warning", "answers with status 503"),
    ],
)
def test_whether_the_admin_api_wants_tokens(host: str, status: int, expected: str, words: str) -> None:
    """By what it answers somebody without one."""
    with answering(status) as port:
        said, what = found_of_admin((host, port), Knock(open=True))
    assert (said, words in what) == (expected, True)


def test_an_admin_api_that_answers_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the question has a limit, not each byte; who waits to its end sees an answer."""
    monkeypatch.setattr("weir.doctor.checks.doors.KNOCK_S", 0.5)
    done = threading.Event()

    def drip() -> None:
        with suppress(OSError), listening.accept()[0] as connection:
            connection.recv(4_096)
            connection.sendall(b"HTTP/1.1 200 ")
            for _ in range(100):
                if done.wait(0.05):
                    return
                connection.sendall(b"a")
            connection.sendall(b"\r\n\r\n")

    with socket.create_server((LOOPBACK, 0)) as listening:
        thread = threading.Thread(target=drip)
        thread.start()
        said, what = found_of_admin(listening.getsockname(), Knock(open=True))
        done.set()
        thread.join()
    assert (said, "does not answer" in what) == ("warning", True)


@pytest.mark.parametrize(
    ("met", "settings", "expected", "words"),
    [
        (Knock(open=False), {}, "ok", "nobody listens"),
        (Knock(open=True), {}, "warning", "does not answer"),
        (Knock(open=True), {"proxy_protocol": "required"}, "ok", "demands tokens"),
    ],
)
def test_an_admin_api_that_cannot_be_asked(
    met: Knock, settings: dict[str, Any], expected: str, words: str
) -> None:
    """It is not there, or speaks to load balancers alone."""
    said, what = found_of_admin(NOWHERE, met, settings)
    assert (said, words in what) == (expected, True)
