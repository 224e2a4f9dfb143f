"""What the log of actions does when its producer breaks."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from streaming.collect.backlog import action_log
from streaming.contract.backlog.actions import BEGUN, BacklogAction
from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.kafka_io.writer import connected

ACTION = BacklogAction(
    id="d/size/s", ts=1, topic="t", quota_type="size", policy="p", limit=1, actor="a", step=BEGUN
)


def test_where_no_client_can_be_made_the_next_start_may_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks after backlogs tries again after a WeirError, and after nothing else."""

    def connect(*_: object) -> Producer:
        raise KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE))

    monkeypatch.setattr(action_log, "connected", connect)
    with pytest.raises(WeirError, match=r"cannot write to weir\.decisions on x"):
        action_log.ActionLog(Cluster("x"), 5.0)


@pytest.mark.parametrize("refusals", [0, 1])
def test_a_producer_that_the_library_gives_up_is_replaced(
    refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits hears that it is not written, and the next action is: else each would wait for ever.

    So too where for a moment no thread is left for another one.
    """
    made, refused = list[Producer](), [KafkaError(KafkaError._CRIT_SYS_RESOURCE)] * refusals

    def connect(client: Mapping[str, Any], own: Mapping[str, Any]) -> Producer:
        if made and refused:
            raise KafkaException(refused.pop())
        # For a broker without idempotence, which the library plays itself, it is of no use.
        old = {} if made else {"api.version.request": False, "broker.version.fallback": "0.9.0"}
        played = {"test.mock.num.brokers": 1, "allow.auto.create.topics": True, "log_level": 0}
        made.append(connected(client, {**own, **old, **played}))
        return made[-1]

    monkeypatch.setattr(action_log, "connected", connect)

    async def test() -> None:
        log = action_log.ActionLog(Cluster("x"), 5.0)
        with pytest.raises(WeirError, match="not written"):
            await log.write(ACTION)
        # The next look is a tenth of a second away.
        await asyncio.sleep(float(refusals))
        await log.write(ACTION)
        log.close()

    asyncio.run(asyncio.wait_for(test(), 15.0))
    assert len(made) == 2
