"""What `weir doctor` looks at: a cluster and the settings of the parts, each asked once for all checks."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from enforcer.control.settings import AdminSettings
from enforcer.core.settings import ProxySettings
from enforcer.http.settings import HttpSettings
from enforcer.pulsar.settings import PulsarSettings
from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.kafka_io.reader import NO_LOG, reason_of
from weir.options import named_in

LIMIT_S: Final = 5.0
"""Of one question to the cluster."""
BROKERS_MAX: Final = 50
"""Brokers that are looked at one by one; of a larger cluster the first ones."""

T = TypeVar("T")
Address = tuple[str, int]
BrokerSettings = Mapping[int, Mapping[str, str | None]]
"""By broker and name; None: it is a secret."""


class Unreached(WeirError):
    """The cluster does not answer at all.

    Attributes:
        brief: why, in a few words.
        mend: what mends it.
    """

    brief = "the cluster does not answer"
    mend = "start Kafka; --kafka or kafka.bootstrap names it, kafka.client logs in"


class Unusable(Unreached):
    """Nobody was asked: librdkafka does not take the settings; an empty key: it does not say which one."""

    brief = "kafka.client is wrong"

    def __init__(self, why: str, key: str, section: str, file: str) -> None:
        super().__init__(f"{section} is wrong, so nobody was asked: {why}")
        self.mend = " ".join([f"mend {section}", *([key] if key else []), f"in {file}"])


class Unanswered(WeirError):
    """The cluster did not answer a question, or refused to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where a part listens.

    Attributes:
        section: of the settings that are for it.
        address: to listen on.
        given: it was said on the command line, so somebody must be there.
    """

    section: str
    address: Address
    given: bool


@dataclass(frozen=True, kw_only=True)
class Patient:
    """All that checks ask of.

    Attributes:
        cluster: where Weir's topics are, and with which login it is asked.
        doors: by name, where to look for listening parts.
        proxy, pulsar, admin, http: the sections of the settings.
        logins: by name, properties of those parts that have connections of their own (kafka.clients).
        settings_file: where they stand; None: all is at its default.
        answers: what `once` was told: a value, or why there is none.
    """

    cluster: Cluster
    doors: Mapping[str, Door]
    proxy: ProxySettings
    pulsar: PulsarSettings
    admin: AdminSettings
    http: HttpSettings
    logins: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    settings_file: str | None = None
    answers: dict[Callable[..., Any], Any] = field(default_factory=dict)

    def once(self, ask: Callable[["Patient"], T]) -> T:
        """What a question leads to; it is asked the first time, also where there is no answer.

        Raises:
            WeirError: as `ask`.
        """
        if ask not in self.answers:
            try:
                self.answers[ask] = ask(self)
            except WeirError as failure:
                self.answers[ask] = failure
        said = self.answers[ask]
        if isinstance(said, WeirError):
            raise said
        return said  # type: ignore[no-any-return]  # it is ask's


def client(patient: Patient) -> AdminClient:
    """Asks the cluster, with the login of the settings; raises Unusable if they are wrong."""
    return client_of(patient, patient.cluster.client, "kafka.client")


def client_of(patient: Patient, own: Mapping[str, Any], section: str) -> AdminClient:
    """Asks the cluster with these properties, of that section; raises Unusable if they are wrong."""
    properties: dict[str, Any] = {**own, "bootstrap.servers": patient.cluster.bootstrap}
    try:
        return AdminClient(properties, logger=NO_LOG)
    except KafkaException as failure:
        why = reason_of(failure)
        file = patient.settings_file or "the settings"
        raise Unusable(why, named_in(why, own), section, file) from failure


def metadata(patient: Patient) -> Any:
    """Brokers and topics, as librdkafka has them; raises Unreached."""
    try:
        return patient.once(client).list_topics(timeout=LIMIT_S)
    except KafkaException as failure:
        raise Unreached(f"no answer from {patient.cluster.bootstrap}: {reason_of(failure)}") from failure


def broker_settings(patient: Patient) -> BrokerSettings:
    """Settings of the brokers; raises Unreached or Unanswered."""
    numbers = sorted(patient.once(metadata).brokers)[:BROKERS_MAX]
    admin = patient.once(client)
    resources = [ConfigResource(ResourceType.BROKER, str(number)) for number in numbers]
    # librdkafka takes one broker a call; all are asked before any answer is waited for.
    asked = [admin.describe_configs([one], request_timeout=LIMIT_S)[one] for one in resources]
    return {
        int(one.name): {name: entry.value for name, entry in taken(future).items()}
        for one, future in zip(resources, asked, strict=True)
    }


def taken(future: "Future[T]") -> T:
    """What a question of the admin client leads to, which has a limit of its own; raises Unanswered."""
    try:
        return future.result()
    except KafkaException as failure:
        raise Unanswered(f"the cluster does not tell: {reason_of(failure)}") from failure
