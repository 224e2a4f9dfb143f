"""What a local Kafka keeps of itself."""

import socket
import struct
import threading
from pathlib import Path

import pytest
from disk_kit import fill

from weir.stack.kafka import LocalKafka
from weir.stack.process import Child


def test_an_id_that_a_full_disk_cut_off_is_made_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The empty file that it left ended each later start with a traceback."""
    kafka = LocalKafka(tmp_path / "kafka")
    with monkeypatch.context() as patched:
        fill(patched)
        with pytest.raises(OSError, match="No space left"):
            kafka.cluster_id()
    assert kafka.cluster_id() == LocalKafka(tmp_path / "kafka").cluster_id()


def answers(broker: socket.socket, kafka: LocalKafka) -> None:
    """A broker of this cluster tells of one, itself, whoever asks next."""
    told = kafka.cluster_id().encode()

    def answer() -> None:
        with broker.accept()[0] as asking:
            asking.recv(100)
            asking.sendall(struct.pack(">iii", 8 + len(told), -1, 1) + told)

    threading.Thread(target=answer, daemon=True).start()


def test_a_broker_of_another_on_its_port_is_not_its_own(tmp_path: Path) -> None:
    """Two that start at once may draw the same one as free: the second was ready, and ended."""
    with socket.create_server(("127.0.0.1", 0)) as broker:
        port = broker.getsockname()[1]
        own, other = (LocalKafka(tmp_path / name, port=port) for name in ("own", "other"))
        own.children = [Child("kafka", [], log=tmp_path / "log")]
        answers(broker, other)
        assert own.unready() == f"kafka does not answer on 127.0.0.1:{port}; see {tmp_path / 'log'}"
        answers(broker, own)
        assert own.unready() == ""


def test_a_broker_that_listens_on_one_address_is_asked_there(tmp_path: Path) -> None:
    """`--listen 10.0.0.5`: it was asked at the loopback address, never ready, and ended after 90 s."""
    with socket.create_server(("127.0.0.2", 0)) as broker:
        port = broker.getsockname()[1]
        kafka = LocalKafka(tmp_path / "kafka", port=port, listen="127.0.0.2")
        kafka.children = [Child("kafka", [], log=None)]
        answers(broker, kafka)
        assert kafka.unready() == ""
    assert kafka.bootstrap == f"127.0.0.2:{port}"
    told = kafka._write_properties(0).read_text()
    assert f"advertised.listeners=PLAINTEXT://127.0.0.2:{port}\n" in told
    assert LocalKafka(tmp_path / "kafka", port=port, listen="0.0.0.0").bootstrap == f"127.0.0.1:{port}"
