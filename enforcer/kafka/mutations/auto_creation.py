"""Topics that a Metadata request would create: the broker would charge them and tell nobody."""

import logging
from collections.abc import Callable
from typing import Final

from cachetools import TTLCache

from enforcer.core.settings import AutoCreation
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.wire.kafka.codec import asked
from enforcer.wire.kafka.frames import METADATA, RequestHeader
from enforcer.wire.kafka.messages import forbid_auto_creation, metadata_answer_as, unknown_topics

FLAG_FROM: Final = 4
"""The first version of Metadata that may ask without creating; older requests are sent as this one."""
_TOPICS: Final = asked(METADATA, "Topics:count")
_NOTED_MAX_BYTES: Final = 262_144
"""Larger answers are not gone through for topics that are not there: that would hold up other traffic."""
_LOG_AGAIN_MS: Final = 3_600_000.0

logger = logging.getLogger(__name__)


def forbids_creation(coordinator: QuotaCoordinator, user: str, client_id: str) -> bool:
    """Whether a client's Metadata requests must not create topics: that would slip past its quota."""
    if coordinator.settings.auto_topic_creation is not AutoCreation.FORBID:
        return False
    return coordinator.enforces(user, client_id)


class AutoCreations:
    """What clients would have created by asking for it, for all connections of a proxy.

    A client waits for such a topic for as long as it likes, so this is where its operator learns why.

    Args:
        coordinator: knows whose quota it is, counts, and tells the time.
    """

    def __init__(self, coordinator: QuotaCoordinator) -> None:
        self._coordinator = coordinator
        subjects_max = coordinator.settings.subjects_max
        self._logged: TTLCache[str, None] = TTLCache(subjects_max, _LOG_AGAIN_MS, coordinator.clock.steady_ms)

    def keep_from(
        self, frame: bytes, header: RequestHeader, user: str
    ) -> tuple[bytes, Callable[[bytes], bytes] | None]:
        """A Metadata request that creates nothing.

        Args:
            frame: the request.
            header: its header.
            user: Kafka principal.

        Returns:
            The request, in version FLAG_FROM if it was older; what makes its answer one of the version
            that was asked for. None: it is what it was.

        Raises:
            BadFrame: it cannot be read.
        """
        version = header.api_version
        named = _TOPICS(frame, header) > 0
        frame, changed = forbid_auto_creation(frame, header)
        if not changed or (version >= FLAG_FROM and not named):
            return frame, None
        sent_version = max(version, FLAG_FROM)

        def answer(response: bytes) -> bytes:
            if named and len(response) <= _NOTED_MAX_BYTES:
                self._note(unknown_topics(response, sent_version), user, header.client_id or "")
            return response if version == sent_version else metadata_answer_as(response, version)

        return frame, answer

    def _note(self, names: list[str], user: str, client_id: str) -> None:
        """Count what was not created; say it once an hour for each subject."""
        quota = self._coordinator.quota(user, client_id)
        if not names or quota is None:
            return
        self._coordinator.metrics.forbidden_creations.inc(len(names))
        if quota.subject not in self._logged:
            self._logged[quota.subject] = None
            logger.warning(
                "topic %s is not there and is not created by asking for it, since %s has a mutation quota: "
                "create it, or set proxy.auto_topic_creation: pass", names[0], quota.subject,
            )  # fmt: skip
