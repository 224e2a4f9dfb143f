"""A collector that was taken over stands by while the other one is at work: else they would take turns."""

import asyncio
import logging
import time
from typing import Final

from kafka.errors import KafkaError, TransactionalIdNotFoundError

from streaming.contract.errors import TakenOver, WeirError
from streaming.contract.printable import printable
from streaming.contract.topics import Cluster
from streaming.kafka_io.admin_client import AdminClient

logger = logging.getLogger("weir.collect")

QUIET_S: Final = 180.0
"""The least time of silence that is taken for the other one's end."""
_INTERVALS: Final = 3
_LOOK_S: Final = 10.0
_LIMIT_MS: Final = 10_000


async def stand_by(cluster: Cluster, taken: TakenOver, interval_s: float) -> None:
    """Return once whoever has taken over has written nothing for so long.

    Args:
        cluster: where it writes.
        taken: what was told of it.
        interval_s: between two of its reports; three of them are waited for, and three minutes at least.
    """
    quiet_s = max(QUIET_S, _INTERVALS * interval_s)
    logger.warning("%s until that one has been silent for %.0f s", printable(str(taken)), quiet_s)
    seen, since_s = None, _now_s()
    while _now_s() - since_s < quiet_s:
        await asyncio.sleep(_LOOK_S)
        try:
            found = await asyncio.to_thread(last_begun_ms, cluster, taken.lease)
        except WeirError:
            # Where we cannot ask, that one need not be silent.
            since_s = _now_s()
            continue
        if found != seen:
            seen, since_s = found, _now_s()
    logger.warning("the other collector is silent; this one takes over as %s", taken.lease)


def last_begun_ms(cluster: Cluster, lease: str) -> int:
    """When the newest transaction of a transactional id began, by its broker; -1: there is none.

    Raises:
        WeirError: Kafka does not tell.
    """
    try:
        admin = AdminClient(cluster=cluster, timeout_ms=_LIMIT_MS)
        try:
            return int(admin.describe_transactions([lease])[lease].transaction_start_time_ms)
        finally:
            admin.close()
    except TransactionalIdNotFoundError:
        return -1
    except (KafkaError, OSError, ValueError) as error:
        raise WeirError(f"{cluster.bootstrap} does not tell who writes as {lease}: {error}") from error


def _now_s() -> float:
    return time.monotonic()
