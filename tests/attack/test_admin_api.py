"""The admin API as a process of its own, attacked from its own machine: by sockets, browsers, other users."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from admin_process_kit import Admin
from cluster_kit import Cluster, fresh
from proxy_kit import until
from stack_kit import series_at

from streaming.contract.topics import Cluster as Home
from streaming.contract.topics import Topics
from weir.cli import main
from weir.stack.topics import ensure_topics

GROUPS = "/admin/v2/resourcegroups"
ORDERS = "/admin/v2/namespaces/acme/orders/resourcegroup"
MANY, SOME = 1_200, 150
"""More than the API has connections for, and more than it has for one address."""
BYSTANDER_LIMIT_S = 5.0
"""Far above what a machine with other work to do needs, and far below what any attack waits for."""
JSON = {"Content-Type": "application/json"}
HALF = b"PUT /admin/v2/resourcegroups/rg1 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
NO_BODY = HALF + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
DEAF = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 20


@pytest.fixture(scope="module")
def admin(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    """One with the default settings and without tokens, which knows a group."""
    topics = Topics(f"{fresh('attacked')}.")
    ensure_topics(Home(cluster.kafka.bootstrap, topics))
    folder = tmp_path_factory.mktemp("attacked") / "admin"
    with Admin(cluster.kafka.bootstrap, folder, topics.prefix) as running:
        assert running.ask("PUT", f"{GROUPS}/rg1", {"publishRateInMsgs": 7}) == (204, "")
        yield running


def send(admin: Admin, method: str, path: str, headers: dict[str, str], body: str | None = None) -> int:
    """Status of a request with these headers and no other but those that HTTP needs."""
    address = urlsplit(admin.url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=10)
    with closing(connection):
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        content = (body or "").encode()
        for name, value in (headers | ({"Content-Length": str(len(content))} if content else {})).items():
            connection.putheader(name, value)
        connection.endheaders(content or None)
        return connection.getresponse().status


def ended(admin: Admin, reason: str) -> float:
    """Connections that the process has ended for this reason."""
    name = f'weir_admin_connections_ended_total{{reason="{reason}"}}'
    return series_at(admin.ready["metrics"]).get(name, 0.0)


@pytest.mark.parametrize(
    ("sent", "count"),
    [
        *(pytest.param(sent, MANY, marks=pytest.mark.soak) for sent in (b"", HALF)), (NO_BODY, MANY),
        pytest.param(DEAF, SOME, marks=pytest.mark.soak),
    ],
    ids=["nothing", "half", "no body", "deaf"],
)
def test_who_waits_keeps_nobody_out(admin: Admin, sent: bytes, count: int) -> None:
    """Connections that send too little or take nothing: everybody else is answered at once."""
    address, slowest_s, before = urlsplit(admin.url), 0.0, ended(admin, "displaced")
    with ExitStack() as held:
        for number in range(count):
            attacker = held.enter_context(socket.socket())
            attacker.settimeout(10)
            attacker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            attacker.connect((address.hostname, address.port))
            attacker.sendall(sent)
            if number % (count // 12) == 0:
                begun = time.monotonic()
                assert admin.ask("GET", f"{GROUPS}/rg1")[0] == 200
                slowest_s = max(slowest_s, time.monotonic() - begun)
        assert admin.ask("PUT", f"{GROUPS}/rg1", {"publishRateInMsgs": 7}) == (204, "")
    assert slowest_s < BYSTANDER_LIMIT_S
    assert ended(admin, "displaced") > before


@pytest.mark.soak
def test_a_byte_a_second_ends(admin: Admin) -> None:
    """However many bytes a head has: what counts is when it began."""
    address, before = urlsplit(admin.url), ended(admin, "header_timeout")
    begun = time.monotonic()
    with socket.create_connection((address.hostname, address.port), 10) as slow:
        slow.settimeout(1)
        while time.monotonic() - begun < 15:
            try:
                slow.sendall(b"G")
                if not slow.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    assert 4 < time.monotonic() - begun < 8
    assert ended(admin, "header_timeout") == before + 1


CROSS_SITE = {
    "another port here": {"Origin": "http://localhost:3000"},
    "another site": {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    "a sandboxed frame": {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    "no Origin": {"Sec-Fetch-Site": "cross-site"},
    "no Origin, same site": {"Sec-Fetch-Site": "same-site"},
    "our own Origin, but sent by another": {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:1"},
    "a rebound name": {"Host": "evil.example:18080", "Origin": "http://evil.example:18080"},
    "a rebound name, GET's headers": {"Host": "evil.example"},
    "the address of all": {"Host": "0.0.0.0"},
    "passed on": {"X-Forwarded-For": "192.0.2.7"},
}
FORMS = {
    "form": {"Content-Type": "application/x-www-form-urlencoded"},
    "text form": {"Content-Type": "text/plain"},
    "file form": {"Content-Type": "multipart/form-data; boundary=x"},
    "text that is called JSON too": {"Content-Type": "text/plain; x=application/json"},
    "beacon": {},
}


@pytest.mark.parametrize("headers", CROSS_SITE.values(), ids=CROSS_SITE)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", f"{GROUPS}/rg1", '{"publishRateInMsgs":1}'), ("PUT", f"{ORDERS}/rg1", None),
        ("POST", f"{ORDERS}/rg1", None), ("DELETE", f"{GROUPS}/rg1", None),
    ],
    ids=["PUT group", "PUT", "POST", "DELETE"],
)  # fmt: skip
def test_no_other_site_changes_anything(
    admin: Admin, headers: dict[str, str], method: str, path: str, body: str | None
) -> None:
    """Whatever a browser says of it, or does not."""
    assert send(admin, method, path, JSON | headers, body) == 403
    assert admin.ask("GET", ORDERS) == (200, "")
    assert admin.ask("GET", f"{GROUPS}/rg1")[1]["publishRateInMsgs"] == 7


@pytest.mark.parametrize("headers", FORMS.values(), ids=FORMS)
def test_a_form_changes_nothing(admin: Admin, headers: dict[str, str]) -> None:
    """A browser that names neither Origin nor site sends a form all the same, without asking first."""
    assert send(admin, "POST", f"{ORDERS}/rg1", headers, "a=b" if headers else None) == 403
    assert admin.ask("GET", ORDERS) == (200, "")


def test_browsers_that_ask_first_are_not_told_yes(admin: Admin) -> None:
    """So they send no PUT, DELETE or JSON of another site; and of a listed one they do."""
    asked = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "PUT"}
    assert send(admin, "OPTIONS", f"{GROUPS}/rg1", asked) == 403
    assert send(admin, "OPTIONS", f"{GROUPS}/rg1", {"Access-Control-Request-Method": "PUT"}) == 405


@pytest.mark.soak
def test_a_listed_page_may_change(cluster: Cluster, topics: Topics, tmp_path: Path) -> None:
    """It is told yes when its browser asks, and is named in the log."""
    page = "http://localhost:3000"
    with Admin(cluster.kafka.bootstrap, tmp_path / "admin", topics.prefix, allowed_origins=[page]) as admin:
        asked = {"Origin": page, "Access-Control-Request-Method": "PUT", "Sec-Fetch-Site": "same-site"}
        assert send(admin, "OPTIONS", f"{GROUPS}/rg1", asked) == 200
        sent = JSON | {"Origin": page, "Sec-Fetch-Site": "same-site"}
        assert send(admin, "PUT", f"{GROUPS}/rg1", sent, '{"publishRateInMsgs":1}') == 204
        assert send(admin, "PUT", f"{GROUPS}/rg1", sent | {"Origin": f"{page}0"}, "{}") == 403
        until(lambda: f"PUT {GROUPS}/rg1 by loopback, a page of {page}: 204" in admin.log)


@pytest.mark.parametrize("rate", ["1e-300", "5e-324", "1e-10", "1e400", "-0.0"])
def test_a_rate_that_stops_everything_is_refused(admin: Admin, rate: str) -> None:
    """One message in 10^292 years is no limit but a switch, and a mistake."""
    for field in ("publishRateInMsgs", "dispatchRateInBytes"):
        assert send(admin, "PUT", f"{GROUPS}/rg1", JSON, f'{{"{field}":{rate}}}') == 400
    assert admin.ask("GET", f"{GROUPS}/rg1")[1]["publishRateInMsgs"] == 7


@pytest.mark.soak
def test_who_was_refused_is_logged_by_name(cluster: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Name, role and address, never the token; and nobody fills the log by it."""
    tokens = tmp_path / "tokens.yaml"
    tokens.touch(0o600)
    tokens.write_text("tokens:\n- {token: s3cret, role: admin}\n- {token: l00k, role: reader, name: watch}\n")
    words = ("--tokens", str(tokens))
    with Admin(cluster.kafka.bootstrap, tmp_path / "admin", topics.prefix, *words) as admin:
        assert admin.ask("PUT", f"{GROUPS}/rg1", {}, token="l00k")[0] == 403
        assert admin.ask("GET", f"{GROUPS}/rg1", token="gu3ss")[0] == 401
        until(lambda: "401" in admin.log)
        refused = [line for line in admin.log.splitlines() if " refused: " in line]
        assert f"PUT {GROUPS}/rg1 from 127.0.0.1:" in refused[0]
        assert "403 Don't have admin permissions: the role of watch is viewer" in refused[0]
        assert "401 No valid token" in refused[1]
        for _ in range(100):
            admin.ask("GET", f"{GROUPS}/rg1", token="gu3ss")
        assert admin.log.count(" refused: 401") <= 30 and admin.log.count(" refused: ") <= 30 + 1
        assert not [secret for secret in ("s3cret", "l00k", "gu3ss") if secret in admin.log]


@pytest.mark.soak
@pytest.mark.parametrize("mode", [0o644, 0o606, 0o660])
def test_a_token_file_that_others_may_use_stops_the_start(
    mode: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, with the file, its mode and what was expected."""
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text("tokens:\n- {token: s3cret, role: admin}\n")
    tokens.chmod(mode)
    assert main(["admin", "--kafka", "127.0.0.1:1", "--tokens", str(tokens)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"{tokens}:1: tokens: has mode {mode:04o}, so ")
    assert "expected 0600" in told and "s3cret" not in told
