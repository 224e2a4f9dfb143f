"""kafka-python's admin client, made from librdkafka's properties."""

from typing import Any, Final

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from streaming.contract.topics import Cluster

# librdkafka's names for the settings of a connection -> kafka-python's.
_SAME_SETTING: Final = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}


class AdminClient(KafkaAdminClient):  # type: ignore[misc]  # the library's class is untyped
    """One that leaves nothing behind when it cannot connect.

    Args:
        cluster: properties of its `client` that have no counterpart are left out.
        timeout_ms: limit of connecting and of one request.
        more: options of the library.
    """

    def __init__(self, *, cluster: Cluster, timeout_ms: int, **more: Any) -> None:
        known = cluster.client.items()
        try:
            super().__init__(
                bootstrap_servers=cluster.bootstrap.split(","),
                client_id="weir-collect",
                request_timeout_ms=timeout_ms,
                bootstrap_timeout_ms=timeout_ms,
                **{_SAME_SETTING[name]: value for name, value in known if name in _SAME_SETTING},
                **more,
            )
        except KafkaError:
            # A constructor that fails leaves its thread behind, which would go on trying for ever.
            self._closed = False
            self.close()
            raise
