"""A local Pulsar that does not come up, and what is made before its first start."""

from collections.abc import Callable
from pathlib import Path

import pytest
from served import files_of, saying

from streaming.contract.errors import WeirError
from weir.jars.folders import POMS, PULSAR
from weir.jars.pins import LIST, digest_of
from weir.stack.pulsar import LocalPulsar, prepare
from weir.stack.server import LocalServer

DIES = "echo no memory >&2; exit 3"
SLEEPS = "exec sleep 60"


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Jars of a sort, and a Java that is a line of shell; it notes its words."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="17.0.15"')
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("WEIR_JARS", str(tmp_path / "jars"))
    (tmp_path / "jars" / PULSAR).mkdir(parents=True)
    (tmp_path / "jars" / PULSAR / "some.jar").touch()
    (tmp_path / "jars" / PULSAR / ".fetched").write_text(digest_of(POMS / "pulsar_broker" / LIST))

    def is_(line: str) -> None:
        script = home / "bin" / "java"
        script.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/words\n{line}\n')
        script.chmod(0o755)

    return is_


def test_one_that_ends_is_told_with_its_log(java: Callable[[str], None], tmp_path: Path) -> None:
    """At once, not after the limit."""
    java(DIES)
    with pytest.raises(WeirError, match=r"pulsar ended with status 3: no memory; see .*pulsar\.log"):
        LocalPulsar(tmp_path / "data").start()


def test_one_that_is_late_or_not_wanted_is_taken_away(java: Callable[[str], None], tmp_path: Path) -> None:
    """Its process is gone when the error comes."""
    java(SLEEPS)
    late = LocalPulsar(tmp_path / "data")
    with pytest.raises(WeirError, match="pulsar is not ready on"):
        late.start(limit_s=0.3)
    assert not late.children[0].alive()
    with pytest.raises(WeirError, match="stopped while Pulsar was starting"):
        late.start(stopping=lambda: True)
    assert not late.children[0].alive()


def test_its_settings_are_ours_and_then_those_given(java: Callable[[str], None], tmp_path: Path) -> None:
    """Ports that were asked for, and whatever the broker knows."""
    java(DIES)
    given = {"journalSyncData": "true", "transactionCoordinatorEnabled": "true"}
    local = LocalPulsar(tmp_path / "data", port=7001, admin_port=7002, properties=given, heap_mb=300)
    with pytest.raises(WeirError):
        local.start()
    lines = (tmp_path / "data" / "standalone.conf").read_text().splitlines()
    assert {"brokerServicePort=7001", "webServicePort=7002", "bindAddress=127.0.0.1"} <= set(lines)
    assert {f"{name}={value}" for name, value in given.items()} <= set(lines)
    assert "journalSyncData=false" not in lines
    assert "-Xmx300m" in (tmp_path / "words").read_text()
    assert (local.service, local.admin) == ("127.0.0.1:7001", "http://127.0.0.1:7002")


def test_without_an_archive_it_only_starts_slower(java: Callable[[str], None], tmp_path: Path) -> None:
    """It is tried once, and the second time nothing is said."""
    java(DIES)
    said: list[str] = []
    prepare(said.append)
    assert len(said) == 2 and "going on without" in said[1] and "no memory" in said[1]
    prepare(said.append)
    assert len(said) == 2


def test_what_set_up_has_archived_is_not_archived_again(java: Callable[[str], None], tmp_path: Path) -> None:
    """By `weir setup --pulsar`: the first start took half a minute more."""
    java(DIES)
    (tmp_path / "jars" / PULSAR / "classes.jsa").touch()
    said: list[str] = []
    prepare(said.append)
    assert not said


def test_a_stop_while_classes_are_archived_is_a_stop(java: Callable[[str], None]) -> None:
    """And the archive is tried again the next time."""
    java(SLEEPS)
    said: list[str] = []
    for _ in range(2):
        with pytest.raises(WeirError, match="stopped"):
            prepare(said.append, lambda: True)
    assert len(said) == 2


def test_a_stop_while_java_writes_the_archive_is_one_too(
    java: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was heard once that was written, up to two minutes later."""
    asked: list[LocalServer] = []

    def terminate(server: LocalServer) -> None:
        asked.append(server)
        LocalServer.terminate(server)

    deaf = tmp_path / "deaf"
    monkeypatch.setattr(LocalPulsar, "_ready", lambda self: deaf.exists())
    monkeypatch.setattr(LocalPulsar, "terminate", terminate)
    java(f"trap '' TERM; touch {deaf}; {SLEEPS}")
    with pytest.raises(WeirError, match="stopped while archiving classes of Pulsar"):
        prepare(lambda _: None, lambda: bool(asked))


def test_no_archive_written_is_said(java: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulsar came up and ended, and Java left nothing behind."""
    monkeypatch.setattr(LocalPulsar, "_ready", lambda self: True)
    java(SLEEPS)
    said: list[str] = []
    prepare(said.append)
    assert len(said) == 2 and "going on without an archive" in said[1] and "Java wrote none for " in said[1]


def test_what_answers_with_something_else_is_not_ready(tmp_path: Path) -> None:
    """Another program at the port of the admin API: what it said ended the command in a traceback."""
    with saying(b"SSH-2.0-x\r\n") as port:
        assert not LocalPulsar(tmp_path, admin_port=port)._ready()


def test_it_is_asked_past_the_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By which jars are fetched: no Pulsar got ready where one was set."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for path, said in (("namespaces/public", '["public/default"]'), ("brokers/health", "ok")):
        file = tmp_path / "admin" / "v2" / path
        file.parent.mkdir(parents=True)
        file.write_text(said)
    with files_of(tmp_path) as url:
        assert LocalPulsar(tmp_path, admin_port=int(url.rpartition(":")[2])).unready() == ""
