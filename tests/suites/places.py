"""Where suites run: a cluster of their own, and a proxy before it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from cluster_kit import LOOPBACK, address
from proxy_kit import Decider, PolicyWriter, ProxyThread, until
from suite import PASSWORD, USER, Access
from tls_kit import Authority

from enforcer.core.security.tls import UpstreamTlsSettings
from enforcer.core.settings import Alter, AutoCreation, ProxySettings
from enforcer.host.server import ProxyConfig
from streaming.contract.topics import Cluster, Topics
from weir.stack.kafka import LocalKafka, Sasl
from weir.stack.topics import ensure_topics

PROPERTIES = {
    # What the suites' own brokers are set to.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{USER}",
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
    STRAIGHT_TLS = "straight, TLS and SCRAM"
    PROXY_TLS = "proxy, TLS and SCRAM"

    @property
    def straight(self) -> bool:
        """Without a proxy."""
        return self in (Way.STRAIGHT, Way.STRAIGHT_TLS)

    @property
    def tls(self) -> bool:
        """With TLS and logins, before the proxy and behind it."""
        return self in (Way.STRAIGHT_TLS, Way.PROXY_TLS)


WAYS = {"plain": (Way.STRAIGHT, Way.PROXY, Way.QUOTA), "tls": (Way.STRAIGHT_TLS, Way.PROXY_TLS)}
"""What is compared; the first is without a proxy."""


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster, and how to reach it.

    Attributes:
        straight: the brokers themselves.
        through: the proxy; the same as `straight` where there is none.
    """

    straight: Access
    through: Access


@contextmanager
def place(way: Way, folder: Path, brokers: int) -> Iterator[Place]:
    """A new cluster, and a proxy before it if the way wants one.

    Args:
        way: how it is reached.
        folder: for the cluster's data.
        brokers: how many.
    """
    authority = Authority(folder / "tls") if way.tls else None
    properties = PROPERTIES | (authority.listener(LOOPBACK) if authority else {})
    sasl = Sasl(scram={USER: PASSWORD}) if authority else None
    with LocalKafka(folder, brokers=brokers, properties=properties, sasl=sasl) as kafka:
        straight = Access(kafka.sasl_bootstrap, authority.ca) if authority else Access(kafka.bootstrap)
        if way.straight:
            yield Place(straight, straight)
            return
        topics = Topics()
        ensure_topics(Cluster(kafka.bootstrap, topics))
        with Decider(kafka.bootstrap, topics):
            if way is Way.QUOTA:
                # More than any suite asks for: what is tried is the way through the law, not being refused.
                value = {"controller_mutation_rate": 10_000, "controller_mutation_burst": 1_000_000}
                PolicyWriter(kafka.bootstrap, topics).put("quotas[user=<default>]", value)
            tls: dict[str, Any] = {}
            if authority:
                tls = {"tls": authority.door(), "upstream_tls": UpstreamTlsSettings(ca=authority.ca)}
            # By default clients change neither brokers nor users, and with a quota create no topics just by
            # asking for them; suites do all of that.
            settings = ProxySettings(
                id="suites", alter_client_quotas=Alter.ALLOW, alter_cluster=Alter.ALLOW,
                auto_topic_creation=AutoCreation.PASS, **tls,
            )  # fmt: skip
            config = ProxyConfig(
                kafka=tuple(address(one) for one in straight.bootstrap.split(",")), listen=(LOOPBACK, 0),
                connection={"bootstrap.servers": kafka.bootstrap}, settings=settings,
            )  # fmt: skip
            with ProxyThread(config) as proxy:
                until(proxy.proxy.enforcement.ready.is_set, what="a decided probe")
                yield Place(straight, Access(proxy.bootstrap, straight.ca))
