"""Topic ids and names, as Metadata responses tell them: read in passing."""

from typing import Final

from enforcer.wire.kafka.codec import told
from enforcer.wire.kafka.fields import NO_ID
from enforcer.wire.kafka.frames import METADATA, Frame

_TOPICS: Final = told(METADATA, "Topics(Name:text? TopicId)", rows=1)


def described(frame: Frame, version: int) -> dict[bytes, str]:
    """Topic id -> name, as a Metadata response v10-13 tells them.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    return {topic_id: name for name, topic_id in _TOPICS(frame, version) if name and topic_id != NO_ID}
