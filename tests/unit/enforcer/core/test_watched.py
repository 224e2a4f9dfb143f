"""Files of which something is made anew when they change."""

import logging
import os
import ssl
from pathlib import Path
from types import SimpleNamespace

import pytest
from tls_kit import Authority

from enforcer.core.security.tls import TlsSettings, UpstreamTlsSettings
from enforcer.core.security.watched import WatchedFiles
from enforcer.host.doors.certificates import NewestContext, WatchedContext

logger = logging.getLogger("test")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock's time, s."""
    time_s = [100.0]
    monkeypatch.setattr("enforcer.core.security.watched.time", SimpleNamespace(monotonic=lambda: time_s[0]))
    return time_s


def test_a_certificate_that_could_not_be_read_is_read_again(
    tmp_path: Path, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the one before would be shown until it has expired: the new files do not change any more."""
    authority = Authority(tmp_path)
    pair, newer = authority.server(), authority.server()
    settings = TlsSettings(certificate=pair.certificate, key=pair.key)
    watched = WatchedContext.of_server(settings)
    first = watched.now()
    os.replace(newer.certificate, pair.certificate)
    os.replace(newer.key, pair.key)
    with monkeypatch.context() as broken:

        def fail(*_: object) -> None:
            raise OSError(24, "Too many open files")

        broken.setattr(Path, "open", fail)
        assert watched.now() is first
    assert watched.now() is first
    now[0] += 2
    assert watched.now() is not first


def test_each_try_is_told_and_said_once(
    tmp_path: Path, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """At most one a second; of an error that may hold what was read its kind alone."""
    file = tmp_path / "file"
    file.write_text("1")

    def make() -> int:
        text = file.read_text()
        if text == "secret":
            raise KeyError(text)
        return int(text)

    watched = WatchedFiles(make, ["", str(file)], logger, "the number stays", ValueError)
    tried: list[bool] = []
    file.write_text("secret")
    for now[0] in (200.0, 200.5, 201.5):
        assert watched.now(tried.append) == 1
    assert tried == [False, False] and caplog.messages == ["the number stays: KeyError"]
    file.write_text("no number")
    assert watched.now(tried.append) == 1
    assert "invalid literal" in caplog.messages[-1]
    file.write_text("22")
    assert [watched.now(tried.append) for _ in range(2)] == [22, 22]
    assert tried == [False, False, False, True]


def test_the_newest_context_speaks_as_the_kept_one() -> None:
    """Each connection is another one's: with the protocols that the library set, and the host's name."""
    made = NewestContext.of_client(UpstreamTlsSettings())
    made.set_alpn_protocols(["http/1.1"])
    sent = ssl.MemoryBIO()
    client = made.wrap_bio(ssl.MemoryBIO(), sent, False, b"upstream.test", None)
    assert client.context.check_hostname
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = sent.read()
    assert b"\x08http/1.1" in hello and b"upstream.test" in hello
