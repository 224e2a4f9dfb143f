"""How a change of policies gets through, whatever becomes of its turns, without a broker."""

import asyncio
import time
from collections.abc import Sequence

import orjson
import pytest

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.kafka_io import policy_turn
from streaming.kafka_io.policy_topic import Author, PolicyLog, Update
from streaming.kafka_io.policy_turn import Behind, OutcomeUnknown, TooSlow, TurnLost, Turns

OPS = Author("admin", "ops", "")
NO_QUOTA = [Update(path="quotas[user=a]", value=None)]
MADE, UNKNOWN, GONE = OutcomeUnknown("made"), OutcomeUnknown("unknown"), WeirError("gone")


class Topic:
    """Somebody has changed it; reads and writes of it fail as they are told to.

    Args:
        reads, writes: what is raised by each; None, and those behind the last: nothing.
    """

    def __init__(self, writes: Sequence[WeirError], reads: Sequence[WeirError | None] = ()) -> None:
        self.log, self.turns = PolicyLog(), 0
        self.limits: list[float | None] = []
        self._writes, self._reads = iter(writes), iter(reads)
        self.log.take(orjson.dumps({"type": "policy", "path": "broker", "value": None}), 1)

    def turn(self, *_: object) -> "Topic":
        """The next turn."""
        self.turns += 1
        return self

    def write(self, lines: Sequence[tuple[str, bytes]], _limit_s: float, within_s: float | None) -> None:
        """What is unknown may have been written."""
        self.limits.append(within_s)
        failure = next(self._writes, None)
        if failure in (None, MADE):
            for _, value in lines:
                self.log.take(value, 1)
        if failure is not None:
            raise failure

    async def read(self, _limit_s: float) -> PolicyLog:
        """As it is now."""
        if (failure := next(self._reads, None)) is not None:
            raise failure
        return self.log


def turns_on(topic: Topic, monkeypatch: pytest.MonkeyPatch, pause_s: float = 0.0) -> Turns:
    """Those of the only writer."""
    monkeypatch.setattr(policy_turn, "Turn", topic.turn)
    monkeypatch.setattr(policy_turn, "pause_s", lambda _lost: pause_s)
    return Turns(Cluster("127.0.0.1:1"), asyncio.to_thread, topic.read)


async def change(turns: Turns) -> None:
    """One that has a minute."""
    await turns.change(lambda _log: NO_QUOTA, OPS, time.monotonic() + 60)


def refuse(_log: PolicyLog) -> list[Update]:
    """What is to be changed is not there."""
    raise WeirError("no")


# As often as Kafka was too slow a change gets more time; another writer's turn is no such time.
@pytest.mark.parametrize(
    ("writes", "limits"),
    [
        ([TooSlow("slow"), TurnLost("lost"), TooSlow("slow")], [1, 2, 2, 4]),
        ([MADE], [1]),
        ([UNKNOWN], [1, 1]),
    ],
)
async def test_a_change_is_made_once(
    writes: list[WeirError], limits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many turns it takes; the last one is kept for the next change, also if one is refused."""
    topic = Topic(writes)
    turns = turns_on(topic, monkeypatch)
    await change(turns)
    with pytest.raises(WeirError, match="no"):
        await turns.change(refuse, OPS, time.monotonic() + 60)
    await change(turns)
    assert (topic.limits, topic.turns, topic.log.records) == ([*limits, 1], len(writes) + 1, 3)


@pytest.mark.parametrize(
    ("writes", "reads", "pause_s", "kind", "said"),
    [
        ([GONE], [], 0, WeirError, "gone"),
        ([TurnLost("lost")], [], 61, TurnLost, "lost"),
        ([UNKNOWN], [], 61, OutcomeUnknown, "unknown"),
        ([UNKNOWN], [None, GONE], 0, OutcomeUnknown, "unknown; then gone"),
        ([UNKNOWN], [None, Behind("behind"), GONE], 0, OutcomeUnknown, "unknown; then gone"),
        ([UNKNOWN, GONE], [], 0, WeirError, "gone"),
    ],
)
async def test_a_change_that_is_given_up_says_whether_it_may_have_been_made(
    writes: list[WeirError], reads: list[WeirError | None], pause_s: float, kind: type[WeirError],
    said: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Within its limit; who comes next takes a turn of their own."""
    topic = Topic(writes, reads)
    turns = turns_on(topic, monkeypatch, pause_s)
    with pytest.raises(WeirError) as told:
        await change(turns)
    assert (told.type, str(told.value)) == (kind, said)
    before = topic.turns
    await change(turns)
    assert topic.turns == before + 1
