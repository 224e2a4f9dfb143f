"""Who may use the admin API."""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from each_kit import each
from starlette.requests import Request

from enforcer.control.access.auth import admit
from enforcer.control.access.tokens import (
    VARIABLE,
    Grant,
    Role,
    digest_of,
    grants_of_file,
    grants_of_text,
    tokens_of,
)
from enforcer.control.groups import Refusal
from enforcer.control.metrics import AdminMetrics
from enforcer.control.settings import AdminSettings
from streaming.contract.errors import ConfigError
from streaming.policy.settings import read_settings

GRANTS = [
    Grant(name="ops", role=Role.OPERATOR, digest=digest_of("secret")),
    Grant(name="watch", role=Role.VIEWER, digest=digest_of("look")),
]
HERE = {"host": "127.0.0.1:18080"}


def status(
    grants: list[Grant], method: str, address: str = "127.0.0.1", origins: Sequence[str] = (), **headers: str
) -> int | str:
    """Who was admitted, or the status of the refusal."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = [(name.encode(), value.encode()) for name, value in {**HERE, **named}.items()]
    client = (address, 1) if address else None
    request = Request({"type": "http", "method": method, "client": client, "path": "/x", "headers": raw})
    try:
        return admit(grants, request, origins).name
    except Refusal as refused:
        return refused.status


def basic(password: str) -> str:
    """What a browser sends."""
    return f"Basic {base64.b64encode(f'anybody:{password}'.encode()).decode()}"


def test_with_tokens_every_call_needs_one_and_changes_the_admin_role() -> None:
    """401 and 403; where the call comes from does not matter."""
    assert status(GRANTS, "GET") == 401
    assert status(GRANTS, "GET", authorization="Bearer wrong") == 401
    assert status(GRANTS, "GET", authorization="Bearer ") == 401
    assert status(GRANTS, "GET", authorization="Bearer look") == "watch"
    assert status(GRANTS, "PUT", authorization="Bearer look") == 403
    assert status(GRANTS, "PUT", "10.0.0.7", authorization="bearer secret") == "ops"
    assert status(GRANTS, "DELETE", "10.0.0.7", host="weir.example", authorization="Bearer secret") == "ops"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_token_may_have_letters_beyond_ascii(encoding: str) -> None:
    """curl sends them as a file has them, Python as Latin-1, which is how servers read headers."""
    grants = [Grant(name="ops", role=Role.OPERATOR, digest=digest_of("gehe\u00edm"))]
    shown = "Bearer gehe\u00edm".encode(encoding)
    headers = [(b"host", b"127.0.0.1:18080"), (b"authorization", shown)]
    request = Request({"type": "http", "method": "GET", "path": "/x", "headers": headers})
    assert admit(grants, request).name == "ops"


def test_a_browser_may_read_with_the_token_as_password() -> None:
    """It may not change: a browser sends passwords by itself, whoever made it ask."""
    assert status(GRANTS, "GET", authorization=basic("look")) == "watch"
    assert status(GRANTS, "GET", authorization="Basic !") == 401
    assert status(GRANTS, "POST", authorization=basic("secret")) == 403
    assert status(GRANTS, "POST", authorization=basic("wrong")) == 401


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"])
def test_without_tokens_this_machine_is_answered(address: str) -> None:
    """However it calls itself."""
    assert status([], "PUT", address) == "loopback"
    for host in ("localhost:18080", "[::1]:18080", "127.0.0.1"):
        assert status([], "PUT", address, host=host) == "loopback"
        assert status([], "PUT", address, host=host, origin=f"http://{host}") == "loopback"


def test_without_tokens_nobody_else_is() -> None:
    """Other addresses, what a proxy passes on, and browsers that another site sends (DNS rebinding)."""
    assert status([], "GET", "192.0.2.7") == 403
    assert status([], "GET", "::ffff:192.0.2.7") == 403
    assert status([], "GET", "") == 403
    assert status([], "GET", x_forwarded_for="192.0.2.7") == 403
    assert status([], "GET", host="weir.example") == 403
    assert status([], "GET", host="") == 403
    assert status([], "POST", origin="https://weir.example") == 403
    assert status([], "POST", origin="null") == 403
    assert status([], "POST", origin="http://[") == 403
    # Another program's page on this machine is another site too.
    for origin in ("http://localhost:3000", "http://127.0.0.1", "https://127.0.0.1:18080"):
        assert status([], "GET", origin=origin) == 403
        assert status([], "PUT", origin=origin) == 403


JSON = {"content_type": "application/json; charset=utf-8"}


def test_without_tokens_no_site_changes_anything_by_a_browser_that_does_not_name_it() -> None:
    """What a page of another site can send without being asked is refused; what pulsar-admin sends is not."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        assert status([], "POST", content_type=kind) == 403
        assert status([], "POST", content_type=f"{kind}; application/json") == 403
    assert status([], "POST") == 403
    assert status([], "POST", **JSON) == "loopback"
    assert status([], "POST", x_requested_by="curl") == "loopback"
    # Browsers ask first before these, whatever they hold, and are never told yes.
    assert status([], "PUT", content_type="application/x-www-form-urlencoded") == "loopback"
    assert status([], "DELETE") == "loopback"


@pytest.mark.parametrize("site", ["cross-site", "same-site", "new-one"])
def test_without_tokens_a_browser_that_names_the_site_changes_nothing(site: str) -> None:
    """Reading is harmless, since no other site's page gets the answer."""
    for method in ("POST", "PUT", "DELETE"):
        assert status([], method, sec_fetch_site=site, **JSON) == 403
    assert status([], "GET", sec_fetch_site=site) == "loopback"
    assert status([], "POST", sec_fetch_site="same-origin", **JSON) == "loopback"
    assert status([], "POST", sec_fetch_site="none", **JSON) == "loopback"


def test_listed_origins_may_change() -> None:
    """Each as it stands in the list; Host and address must be this machine's all the same."""
    listed = {"origin": "http://localhost:3000", "sec_fetch_site": "cross-site"}
    assert status([], "POST", **listed, origins=["http://localhost:3000"]) == (
        "loopback, a page of http://localhost:3000"
    )
    assert status([], "POST", **listed, origins=["http://localhost:300", "http://localhost:30000"]) == 403
    assert status([], "POST", **listed, host="weir.example", origins=["http://localhost:3000"]) == 403
    assert status([], "POST", "192.0.2.7", **listed, origins=["http://localhost:3000"]) == 403
    # Before a token is shown a browser asks without one.
    assert status(GRANTS, "OPTIONS", **listed, origins=["http://localhost:3000"]) == "preflight"
    assert status(GRANTS, "OPTIONS", **listed) == 401
    assert status(GRANTS, "PUT", **listed, origins=["http://localhost:3000"]) == 401


@pytest.mark.parametrize("origin", ["*", "null", "localhost", "http://a/", "http://A", "ftp://a"])
def test_what_is_no_origin_cannot_be_listed(origin: str, tmp_path: Path) -> None:
    """A browser would never send it, so the list would not do what it says."""
    file = tmp_path / "weir.yaml"
    file.write_text(f"admin: {{allowed_origins: ['http://localhost:3000', '{origin}']}}\n")
    with pytest.raises(ConfigError, match=r"allowed_origins\[1\]: is no origin; expected an origin as"):
        read_settings(AdminSettings, "admin", str(file))


def write(file: Path, text: str) -> None:
    """Replace a file of tokens as an editor does, or a mounted secret."""
    new = file.with_suffix(".new")
    new.touch(0o600)
    new.write_text(text)
    new.replace(file)


def test_tokens_come_from_a_file_and_the_environment(tmp_path: Path) -> None:
    """Only digests are kept."""
    file = tmp_path / "tokens.yaml"
    digest = hashlib.sha256(b"look").hexdigest()
    write(file, f"tokens:\n- {{token: secret, role: admin, name: ops}}\n- {{sha256: {digest}, role: reader}}")
    tokens = tokens_of(str(file), {VARIABLE: "reader:a:b,operator:c"})
    grants = [*tokens.in_force(AdminMetrics().token_reads)]
    # Under their old names, admin and reader, the roles are what they were.
    assert [(grant.name, grant.role) for grant in grants] == [
        ("ops", "operator"), ("token-3c01eba1", "viewer"), ("token-6783a31e", "viewer"),
        ("token-2e7d2c03", "operator"),
    ]
    assert grants[1].digest == digest_of("look")
    assert status(grants, "GET", authorization="Bearer a:b") == "token-6783a31e"
    assert not tokens_of("", {})


@each(
    "text",
    [
        "", "secret", "tokens: []", "tokens: {}", "- a", "tokens: secret", "tokens:\n- secret",
        "tokens:\n- {sha256: secret, role: admin}", "tokens:\n- {token: [secret], role: admin}",
        "tokens:\n- {token: a}", "tokens:\n- {token: a, role: root}", "tokens:\n- {token: a, role: tenant}",
        "tokens:\n- {token: a, role: tenant, tenants: []}",
        "tokens:\n- {token: a, role: tenant, tenants: acme}",
        "tokens:\n- {token: a, role: tenant, tenants: [acme/orders]}",
        "tokens:\n- {token: a, role: operator, tenants: [acme]}", "tokens:\n- {token: '', role: admin}",
        "tokens:\n- {token: 5, role: admin}", "tokens:\n- {token: a, sha256: b, role: admin}",
        "tokens:\n- {sha256: abc, role: admin}", "tokens:\n- {token: a, role: admin, rule: 1}",
        "tokens:\n- {token: a, role: admin}\nother: 1",
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_lets_nobody_in(text: str, tmp_path: Path) -> None:
    """The start fails, with the line: without tokens this machine would be let in."""
    file = tmp_path / "tokens.yaml"
    write(file, text)
    with pytest.raises(ConfigError, match=r"tokens\.yaml:\d+: .*; expected ") as problem:
        grants_of_file(str(file))
    assert "secret" not in str(problem.value).replace("may be secret", "")


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o602, 0o620, 0o666, 0o601])
def test_a_file_that_others_may_use_is_refused(mode: int, tmp_path: Path) -> None:
    """With its mode and what was expected; the command ends with status 2."""
    file = tmp_path / "tokens.yaml"
    file.write_text("tokens:\n- {token: secret, role: admin}\n")
    file.chmod(mode)
    with pytest.raises(ConfigError, match=f"tokens.yaml:1: tokens: has mode {mode:04o}, .*; expected 0600"):
        grants_of_file(str(file))
    for allowed in (0o400, 0o600, 0o640):
        file.chmod(allowed)
        assert len(grants_of_file(str(file))) == 1


@each("text", ["", "secret", "root:secret", "tenant:secret", "admin:", "admin:a,"])
def test_a_variable_that_is_wrong_lets_nobody_in(text: str) -> None:
    """The message names the variable and never shows a token."""
    with pytest.raises(ConfigError) as problem:
        grants_of_text(text, "$TOKENS")
    assert "$TOKENS" in str(problem.value) and "secret" not in str(problem.value)


def called(token: str) -> str:
    """How logs name a token without a name: wherever it stands."""
    return f"token-{hashlib.sha256(token.encode()).hexdigest()[:8]}"


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """New tokens are in force for the next request, old ones are refused, other sources stay."""
    file, metrics = tmp_path / "tokens.yaml", AdminMetrics()
    write(file, "tokens: [{token: old, role: operator}]")
    tokens = tokens_of(str(file), {VARIABLE: "viewer:fixed"})

    def asked(token: str) -> int | str:
        grants = [*tokens.in_force(metrics.token_reads)]
        return status(grants, "GET", authorization=f"Bearer {token}")

    assert (asked("old"), asked("new"), asked("fixed")) == (called("old"), 401, called("fixed"))
    write(file, "tokens: [{token: new, role: tenant, tenants: [acme, b], name: team}]")
    assert (asked("old"), asked("new"), asked("fixed")) == (401, "team", called("fixed"))
    assert tokens.in_force(metrics.token_reads)[0].tenants == {"acme", "b"}
    assert reads(metrics) == (1, 0)


def reads(metrics: AdminMetrics) -> tuple[float | None, float | None]:
    """How often the changed file was read, and how often it was of no use."""
    value, name = metrics.registry.get_sample_value, "weir_admin_token_reads_total"
    return value(name, {"result": "read"}), value(name, {"result": "unusable"})


@pytest.mark.parametrize("harm", ["gone", "empty", "wrong", "open"])
def test_of_a_file_that_is_of_no_use_the_tokens_before_stay(
    harm: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Said once, counted, without a token; as soon as it is of use again it is read."""
    file, metrics = tmp_path / "tokens.yaml", AdminMetrics()
    write(file, "tokens: [{token: secret, role: operator}]")
    tokens = tokens_of(str(file), {})
    if harm == "gone":
        file.unlink()
    elif harm == "open":
        file.chmod(0o644)
    else:
        write(file, "" if harm == "empty" else "tokens: [{token: secret, role: root}]")
    for _ in range(3):
        assert status([*tokens.in_force(metrics.token_reads)], "GET", authorization="Bearer secret") == (
            called("secret")
        )
    (said,) = caplog.messages
    assert said.startswith("the tokens before stay in force: ") and "secret" not in said
    assert reads(metrics) == (0, 1)
    write(file, "tokens: [{token: next, role: operator}]")
    assert status([*tokens.in_force(metrics.token_reads)], "GET", authorization="Bearer secret") == 401
    assert reads(metrics) == (1, 1)


@pytest.mark.parametrize("fault", [OSError(24, "Too many open files"), MemoryError("secret")])
def test_a_token_that_was_taken_back_ends_when_the_file_can_be_read(
    fault: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again, once a second, though the file does not change any more; said once, and counted."""
    file, metrics, now = tmp_path / "tokens.yaml", AdminMetrics(), [100.0]
    monkeypatch.setattr("enforcer.core.security.watched.time", SimpleNamespace(monotonic=lambda: now[0]))
    write(file, "tokens: [{token: old, role: operator}]")
    tokens = tokens_of(str(file), {})
    write(file, "tokens: [{token: new, role: operator}]")
    with monkeypatch.context() as broken:

        def fail(*_: object) -> None:
            raise fault

        broken.setattr("builtins.open", fail)
        for now[0] in (100.0, 100.1, 101.5):
            assert tokens.in_force(metrics.token_reads)[0].name == called("old")
    (said,) = caplog.messages
    assert "secret" not in said
    assert reads(metrics) == (0, 2)
    now[0] = 103.0
    assert tokens.in_force(metrics.token_reads)[0].name == called("new")
    assert reads(metrics) == (1, 2)


def test_a_token_is_there_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Else which role holds would depend on the order; at the start and later."""
    file, metrics = tmp_path / "tokens.yaml", AdminMetrics()
    twice = "tokens: [{token: a, role: viewer, name: one}, {token: a, role: operator, name: two}]"
    write(file, twice)
    with pytest.raises(ConfigError, match="the token of two is that of one again; expected each token once"):
        tokens_of(str(file), {})
    write(file, "tokens: [{token: a, role: viewer, name: one}]")
    with pytest.raises(ConfigError, match="is that of one again"):
        tokens_of(str(file), {VARIABLE: "operator:a"})
    tokens = tokens_of(str(file), {})
    write(file, twice)
    assert [grant.name for grant in tokens.in_force(metrics.token_reads)] == ["one"]
    assert "is that of one again" in caplog.text and reads(metrics) == (0, 1)


def test_how_long_it_takes_tells_nothing_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request compares digests, not tokens, with all of them, each in constant time."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr("enforcer.control.access.auth.hmac", SimpleNamespace(compare_digest=compare))
    for token in ("secret", "look", "s", "wrong" * 100):
        compared.clear()
        status(GRANTS, "GET", authorization=f"Bearer {token}")
        assert compared == [(grant.digest, digest_of(token)) for grant in GRANTS]
