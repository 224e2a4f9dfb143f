"""Quotas that a Kafka cluster already has, read with DescribeClientQuotas and turned into policies.

So `kafka-configs --alter --add-config controller_mutation_rate=5` against the cluster is enough to set a
limit. An entry that somebody wrote into Weir's own policies for the same entity wins (docs/contract.md 2).
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from kafka.errors import KafkaError, for_code
from kafka.protocol.admin.client_quotas import DescribeClientQuotasRequest

from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.fields import INT64_MAX
from streaming.contract.topics import Cluster
from streaming.kafka_io.admin_client import AdminClient
from streaming.policy.files import check_entry
from streaming.policy.policy_set import Entity, entity_path

ORIGIN = "kafka"
# The quotas of a policy that Kafka knows too; request_percentage has no law here.
TAKEN_OVER = ("controller_mutation_rate", "producer_byte_rate", "consumer_byte_rate")

logger = logging.getLogger(__name__)


class QuotaReader:
    """Asks one cluster for its client quotas; connects when first used and again after a failure.

    Args:
        cluster: that is asked.
        timeout_ms: limit of connecting and of one request.
    """

    def __init__(self, cluster: Cluster, timeout_ms: int) -> None:
        self._cluster, self._timeout_ms = cluster, timeout_ms
        self._admin: AdminClient | None = None
        self._refused: set[str] = set()

    def read(self) -> dict[str, dict[str, float]]:
        """The cluster's quotas as policy entries, path -> value.

        Raises:
            WeirError: the cluster does not answer within the limit, or refuses.
        """
        try:
            if self._admin is None:
                self._admin = AdminClient(cluster=self._cluster, timeout_ms=self._timeout_ms)
            # It has this API's messages but no method. No component, not strictly: all entities.
            manager, request = self._admin._manager, DescribeClientQuotasRequest(components=[], strict=False)
            answer = manager.run(manager.send, request)
        except (KafkaError, OSError) as failure:
            # Whatever state the connection is in, the next read starts from a fresh one.
            self.close()
            raise WeirError(f"the cluster's quotas could not be read: {failure}") from failure
        if answer.error_code:
            raise WeirError(
                f"the cluster refuses to tell its quotas: {for_code(answer.error_code).__name__}"
                f" {answer.error_message or ''}".rstrip()
            )
        entries, refused = quota_entries(
            ({part.entity_type: part.entity_name for part in entry.entity}, entry.values)
            for entry in answer.entries or ()
        )
        # Said once, not every few seconds for as long as the quota stands.
        for reason in sorted(set(refused) - self._refused):
            logger.warning("a quota of the cluster is left out: %s", reason)
        self._refused = set(refused)
        return entries

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None


def quota_entries(
    quotas: Iterable[tuple[Entity, Sequence[Any]]],
) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Turn (entity type -> name or None for the default, its (key, value) pairs) into policy entries.

    Entities other than users and client-ids (ip) and quotas without a law here are left out.

    Returns:
        Entries, path -> value, and the reasons why others were refused: what a policy file could not hold.
    """
    entries: dict[str, dict[str, float]] = {}
    refused: list[str] = []
    for entity, values in quotas:
        rates = {pair.key: _number(pair.value) for pair in values if pair.key in TAKEN_OVER}
        if not rates or not set(entity) <= {"user", "client-id"}:
            continue
        path = entity_path(entity)
        try:
            check_entry(path, rates)
        except BadEvent as reason:
            refused.append(str(reason))
            continue
        entries[path] = rates
    return entries, refused


def _number(value: float) -> float:
    """Kafka tells every quota as a double; byte rates are whole numbers in policies, of 63 bits at most."""
    return min(int(value), INT64_MAX) if value.is_integer() else value
