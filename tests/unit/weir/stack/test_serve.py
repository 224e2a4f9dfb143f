"""What `weir up` says when all is ready."""

import fcntl
import re
import socket
from argparse import Namespace
from asyncio import Event
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.contract.errors import ConfigError, WeirError
from weir.commands.up import pulsar_service
from weir.proxy_process import _described
from weir.stack import serve

PLAIN = SimpleNamespace(tls=None)


def announced(capsys: pytest.CaptureFixture[str], settings: str | None, *, pulsar_tls: bool = False) -> str:
    """What is printed."""
    there = {"proxy": "h:1", "kafka": "k:2", "admin": "h:3", "pulsar": "p:4", "pulsar_proxy": "h:5"}
    fake: Any = SimpleNamespace(url="https://m/metrics", addresses=lambda: there)
    serve._announce(fake, fake, Namespace(ready_file=None, settings=settings), pulsar_tls=pulsar_tls)
    return capsys.readouterr().out


@pytest.mark.parametrize(("pulsar_tls", "named"), [(False, "pulsar://h:5"), (True, "pulsar+ssl://h:5")])
def test_pulsars_clients_are_told_where_by_what_they_speak(
    pulsar_tls: bool, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line can be copied into a client."""
    assert f" {named}, Pulsar itself is p:4\n" in announced(capsys, None, pulsar_tls=pulsar_tls)


@pytest.mark.parametrize(("settings", "also"), [(None, ""), ("a b.yaml", " --settings 'a b.yaml'")])
def test_commands_that_are_named_work_as_they_stand(
    settings: str | None, also: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a cluster that wants a login too: it is in the settings."""
    text = announced(capsys, settings)
    for command in ("tail", "backlog --watch", "policy get", "policy apply FILE"):
        assert re.search(rf"weir {command} --kafka k:2{re.escape(also)}(\n|;)", text)


def test_what_the_stack_itself_reads_of_the_settings(tmp_path: Path) -> None:
    """Sections of others too; what is wrong in them is named by its line, and not once Kafka has started."""
    file = tmp_path / "weir.yaml"
    file.write_text("http: {binary_address: 'weir.example:6650'}\n")
    assert serve._settings(str(file))["http"].binary_address == "weir.example:6650"
    file.write_text("local: {kafka_port: 65536}\n")
    with pytest.raises(ConfigError, match="65535"):
        serve._settings(str(file))
    file.write_text("kafka: {clients: {job: {acks: '1'}}}\n")
    with pytest.raises(ConfigError, match=r"1: kafka\.clients\.job\.acks: "):
        serve._settings(str(file))


def test_parts_are_stopped_in_order_whatever_fails_meanwhile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such as the ready file on a disk that has become read-only: they were killed."""
    asked: list[str] = []
    stack: Any = SimpleNamespace(
        take_data_dir=list, start=lambda: False, stop=lambda: asked.append("stack"), metrics_sources={}
    )
    server: Any = SimpleNamespace(stop=lambda: asked.append("server"))
    given = {"_settings": {"proxy": PLAIN, "pulsar": PLAIN}, "Stack": stack, "MetricsServer": server}
    for name, made in given.items():
        monkeypatch.setattr(serve, name, lambda *words, made=made: made)
    monkeypatch.setattr(serve, "forget_ready_file", lambda path: None)
    monkeypatch.setattr("weir.stack.serve.StopSignal.install", lambda stop: None)
    # No plain file, so that taking it away fails.
    free = dict.fromkeys(("listen", "admin", "metrics"), ("h", 0))
    args = Namespace(ready_file=tmp_path, settings=None, pulsar=None, **free)
    with pytest.raises(OSError, match=re.escape(str(tmp_path))):
        serve.serve(args, None)
    assert asked == ["server", "stack"]


@pytest.mark.parametrize(("data", "said"), [("data", "another `weir up`"), ("other", "cannot be used for")])
def test_a_second_one_leaves_the_ready_file_of_the_first(
    data: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same words typed twice, or other data beside them: the first one went on unwatched."""
    given: dict[str, Any] = dict.fromkeys(("kafka", "pulsar", "pulsar_admin", "settings"))
    given |= dict.fromkeys(("listen", "admin"), ("127.0.0.1", 0)) | {"data": tmp_path / data}
    monkeypatch.setattr(serve, "_settings", lambda file: {"proxy": PLAIN, "pulsar": PLAIN})
    monkeypatch.setattr("weir.stack.serve.StopSignal.install", lambda stop: None)
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "up.lock").open("w") as first, socket.create_server(("127.0.0.1", 0)) as port:
        args = Namespace(ready_file=tmp_path / "ready.json", metrics=port.getsockname(), **given)
        args.ready_file.touch()
        fcntl.flock(first, fcntl.LOCK_EX)
        with pytest.raises(WeirError, match=said):
            serve.serve(args, None)
    assert args.ready_file.exists()


@pytest.mark.parametrize(("host", "why"), [("192.0.2.1", "assign"), ("127.0.0.1", "in use")])
def test_an_address_that_cannot_be_listened_on_is_told_why(host: str, why: str) -> None:
    """One that is not of this machine was called in use: nobody found by whom."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = host, taken.getsockname()[1]
        where = re.escape(f"{host}:{address[1]}")
        said = f"cannot listen on {where}: .*{why}.*; choose another address with --listen"
        with pytest.raises(WeirError, match=said):
            serve._check_port(address, "--listen")


def test_addresses_of_ipv6_can_be_copied_into_clients() -> None:
    """`pulsar://::1:16650` is no URL, and librdkafka finds no port in `::1:19092`."""
    enforcement = SimpleNamespace(ready=Event())
    proxy: Any = SimpleNamespace(
        listen=("::1", 19092), metrics_url=None, enforcement=enforcement, described={}
    )
    assert _described(proxy)["listen"] == pulsar_service("[::1]:19092") == "[::1]:19092"


def test_a_pulsar_is_named_as_to_its_proxy() -> None:
    """By its service URL, or several of its brokers; all of it was taken for the name of one host."""
    assert pulsar_service("pulsar://b1:6650,b2:6650") == "b1:6650,b2:6650"
