"""A Pulsar that wants TLS and tokens: the proxy, the admin API and the collector, as secured.md has them."""

import re
import subprocess
import time
from pathlib import Path

import pulsar
import pytest
from pulsar_kit import Admin, client, fresh, receive, send_all
from pulsar_tokens import KEY, token
from stack_kit import Up, did

from weir.stack.kafka import free_port
from weir.stack.pulsar import LocalPulsar

pytestmark = pytest.mark.soak

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operate" / "secured.md").read_text().partition("## Pulsar")[2]
(BROKER,) = re.findall(r"```properties\n(.*?)```", PAGE, re.DOTALL)
(SETTINGS,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
IN, OUT, MESSAGES = 20, 5, 40
"""Messages a second that are taken, and delivered."""
TOPIC = "persistent://public/default/rated"
POLICIES = f"""\
version: 1
resourcegroups: {{limited: {{publishRateInMsgs: {IN}}}}}
namespaces: {{public/default: {{resourcegroup: limited}}}}
topics:
  "{TOPIC}": {{subscriptionDispatchRate: {{dispatchThrottlingRateInMsg: {OUT}, ratePeriodInSecond: 1}}}}
"""


def folder_of(tmp_path: Path) -> Path:
    """In the place of /etc/weir: certificates, the key of tokens, and these."""
    subprocess.run([ROOT / "scripts" / "certificates.sh", tmp_path / "tls"], check=True, timeout=30)
    (tmp_path / "tls" / "tokens.key").write_bytes(KEY)
    (tmp_path / "tokens").mkdir()
    for user in ("broker", "weir-collect", "ann"):
        (tmp_path / "tokens" / user).write_text(token(user))
    return tmp_path


def test_all_parts_get_in_and_clients_feel_limits(tmp_path: Path) -> None:
    """A client logs in through the proxy and waits for its limits; who has no token does not get in."""
    folder = folder_of(tmp_path)
    secure, web = free_port(), free_port()

    def text(block: str) -> str:
        at = {"/etc/weir": str(folder), "=6651": f"={secure}", "=8443": f"={web}"}
        at["HOST:8443"] = f"127.0.0.1:{web}"
        return re.sub("|".join(at), lambda found: at[found[0]], block)

    lines = dict(line.split("=", 1) for line in text(BROKER).splitlines())
    settings = "local: {kafka_port: 0}\n" + text(SETTINGS)
    words = ["--pulsar-listen", "127.0.0.1:0"]
    words += ["--pulsar", f"127.0.0.1:{secure}", "--pulsar-admin", f"https://127.0.0.1:{web}"]
    with LocalPulsar(folder / "pulsar", token=token("broker"), properties=lines) as broker:
        admin = Admin(broker.admin, token("broker"))
        admin.do("POST", "namespaces/public/default/permissions/ann", ["produce", "consume"])
        admin.topic(TOPIC)
        with Up(folder, *words, settings=settings, policies=POLICIES) as up:
            through_the_proxy(up, str(folder / "tls" / "ca.pem"))
            # What is not Weir's is for Pulsar to allow, at the end of TLS to it.
            anns, brokers = (Admin(up.ready["admin"], token(user)) for user in ("ann", "broker"))
            assert anns.ask("GET", "tenants").status in (401, 403)
            assert brokers.do("GET", "tenants") == admin.do("GET", "tenants")
            where = ("--kafka", up.ready["kafka"], "--settings", str(up.settings))
            did("collect", "pulsar", *where, "--once", "--push")
            pushed = admin.do("GET", "persistent/public/default/rated/subscriptionDispatchRate")
            assert pushed["dispatchThrottlingRateInMsg"] == OUT


def through_the_proxy(up: Up, ca: str) -> None:
    """Messages at their rates; who has no good token sends none."""
    service = f"pulsar+ssl://{up.ready['pulsar_proxy']}"

    def of(credential: str) -> dict[str, object]:
        login = pulsar.AuthenticationToken(credential)
        return {"tls_trust_certs_file_path": ca, "authentication": login, "operation_timeout_seconds": 10}

    with client(service, **of(token("ann"))) as ann:
        began = time.monotonic()
        consumer = ann.subscribe(TOPIC, fresh("s"), initial_position=pulsar.InitialPosition.Earliest)
        producer = ann.create_producer(TOPIC, batching_enabled=False)
        sent = send_all(producer, [b"%d" % number for number in range(MESSAGES)])
        got = receive(consumer, most=MESSAGES)
    assert [one.data for one in got] == [b"%d" % number for number in range(MESSAGES)]
    # A second's worth may come at once.
    assert all(each.ended - sent[0].began >= place / IN - 1 for place, each in enumerate(sent))
    assert all(each.at - began >= place / OUT - 1 for place, each in enumerate(got))
    with (
        client(service, **of(token("ann", b"another key"))) as stranger,
        pytest.raises(pulsar.exceptions.PulsarException),
    ):
        stranger.create_producer(TOPIC)
