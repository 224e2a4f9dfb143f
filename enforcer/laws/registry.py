"""The laws at an enforcer: adding one is adding its folder, and its line to LAWS.

In that order they are made, get what was read, look and stop: `Groups` before whose limits are its accounts.
"""

from typing import Final

from enforcer.core.law import EnforcerLaw
from enforcer.laws.backlog.blocks import Blocks
from enforcer.laws.concurrency.limits import ConcurrencyLimits
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.mutation.law import MutationQuotas
from enforcer.laws.shares.groups import Groups

LAWS: Final[list[type[EnforcerLaw]]] = [MutationQuotas, Groups, Dispatch, ConcurrencyLimits, Blocks]
