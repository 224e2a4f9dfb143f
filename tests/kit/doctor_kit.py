"""An installation that `weir doctor` looks at, whose cluster has answered already."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from enforcer.control.settings import AdminSettings
from enforcer.core.settings import ProxySettings
from enforcer.http.settings import HttpSettings
from enforcer.pulsar.settings import PulsarSettings
from streaming.contract.topics import Cluster, Topics
from weir.doctor.findings import Finding
from weir.doctor.patient import Door, Patient, client, metadata

TOPICS = Topics()
NOWHERE = ("127.0.0.1", 1)


def brokers(count: int = 1, replicas: int = 1, leader: int = 1, topics: Topics = TOPICS) -> Any:
    """As librdkafka tells of a cluster."""
    part = SimpleNamespace(leader=leader, replicas=list(range(replicas)))
    return SimpleNamespace(
        brokers={n: SimpleNamespace(host="127.0.0.1", port=9000 + n) for n in range(1, count + 1)},
        topics={name: SimpleNamespace(partitions={0: part}) for name in topics.all()},
    )


def patient_of(
    answers: dict[Callable[..., Any], Any] | None = None,
    *,
    doors: dict[str, Door] | None = None,
    proxy: dict[str, Any] | None = None,
    admin: dict[str, Any] | None = None,
    http: dict[str, Any] | None = None,
    client_of: dict[str, str] | None = None,
    logins: dict[str, dict[str, str]] | None = None,
    bootstrap: str = "127.0.0.1:9092",
    settings_file: str | None = None,
) -> Patient:
    """Its settings, and what is known of its cluster; nobody is asked for more."""
    nobody = Door(section="proxy", address=NOWHERE, given=False)
    return Patient(
        cluster=Cluster(bootstrap=bootstrap, topics=TOPICS, client=client_of or {}),
        doors=doors or {"proxy": nobody}, proxy=ProxySettings(**(proxy or {})), pulsar=PulsarSettings(),
        admin=AdminSettings(**(admin or {})), http=HttpSettings(**(http or {})), logins=logins or {},
        settings_file=settings_file, answers={metadata: brokers(), client: None, **(answers or {})},
    )  # fmt: skip


def told(found: Iterator[Finding]) -> list[tuple[str, str]]:
    """Status and what was seen, of each."""
    return [(str(each.status), each.what) for each in found]
