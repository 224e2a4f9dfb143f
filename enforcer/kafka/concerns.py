"""All that the Kafka proxy looks after: a new kind of limit is a room beside these, and a line here."""

from collections.abc import Callable

from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.kafka.backlog.part import BlocksLimit
from enforcer.kafka.backlog.partition_blocks import PartitionBlocks
from enforcer.kafka.dispatch.context import FetchContext
from enforcer.kafka.dispatch.part import DispatchLimit
from enforcer.kafka.guard.guard import Guard
from enforcer.kafka.login.part import Identify, LoginConcern
from enforcer.kafka.mutations.part import Mutations
from enforcer.kafka.part import Concern
from enforcer.kafka.shares.frame_meter import FrameMeter
from enforcer.kafka.shares.part import SharesLimit
from enforcer.kafka.slots.part import Slots


def concerns_of(
    settings: ProxySettings,
    metrics: Metrics,
    now_ms: Callable[[], float],
    identify: Identify,
    *,
    guard: Guard,
    blocks: PartitionBlocks,
    mutations: Mutations,
    dispatch: FetchContext,
    frames: FrameMeter,
) -> tuple[Concern, ...]:
    """The concerns of a proxy, in the order in which their parts take a connection's requests."""
    return (
        guard,
        LoginConcern(settings, metrics, now_ms, identify),
        BlocksLimit(blocks, settings, now_ms),
        Slots(),
        mutations,
        # A Fetch is cut before it is charged.
        DispatchLimit(dispatch),
        SharesLimit(frames, metrics),
    )
