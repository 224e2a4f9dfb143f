"""A client outside of all containers that creates topics through the proxy."""

import contextlib
import logging
from typing import Any, Final

from engine import Failed

CREATED, QUOTA_EXCEEDED = 0, 89
_LIMIT_MS: Final = 20_000


def create(proxy: str, name: str, partitions: int) -> int:
    """Create a topic, on a new connection; returns the error code of the answer.

    Raises:
        Failed: nobody answered.
    """
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    # Its own log repeats as errors what is raised.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    admin = None
    try:
        admin = KafkaAdminClient(bootstrap_servers=proxy, client_id="compose", request_timeout_ms=_LIMIT_MS)
        wanted = {name: {"num_partitions": partitions, "replication_factor": 1}}
        answer: dict[str, Any] = admin.create_topics(wanted, raise_errors=False)
        return int(answer["topics"][0]["error_code"])
    except KafkaError as error:
        raise Failed(f"{proxy} does not answer: {error}") from error
    finally:
        if admin is not None:
            with contextlib.suppress(KafkaError):
                admin.close()
