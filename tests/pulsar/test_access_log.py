"""Pulsar's access log: a real broker writes it, and what it carried out becomes events."""

from pathlib import Path

import orjson
import pytest
from pulsar_kit import Admin
from pulsar_tokens import checking, token

from weir.cli import main
from weir.stack.pulsar import LocalPulsar

pytestmark = pytest.mark.soak
TOPICS = "/admin/v2/persistent/acme/orders"


def test_what_a_broker_logs(tmp_path: Path) -> None:
    """Each request that succeeded, once, and none of those that did not: nothing is said of users."""
    options = ("-Dweir.requests=info",)
    properties = checking("alice")
    with LocalPulsar(tmp_path / "p", properties=properties, token=token("root"), options=options) as pulsar:
        admin = Admin(pulsar.admin, token("alice"))
        admin.namespace("acme/orders")
        for method, path, body, status in (
            ("PUT", f"{TOPICS}/one", None, 204),
            ("PUT", f"{TOPICS}/one", None, 409),
            ("PUT", f"{TOPICS}/many/partitions", 4, 204),
            ("POST", f"{TOPICS}/many/partitions", 6, 204),
            ("GET", f"{TOPICS}/many/partitions", None, 200),
            ("DELETE", f"{TOPICS}/many/partitions?force=true", None, 204),
            ("DELETE", f"{TOPICS}/%6fne", None, 204),
            ("DELETE", f"{TOPICS}/one", None, 404),
            ("DELETE", "/admin/v2/namespaces/acme/orders", None, 204),
        ):
            assert admin.ask(method, path, body).status == status, path
        assert Admin(pulsar.admin, "forged").ask("PUT", f"{TOPICS}/two").status == 401
        log = str(pulsar.log)
    out = tmp_path / "events.jsonl"
    assert main(["import", "pulsar-access-log", log, "--out", str(out), "--partitions", "3"]) == 0
    events = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    assert {event["user"] for event in events} == {"ANONYMOUS"}
    topics = "persistent://acme/orders"
    assert [(event["api"], *(tuple(each.values()) for each in event["items"])) for event in events] == [
        ("createNonPartitionedTopic", (f"{topics}/one", 1)),
        ("createPartitionedTopic", (f"{topics}/many", 3)), ("updatePartitionedTopic", (f"{topics}/many", 3)),
        ("deletePartitionedTopic", (f"{topics}/many", 6)), ("deleteTopic", (f"{topics}/one", 1)),
        ("deleteNamespace", ("acme/orders", 3)),
    ]  # fmt: skip
