"""The laws: pure functions of policy, state and events. Adding one is adding its lines here."""

from typing import Final

from streaming.contract.broker_events import Backlog, Latency
from streaming.contract.events import Refund, Request
from streaming.contract.usage_events import DispatchUsage, GroupUsage, Tick
from streaming.laws.backlog.table import BacklogTable
from streaming.laws.concurrency.table import ConcurrencyTable
from streaming.laws.dispatch.table import DispatchTable
from streaming.laws.law import LawState
from streaming.laws.mutation.table import MutationTable
from streaming.laws.shares.table import SharesTable

LAWS: Final[dict[str, type[LawState]]] = {
    "mutation": MutationTable,
    "shares": SharesTable,
    "dispatch": DispatchTable,
    "concurrency": ConcurrencyTable,
    "backlog": BacklogTable,
}
LAW_OF_EVENT: Final[dict[type, str]] = {
    Request: "mutation",
    Refund: "mutation",
    GroupUsage: "shares",
    Tick: "shares",
    DispatchUsage: "dispatch",
    Latency: "concurrency",
    Backlog: "backlog",
}
"""Which law decides an event. A policy goes to all laws; a tick closes the rounds of shares and, for the
other laws whose decisions stand, only says that time has passed."""
STANDING_LAWS: Final = ("dispatch", "concurrency", "backlog")
"""Laws whose decisions hold for a life time and are kept to be repeated (contract section 1). Shares are
repeated too, but the law's own state says what stands."""
TICKED_LAWS: Final = (LAW_OF_EVENT[Tick], *STANDING_LAWS)
"""Laws to whose shards a tick goes."""
