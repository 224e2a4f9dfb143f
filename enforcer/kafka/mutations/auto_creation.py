"""Topics that a Metadata request would create: the broker would charge them and tell nobody."""

from collections.abc import Callable
from typing import Final

from enforcer.core.coordinator import QuotaCoordinator
from enforcer.core.settings import AutoCreation
from enforcer.kafka.protocol.frames import METADATA, RequestHeader
from enforcer.kafka.protocol.messages import forbid_auto_creation, metadata_answer_as

_FLAG_FROM: Final = 4
Rewrite = Callable[[int, int, bytes], bytes]


def forbids_creation(coordinator: QuotaCoordinator, user: str, client_id: str) -> bool:
    """Whether a client's Metadata requests must not create topics: that would slip past its quota."""
    if coordinator.settings.auto_topic_creation is not AutoCreation.FORBID:
        return False
    return coordinator.enforces(user, client_id)


def without_creation(
    frame: bytes, header: RequestHeader, rewrite: Rewrite
) -> tuple[bytes, Callable[[bytes], bytes] | None]:
    """A Metadata request that creates nothing.

    Args:
        frame: the request.
        header: its header.
        rewrite: puts our addresses into an answer.

    Returns:
        The request; what turns its answer back where an old version had to become the first with the flag.
    """
    frame, changed = forbid_auto_creation(frame, header)
    if not changed or header.api_version >= _FLAG_FROM:
        return frame, None

    def turn_back(response: bytes) -> bytes:
        return metadata_answer_as(rewrite(METADATA, _FLAG_FROM, response), header.api_version)

    return frame, turn_back
