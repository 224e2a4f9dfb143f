"""Create the topics of an installation with the settings that docs/contract.md 1 rests on."""

import time
from concurrent.futures import Future
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.kafka_io.weir_topics import Fault, TopicsSeen, admin_of, asked_until, look, topic_settings

LIMIT_S = 30.0
CHECK_LIMIT_S = 5.0
_RETRY_S = 0.05


def ensure_topics(cluster: Cluster, *, partitions: int = 1, limit_s: float = LIMIT_S) -> list[str]:
    """Create those of the five topics that are missing; safe to call again and by several at once.

    Where none is missing nothing is asked that needs the operation Create. Policies always get one
    partition: their versions count up in one order.

    Args:
        cluster: where they are to be.
        partitions: of each of the others.
        limit_s: for all of it.

    Returns:
        Names of the topics that were created.

    Raises:
        WeirError: the cluster does not answer, refuses, or has a topic with other settings than ours.
    """
    # The job comes before its broker does, and shall not look for it ever more seldom.
    prompt = {**cluster.properties, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 250}
    connect, topics = partial(admin_of, prompt), cluster.topics
    deadline = time.monotonic() + limit_s
    settings = topic_settings(topics, cluster.topics_kept_ms)

    def known(admin: AdminClient, left_s: float) -> tuple[AdminClient, TopicsSeen]:
        # First, since "timed out waiting for the controller" is no way to say that the address is wrong.
        _listed(cluster, admin, left_s)
        return admin, look(admin, cluster, _left(deadline) / 2)

    admin, seen = asked_until(deadline, connect, known)
    seen.check()
    if unreadable := [each.text for each in seen.faults if each.fault is Fault.UNREADABLE]:
        raise WeirError("\n".join(unreadable))
    missing = {each.topic for each in seen.faults if each.fault is Fault.MISSING}
    wanted = [
        NewTopic(name, num_partitions=1 if name == topics.policies else partitions, config=config)
        for name, config in settings.items()
        if name in missing
    ]
    try:
        created = _created(admin, wanted, _left(deadline) / 2)
    except _Late:
        admin = connect()
        created = _created(admin, wanted, _left(deadline))
    _wait_for_leaders(admin, list(settings), deadline)
    if len(created) < len(wanted):
        # Another one was sooner, or this broker had not heard of it yet; it may have made it otherwise.
        look(admin, cluster, _left(deadline)).check()
    return created


def check_topics(cluster: Cluster, limit_s: float = CHECK_LIMIT_S) -> None:
    """Refuse to start on topics with which decisions would be wrong; those that are missing may yet come.

    Args:
        cluster: where they are; if it does not answer, that is said later, as for one that goes away.
        limit_s: for each of two questions.

    Raises:
        WeirError: what was expected, and the commands that mend it.
    """
    try:
        seen = look(admin_of(cluster.properties), cluster, limit_s)
    except WeirError:
        return
    seen.check()


def cluster_id(cluster: Cluster) -> str:
    """The cluster's own id; raises WeirError if it does not answer."""
    connect = partial(admin_of, cluster.properties)
    return str(asked_until(time.monotonic() + LIMIT_S, connect, partial(_listed, cluster)).cluster_id)


def _listed(cluster: Cluster, admin: AdminClient, left_s: float) -> Any:
    try:
        return admin.list_topics(timeout=left_s)
    except KafkaException as refused:
        raise WeirError(f"{cluster.bootstrap} does not answer: {refused.args[0].str()}") from refused


def _left(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())


def _created(admin: AdminClient, wanted: list[NewTopic], limit_s: float) -> list[str]:
    """Create topics; those that were new. Raises _Late if the cluster does not answer in time."""
    if not wanted:
        return []
    futures = admin.create_topics(wanted, operation_timeout=limit_s, request_timeout=limit_s)
    return [name for name, future in futures.items() if _is_new(name, future)]


class _Late(WeirError):
    """The cluster did not answer in time."""


def _is_new(name: str, future: Future[Any]) -> bool:
    try:
        future.result()
    except KafkaException as refused:
        code = refused.args[0].code()
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        said = f"topic {name} could not be created: {refused.args[0].str()}"
        raise (_Late if code == KafkaError._TIMED_OUT else WeirError)(said) from refused
    return True


def _wait_for_leaders(admin: AdminClient, names: list[str], deadline: float) -> None:
    # CreateTopics answers before every broker knows the leaders; a client that comes now would fail.
    while True:
        try:
            known = admin.list_topics(timeout=_left(deadline)).topics
            why = f"the topics {', '.join(names)} have no leaders yet; giving up"
        except KafkaException as refused:
            known, why = {}, f"the cluster does not answer: {refused.args[0].str()}"
        if all(n in known and all(p.leader >= 0 for p in known[n].partitions.values()) for n in names):
            return
        if time.monotonic() > deadline:
            raise WeirError(why)
        time.sleep(_RETRY_S)
