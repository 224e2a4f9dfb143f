"""What a connection keeps in memory."""

import asyncio
import sys
from collections.abc import Sized

from enforcer.host.dial import Upstream
from enforcer.host.secured import kept_by
from enforcer.kafka.chain import Chain
from enforcer.kafka.pipeline.requests import Requests
from enforcer.kafka.pipeline.responses import Responses


def kept_bytes(
    requests: Requests,
    responses: Responses,
    incoming: Sized,
    chain: Chain,
    transport: asyncio.Transport | None,
    upstream: Upstream | None,
) -> int:
    """All that has come on both sides and has not left, bytes."""
    held = sys.getsizeof(requests.data) + sys.getsizeof(responses.data) + responses.kept_bytes
    held += len(incoming) + chain.held_bytes
    if transport is not None:
        held += kept_by(transport)
    return held if upstream is None else held + upstream.held_bytes
