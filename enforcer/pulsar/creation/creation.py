"""One request that may create a topic, from its arrival to its answer.

The broker is asked whether the topic is there. If so the request goes on as it came. If not it is put through
the quota: kept while that is a short wait, refused when it is a long one, and settled by what came of it.
"""

import asyncio
from enum import StrEnum
from typing import Any, Final

from enforcer.laws.mutation.mutations import Answer
from enforcer.laws.mutation.request import Request
from enforcer.pulsar.creation.known_topics import Office, Questions
from enforcer.pulsar.creation.request import APIS, CreationRequest, refusal
from enforcer.pulsar.link import Link
from enforcer.wire.pulsar.commands import ServerError, build
from enforcer.wire.pulsar.frames import ERROR, PARTITIONED_METADATA, PARTITIONED_METADATA_RESPONSE

CREATE_QUESTION_MS: Final = 5_000
"""So long a broker may take to say whether a topic exists; two such answers and the wait are within clients'
30 s."""

_ANSWER_LIMIT_S: Final = 60.0
"""Clients have given up by then; what is not answered stays charged."""
_SURE_AFTER_S: Final = 1.0
"""A refused creation is looked at after so long, when any that goes on behind a forged refusal is done."""
KEPT_BYTES: Final = 4_096
"""With more behind it an answer is given though Kafka has not got the event."""
_PATIENCE_S: Final = 0.5
"""Who waits longer for those in front asks for itself whether the topic is there."""
_SHOWN: Final = 300
"""Characters of a topic's name in a message."""
_NUMBERED: Final = "-partition-"
"""What has this in its name may be a partition to brokers: they create none of it, whatever others get."""
_PASSING: Final = frozenset(
    {
        ServerError.UNKNOWN,
        ServerError.METADATA,
        ServerError.PERSISTENCE,
        ServerError.SERVICE_NOT_READY,
        ServerError.TOO_MANY_REQUESTS,
    }
)
"""Errors that say nothing about the topic, and are soon over."""


class TopicState(StrEnum):
    """What is known of a topic."""

    KNOWN = "known"
    """It was there a short while ago."""
    EXISTS = "exists"
    MISSING = "missing"
    PARTITIONED = "partitioned"
    """Its partitions are there. Clients use those: the name itself would be one topic more."""
    OTHER = "other"
    """The question was refused; the request itself may be another matter."""
    UNCLEAR = "unclear"
    """The broker cannot say at present."""


_THERE: Final = (TopicState.KNOWN, TopicState.EXISTS)
_ABSENT: Final = (TopicState.MISSING, TopicState.OTHER)


class Creation:
    """One request.

    Attributes:
        want: it.
        sent: whether it went on to the broker.

    Args:
        link: its connection.
        office: what all share.
        questions: of this connection.
        want: the request.
    """

    def __init__(self, link: Link, office: Office, questions: Questions, want: CreationRequest) -> None:
        self.want = want
        self.sent = False
        self._link = link
        self._office = office
        self._known = office.known
        self._questions = questions
        self._answer: asyncio.Future[int] | None = None
        # The answer, until it is given, and what the broker has said behind it.
        self._kept: list[bytes] = []
        settings = office.settings
        self._until_ms = link.now_ms() + settings.create_wait_ms
        self._question_s = CREATE_QUESTION_MS / 1000

    async def run(self) -> None:
        """Do all of it; what cannot be known in time is refused so that the client tries again."""
        try:
            if self.want.kind == PARTITIONED_METADATA:
                await self._look_up()
            else:
                await self._attach()
        except TimeoutError:
            self._try_again("the broker did not say in time whether it exists")

    @property
    def awaits(self) -> bool:
        """Whether the client's own request is at the broker, and its answer is waited for."""
        return self._answer is not None and not self._answer.done()

    def answered(self, kind: int, frame: bytes) -> bool:
        """The broker answers the client's request; True if the answer is taken, and given later."""
        assert self._answer is not None
        self._answer.set_result(kind)
        if kind != ERROR:
            self._kept = [frame]
        return self.withholds

    @property
    def withholds(self) -> bool:
        """Whether the answer is there and not given yet."""
        return bool(self._kept)

    def keep(self, frame: bytes) -> None:
        """What the broker says of this one goes on behind the answer."""
        self._kept.append(frame)
        if sum(map(len, self._kept)) > KEPT_BYTES:
            self._give_kept()

    def _give_kept(self) -> None:
        kept, self._kept = self._kept, []
        for frame in kept:
            self._link.to_client(frame)

    # A question for partitions ---------------------------------------------------------------------------

    async def _look_up(self) -> None:
        """A PARTITIONED_METADATA is first asked so that it creates nothing: mostly that is all."""
        reply = await self._ask_in_its_name(creating=False)
        if reply.error != ServerError.TOPIC_NOT_FOUND:
            if not reply.response:
                self._known.note(self.want.name, reply.partitions)
                self._count(TopicState.EXISTS)
            self._give(reply)
            return
        async with self._known.turn(self.want.name, self._turn_s()) as others:
            if others or self.want.name in self._known.partitions:
                again = await self._ask_in_its_name(creating=False)
                if again.error != ServerError.TOPIC_NOT_FOUND:
                    self._give(again)
                    return
            self._count(TopicState.MISSING)
            answer, reply = await self._create_partitions()
        if reply is not None:
            if answer is not None:
                await self._office.mutations.acknowledged(answer)
            self._give(reply)

    async def _create_partitions(self) -> tuple[Answer | None, Any]:
        """Ask as the client did. How many partitions come of it the namespace's policy knows: what came of
        the last such question is charged, and corrected by what comes of this one."""
        namespace = "" if self.want.topic is None else self.want.topic.namespace
        if namespace not in self._known.defaults:
            await self._find_out(namespace)
        expected = self._known.defaults.get(namespace, 1)
        answer = None
        if expected:
            answer = await self._decide(expected)
            if answer is None:
                return None, None
        self.sent = True
        try:
            reply = await self._ask_in_its_name(creating=True)
        except (asyncio.CancelledError, TimeoutError):
            if _NUMBERED not in self.want.name:
                self._known.note_unheard(self._link.user, namespace, self.want.name, expected)
            raise
        made = 0 if reply.response else reply.partitions
        if answer is not None:
            self._office.mutations.settle(answer, {self.want.name: made})
        elif made:
            self._office.mutations.charge(self._request(made), {self.want.name: made})
        told = made or reply.error == ServerError.TOPIC_NOT_FOUND
        whole = _NUMBERED not in self.want.name
        if whole and not told and not reply.response:
            told = not await self._is_plain(namespace)
        if whole and told:
            self._learn(namespace, made)
        if made:
            self._known.note(self.want.name, made)
        return answer, reply

    async def _find_out(self, namespace: str) -> None:
        """Ask what came of the last such question of this user whose answer it did not wait for."""
        name, _, _ = self._known.unheard.get((self._link.user, namespace), ("", 0, 0))
        if name:
            reply = await self._questions.ask(name, self._question_s)
            if not reply.response and reply.partitions:
                self._learn(namespace, reply.partitions)

    async def _is_plain(self, namespace: str) -> bool:
        """Whether none came since the topic was made without partitions meanwhile, which says nothing of its
        namespace; looked at only where it would forgive what came of those unheard."""
        if (self._link.user, namespace) not in self._known.unheard:
            return False
        try:
            return bool((await self._ask_in_its_name(creating=False)).error != ServerError.TOPIC_NOT_FOUND)
        except TimeoutError:
            return True

    def _learn(self, namespace: str, made: int) -> None:
        """So many come of a question; what came of those unheard beyond their charge is charged now."""
        self._known.defaults[namespace] = made
        name, questions, paid = self._known.unheard.pop((self._link.user, namespace), ("", 0, 0))
        if (rest := questions * made - paid) > 0:
            self._office.mutations.charge(self._request(rest), {name: rest})

    async def _ask_in_its_name(self, *, creating: bool) -> Any:
        body = self.want.body
        body.metadata_auto_creation_enabled = creating
        return await self._questions.put(body, _ANSWER_LIMIT_S if creating else self._question_s)

    def _give(self, reply: Any) -> None:
        reply.request_id = self.want.request_id
        self._link.to_client(build(PARTITIONED_METADATA_RESPONSE, reply))

    # Producers and consumers -----------------------------------------------------------------------------

    async def _attach(self) -> None:
        """A PRODUCER or SUBSCRIBE creates the topic of its name."""
        in_turn = False
        try:
            async with self._known.turn(self.want.name, _PATIENCE_S):
                in_turn = True
                done = await self._in_turn()
        except TimeoutError:
            if in_turn:
                raise
            # Those in front may read no answers, or wait for their quota; what is there needs no turn.
            found = await self._find()
            if found in _THERE:
                self._goes_on(found)
                return
            async with self._known.turn(self.want.name, self._turn_s()):
                done = await self._in_turn()
        if done is None:
            return
        answer, kind = done
        if kind == ERROR:
            await self._settle_later(answer)
            return
        await self._office.mutations.acknowledged(answer)
        self._give_kept()

    async def _in_turn(self) -> tuple[Answer, int] | None:
        """Have it decided, if it is not there, and let it go on; None: that was all."""
        if self._link.stalled:
            # It would hear no answer, and keep those behind it waiting.
            raise TimeoutError
        found = await self._find()
        if found in _THERE:
            self._goes_on(found)
            return None
        self._count(found)
        if found is TopicState.UNCLEAR:
            self._try_again("the broker cannot say now whether it exists")
            return None
        answer = await self._decide(1)
        if answer is None:
            return None
        kind = await self._send()
        if kind != ERROR:
            self._known.note(self.want.name, 0, paid=True)
            self._office.mutations.settle(answer, {self.want.name: 1})
        return answer, kind

    def _goes_on(self, found: TopicState) -> None:
        self._count(found)
        self.sent = True
        self._link.to_broker(self.want.frame)

    async def _find(self) -> TopicState:
        topic, name = self.want.topic, self.want.name
        if self._known.has(name, topic):
            return TopicState.KNOWN
        if topic is not None and topic.partition >= 0:
            whole = await self._questions.ask(topic.whole, self._question_s)
            if not whole.response:
                self._known.note(topic.whole, whole.partitions)
            if topic.partition < whole.partitions:
                return TopicState.EXISTS
        reply = await self._questions.ask(name, self._question_s)
        if reply.response:
            if reply.error == ServerError.TOPIC_NOT_FOUND:
                return TopicState.MISSING
            return TopicState.UNCLEAR if reply.error in _PASSING else TopicState.OTHER
        if reply.partitions:
            return TopicState.PARTITIONED
        self._known.note(name, 0)
        return TopicState.EXISTS

    async def _send(self) -> int:
        """Let the request go on and wait for the broker's answer; returns its kind."""
        self.sent = True
        self._answer = asyncio.get_running_loop().create_future()
        self._link.to_broker(self.want.frame)
        async with asyncio.timeout(_ANSWER_LIMIT_S):
            return await self._answer

    async def _settle_later(self, answer: Answer) -> None:
        """The broker has refused, or something else has failed that the client gave the same request id."""
        await asyncio.sleep(_SURE_AFTER_S)
        # Tried again at once it may have been made since, and paid for.
        free = self._known.is_paid(self.want.name) or await self._find() in _ABSENT
        self._office.mutations.settle(answer, {} if free else {self.want.name: 1})

    # Both ------------------------------------------------------------------------------------------------

    async def _decide(self, mutations: int) -> Answer | None:
        """Have it decided; None: it is refused, and the client knows."""
        left_ms = max(0.0, self._until_ms - self._link.now_ms())
        answer = await self._office.mutations.decide(self._request(mutations), left_ms)
        if answer.allowed:
            return answer
        self._office.metrics.refused.labels("quota").inc()
        text = f"The topic {self.want.name[:_SHOWN]} is not created. {answer.message}"
        self._link.answer(refusal(self.want, ServerError.NOT_ALLOWED, text))
        return None

    def _request(self, mutations: int) -> Request:
        return Request(
            user=self._link.user,
            client_id="",
            api=APIS[self.want.kind],
            api_version=self._link.protocol_version,
            strict=True,
            items={self.want.name: mutations},
        )

    def _try_again(self, why: str) -> None:
        if self.sent:
            return
        self._office.metrics.refused.labels("unclear").inc()
        text = f"The topic {self.want.name[:_SHOWN]} cannot be looked at: {why}; try again."
        self._link.answer(refusal(self.want, ServerError.SERVICE_NOT_READY, text))

    def _count(self, found: TopicState) -> None:
        self._office.metrics.topics.labels(found.value).inc()

    def _turn_s(self) -> float:
        """As long as whoever has the turn may be kept, and ask."""
        return max(self._question_s, (self._until_ms - self._link.now_ms()) / 1000)
