"""Where suites run: a cluster of their own, and a proxy before it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cluster_kit import LOOPBACK, address
from proxy_kit import Decider, PolicyWriter, ProxyThread, until

from enforcer.core.settings import Alter, AutoCreation, ProxySettings
from enforcer.host.server import ProxyConfig
from streaming.contract.topics import Topics
from weir.stack.kafka import LocalKafka
from weir.stack.topics import ensure_topics

PROPERTIES = {
    # What the suites' own brokers are set to.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "num.partitions": "4",
    "group.min.session.timeout.ms": "100",
    "group.max.session.timeout.ms": "300000",
    "auto.create.topics.enable": "true",
}


class Way(StrEnum):
    """How a suite reaches the cluster."""

    STRAIGHT = "straight"
    PROXY = "proxy"
    QUOTA = "proxy with a quota"


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster, and how to reach it.

    Attributes:
        straight: the brokers themselves.
        through: the proxy; the same as `straight` where there is none.
    """

    straight: str
    through: str


@contextmanager
def place(way: Way, folder: Path, brokers: int) -> Iterator[Place]:
    """A new cluster, and a proxy before it if the way wants one.

    Args:
        way: how it is reached.
        folder: for the cluster's data.
        brokers: how many.
    """
    with LocalKafka(folder, brokers=brokers, properties=PROPERTIES) as kafka:
        if way is Way.STRAIGHT:
            yield Place(kafka.bootstrap, kafka.bootstrap)
            return
        topics = Topics()
        ensure_topics(kafka.bootstrap, topics)
        with Decider(kafka.bootstrap, topics):
            if way is Way.QUOTA:
                # More than any suite asks for: what is tried is the way through the law, not being refused.
                value = {"controller_mutation_rate": 10_000, "controller_mutation_burst": 1_000_000}
                PolicyWriter(kafka.bootstrap, topics).put("quotas[user=<default>]", value)
            # By default clients change neither brokers nor users, and with a quota create no topics just by
            # asking for them; suites do all of that.
            settings = ProxySettings(
                id="suites", alter_client_quotas=Alter.ALLOW, alter_cluster=Alter.ALLOW,
                auto_topic_creation=AutoCreation.PASS,
            )  # fmt: skip
            kafka_addresses = tuple(address(one) for one in kafka.bootstrap.split(","))
            config = ProxyConfig(kafka=kafka_addresses, listen=(LOOPBACK, 0), settings=settings)
            with ProxyThread(config) as proxy:
                assert proxy.proxy is not None
                until(proxy.proxy.ready.is_set, what="a decided probe")
                yield Place(kafka.bootstrap, proxy.bootstrap)
