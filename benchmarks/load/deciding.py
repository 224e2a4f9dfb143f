"""The decision of a request where it is: what the proxy does between a counted request and its answer."""

import gc
import random
import time
from collections import deque
from typing import Final

from benchmarks.kit.lone_proxy import lone_coordinator
from benchmarks.load.events import POLICIES, SEED, user
from enforcer.laws.mutation.request import Decision, Request
from streaming.contract.errors import WeirError
from weir.proxy_process import YOUNG_OBJECTS

_WARM: Final = 1_000


def decisions_us(count: int, principals: int) -> list[float]:
    """How long each of so many decisions takes, us.

    From a request whose mutations are counted to its decision, its event made but not written; the job's
    admission of it is read right afterwards.

    Args:
        count: decisions.
        principals: that ask, drawn evenly.

    Raises:
        WeirError: one was not decided at once.
    """
    # As in the proxy's loop: what was put off is done later, here by hand; garbage is looked for as there.
    waiting: deque[object] = deque(maxlen=1)
    coordinator = lone_coordinator(POLICIES, waiting.append)
    coordinator.begin()
    coordinator.local_decisions.set_proxies(1)
    coordinator.local_decisions.blind = False
    gc.set_threshold(YOUNG_OBJECTS)
    gc.collect()
    gc.freeze()
    draw, clock, took = random.Random(SEED), time.perf_counter_ns, []
    for number in range(-_WARM, count):
        name = user(draw.randrange(principals))
        request = Request(
            user=name, client_id="app", api="CreateTopics", api_version=7, strict=True,
            items={f"topic-{number}": 1},
        )  # fmt: skip
        quota = coordinator.quota(name, "app")
        if quota is None:
            raise WeirError(f"no quota for {name}")
        begun = clock()
        coordinator.decide(request, quota, _ignore, _ignore)
        spent = clock() - begun
        coordinator.outgoing.catch_up()
        if request.decision is None:
            raise WeirError("a request was not decided at once")
        if number >= 0:
            took.append(spent / 1_000)
        coordinator.local_decisions.stated(request.decision)
    return took


def _ignore(_told: bool | Decision | None) -> None:
    """Nobody waits."""
