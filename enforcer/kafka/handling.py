"""What becomes of each request that a rule reads: which way it goes, and who answers it."""

from collections.abc import Callable
from math import ceil
from typing import Final

from enforcer.core.pacing import Pacer
from enforcer.kafka.backlog.producing import NO_ACKS, Producing, both
from enforcer.kafka.concurrency.flow import Counting
from enforcer.kafka.dispatch.dispatched import Dispatched
from enforcer.kafka.link import GatedLink, Hub, Line, Slot
from enforcer.kafka.metered import Metered
from enforcer.kafka.mutations.admission import Admission, Passing, Strict
from enforcer.kafka.mutations.at_once import AtOnce, PermissiveAtOnce
from enforcer.kafka.mutations.auto_creation import forbids_creation
from enforcer.kafka.mutations.permissive import Permissive
from enforcer.kafka.mutations.refusal import Refused
from enforcer.kafka.requests import ASKED_KEYS, METERED_KEYS, Requests
from enforcer.kafka.responses import SASL_KEYS
from enforcer.laws.mutation.gate import Action, MutationQuota, Verdict
from enforcer.laws.mutation.open_questions import line_of
from enforcer.wire.kafka.answers import POLICY_VIOLATION, refuse_all
from enforcer.wire.kafka.frames import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    RequestHeader,
    client_id_field,
    client_name,
    parse_header,
    produce_acks,
)
from enforcer.wire.kafka.messages import api_versions_refusal, unsupported
from enforcer.wire.kafka.mutations import (
    MUTATION_KEYS,
    MutationRequest,
    TooManyItems,
    decode_request,
)
from enforcer.wire.kafka.sasl import SaslObserver, Unreadable

_ITEM_BYTES: Final = 500
"""What an item of a request for mutations takes beside its frame, about."""
_BLOCKED_KEYS: Final = frozenset({PRODUCE})
"""APIs whose requests are read while some topic takes nothing of its producers."""
_ASKS: Final = frozenset({Action.ASK, Action.DECIDE})
"""Where the job may be asked."""
_STRICT_WAYS: Final[dict[Action, type[Admission]]] = {
    Action.ASK: Strict,
    Action.DECIDE: AtOnce,
    Action.REFUSE: Refused,
}


class Handler:
    """The requests of one connection, one at a time.

    Args:
        hub: what all connections share.
        line: the connection.
        observer: knows whose it is.
        pacer: holds it back.
        counting: its requests in flight.
    """

    def __init__(
        self, hub: Hub, line: Line, observer: SaslObserver, pacer: Pacer, counting: Counting
    ) -> None:
        self._hub = hub
        self._line = line
        self._observer = observer
        self._pacer = pacer
        self._coordinator = hub.coordinator
        self._meter = hub.meter
        self._metered = Metered(hub, line, pacer)
        self._desk = hub.fetch_desk
        # Made with the first request that needs it.
        self._dispatched: Dispatched | None = None
        self._blocks = hub.block_desk.blocks
        self._producing: Producing | None = None
        self._guard = hub.guard
        self._heard = True
        self._gate: Admission | None = None
        self._gate_slot: Slot | None = None
        self._kept: dict[Slot, int] = {}
        self.held_bytes = 0
        """Size of the requests for mutations that were read and not answered."""
        self._ungated: dict[Slot, Passing] = {}
        self._counting = counting

    @property
    def free(self) -> bool:
        """Whether the next request may be handled: none waits for its decision, nor too much for answers."""
        return (
            self._gate is None
            and not self._observer.waiting
            and self.held_bytes <= self._hub.settings.held_bytes_max
        )

    @property
    def principal(self) -> str:
        """Whose the connection is."""
        return self._observer.principal

    @property
    def unadmitted(self) -> Slot | None:
        """The place of a request that was not admitted yet; None if none waits for that."""
        return self._gate_slot if self._gate is not None and not self._gate.admitted else None

    @property
    def waits_for_decision(self) -> bool:
        """Whether a request under way lacks its decision, and nothing that the broker could add."""
        return self._gate is not None and self._gate.waits_for_decision

    @property
    def asked(self) -> frozenset[int]:
        """APIs that `must_read` is to be asked about now."""
        asked = METERED_KEYS if self._meter.active else ASKED_KEYS
        if self._blocked:
            asked |= _BLOCKED_KEYS
        return asked | self._desk.keys if self._desk.dispatch.active else asked

    @property
    def _blocked(self) -> bool:
        """Whether Produce requests are judged: some topic is blocked, or was when one was held."""
        return self._blocks.active or (self._producing is not None and self._producing.holds)

    def must_read(self, key: int, client_id: bytes) -> bool:
        """Whether a rule needs the body of a request of this client (requests.MustRead)."""
        user, name = self._observer.principal, client_name(client_id)
        return (
            (key == PRODUCE and self._blocked)
            or (self._desk.dispatch.active and key in self._desk.keys)
            or (self._meter.active and self._hub.frame_meter.reads(key, user, name))
            or (key == METADATA and forbids_creation(self._coordinator, user, name))
        )

    def in_force(self) -> object:
        """The policies of now, by which `must_read` goes while traffic is not metered."""
        return self._coordinator.policies.now

    def handle(self, frame: bytes) -> None:
        """Handle a request.

        Raises:
            BadFrame: it cannot be read.
        """
        probing = self._pacer.pass_one()
        header = parse_header(frame)
        if unsupported(header):
            self._line.end("unsupported_version")
            return
        judged = self._guard.judge(frame, header, self._observer.principal)
        if judged is not None and judged.frame is None:
            if judged.answer is not None:
                self._answer(header, judged.answer)
            return
        left, finish = (frame, None) if judged is None else (judged.frame, judged.finish)
        self._line.amend(finish)
        ends = False
        producing = self._producing
        if header.api_key == PRODUCE and self._blocked:
            if producing is None:
                producing = self._producing = Producing(self._hub, self._line, self._pacer)
            assert left is not None
            left, of_blocks, ends = producing.judge(left, header, self._observer.principal, frame)
            self._line.amend(both(finish, of_blocks))
        if left is not None:
            self._dispatch(left, header, probing, frame)
        self._line.amend(None)
        if ends:
            # As a broker does where nobody can be told of an error.
            self._line.end(NO_ACKS)

    def look_behind(self, requests: Requests, *, over: bool) -> None:
        """What stands behind a request that waits, and whether that is all that will ever come."""
        if self._producing is not None:
            self._producing.look_behind(requests, over=over)

    def _dispatch(self, frame: bytes, header: RequestHeader, probing: bool, whole: bytes) -> None:
        """Send a request, or what is left of the whole one, on the way of its API."""
        if header.api_key in MUTATION_KEYS:
            self._handle_mutation(frame, header, probing, whole)
        elif header.api_key == METADATA:
            self._handle_metadata(frame, header)
        elif self._desk.dispatch.active and header.api_key in self._desk.keys:
            self._handle_dispatched(frame, header, whole)
        elif header.api_key in METERED_KEYS and self._meter.active:
            if not self._metered.forward(frame, header, self._observer.principal):
                self._line.put_back(whole)
        else:
            self._handle_watched(frame, header)

    def finished(self, slot: Slot) -> None:
        """A slot is answered: if it was the gated one, later requests may go on."""
        self.held_bytes -= self._kept.pop(slot, 0)
        if slot is self._gate_slot:
            self._gate = self._gate_slot = None
        else:
            self._ungated.pop(slot, None)

    def unheard(self) -> None:
        """Nobody hears answers any more: what waits, or would wait, to be admitted is dropped."""
        self._heard = False
        if self._producing is not None:
            self._producing.unheard()
        if self._dispatched is not None:
            self._dispatched.unheard()
        slot = self.unadmitted
        if self._gate is not None and slot is not None:
            self._gate.gone()
            self.finished(slot)
            self._line.forgo(slot)
            self._hub.metrics.dropped.labels("strict").inc()

    def step_aside(self) -> None:
        """Its next request cannot go on for now: nobody shall wait for it."""
        self._metered.step_aside()
        self._counting.step_aside()

    def make_way(self) -> None:
        """What could go on has, or cannot for another reason: nobody shall wait for it."""
        pacer = self._pacer
        waits = self._counting.waits(pacer.held)
        if pacer.released and (waits or not pacer.held):
            pacer.released = False
            self._metered.step_aside()

    def close(self) -> None:
        """The connection is over."""
        self._metered.close()
        if self._dispatched is not None:
            self._dispatched.close()
        if self._producing is not None:
            self._producing.close()
        self._counting.close()
        if self._gate is not None:
            gate, self._gate = self._gate, None
            gate.gone()
        for passing in self._ungated.values():
            passing.gone()
        self._ungated.clear()

    def _pass(self, frame: bytes, header: RequestHeader, done: Callable[[bytes], None] | None = None) -> Slot:
        """Send a request to the broker and keep its place among the answers."""
        slot = Slot(*header[:3], done)
        self._line.reserve(slot)
        self._line.send(slot, frame)
        return slot

    def _handle_watched(self, frame: bytes, header: RequestHeader) -> None:
        if header.api_key == PRODUCE:
            # Without acks the broker sends no response; waiting for one would shift all that follow.
            if produce_acks(frame, header) == 0:
                self._line.send(None, frame)
                return
        elif header.api_key == API_VERSIONS:
            refusal = api_versions_refusal(header)
            if refusal is not None:
                self._answer(header, refusal)
                return
        elif header.api_key in SASL_KEYS:
            try:
                self._observer.on_request(frame, header)
            except Unreadable as login:
                self._hub.metrics.refused_logins.labels(login.reason).inc()
                self._answer(header, login.response)
                return
        self._pass(frame, header)

    def _answer(self, header: RequestHeader, response: bytes) -> None:
        """Answer without the broker, in turn."""
        slot = Slot(*header[:3])
        slot.response = response
        self._line.reply(slot)

    def _handle_metadata(self, frame: bytes, header: RequestHeader) -> None:
        answer = None
        if forbids_creation(self._coordinator, self._observer.principal, header.client_id or ""):
            frame, answer = self._hub.auto_creations.keep_from(frame, header, self._observer.principal)
        if answer is None and not self._meter.active:
            self._pass(frame, header)
            return

        def done(response: bytes) -> None:
            if self._meter.active:
                # An older version than 4 may have been sent as 4; topics have ids from 10 on.
                self._metered.described(response, header.api_version)
            rewrite = self._hub.rewrite
            slot.response = answer(response) if answer else rewrite(METADATA, header.api_version, response)

        slot = self._pass(frame, header, done)

    def _handle_dispatched(self, frame: bytes, header: RequestHeader, whole: bytes) -> None:
        """A Fetch while something limits what is dispatched, or a request that tells who fetches."""
        dispatched = self._dispatched
        if dispatched is None:
            dispatched = self._dispatched = Dispatched(self._hub, self._line, self._pacer)
        user = self._observer.principal
        if header.api_key != FETCH:
            learn = dispatched.heard(frame, header, user)
            slot = self._pass(frame, header, lambda response: self._learnt(slot, learn, response))
            return
        plan = dispatched.plan(frame, header, user)
        if plan is None:
            self._line.put_back(whole)
        elif plan.answer:
            self._answer(header, plan.answer)
        elif self._meter.active:
            if not self._metered.forward(plan.frame, header, user, plan.cut):
                dispatched.take_back()
                self._line.put_back(whole)
        elif plan.cut is None:
            self._pass(plan.frame, header)
        else:
            cut, rewrite = plan.cut, self._hub.rewrite

            def done(response: bytes) -> None:
                slot.response = rewrite(FETCH, header.api_version, cut(response))

            slot = self._pass(plan.frame, header, done)

    @staticmethod
    def _learnt(slot: Slot, learn: Callable[[bytes], None], response: bytes) -> None:
        learn(response)
        slot.response = response

    def _refuse_too_many(self, header: RequestHeader, request: MutationRequest) -> None:
        self._hub.metrics.requests.labels(request.api.event_name, "too_many_items").inc()
        message = f"A request may have {self._hub.settings.max_items} topics; ask for fewer at a time."
        self._answer(header, refuse_all(request, 0, message, POLICY_VIOLATION))

    def _handle_mutation(self, frame: bytes, header: RequestHeader, probing: bool, whole: bytes) -> None:
        try:
            request = decode_request(frame, header, self._hub.settings.max_items)
        except TooManyItems as many:
            self._refuse_too_many(header, many.request)
            return
        flow = self._counting.flow
        if flow is not None and request.strict and flow.refuses_mutations:
            self._answer(header, flow.refuse_mutations(request))
            return
        user, client_id = self._observer.principal, header.client_id or ""
        quota = self._coordinator.quota(user, client_id)
        verdict, dry = self._judge(quota, request, probing)
        if quota is not None and verdict.action is Action.HOLD:
            # Until its subject may go on.
            self._line.put_back(whole)
            self._pacer.hold(quota.subject, verdict.wait_ms)
            return
        way: type[Admission] = PermissiveAtOnce if verdict.action is Action.DECIDE else Permissive
        if quota is None or verdict.action is Action.FORWARD:
            way = Passing
        elif request.strict:
            way = _STRICT_WAYS[verdict.action]
            if not self._heard:
                self._hub.metrics.dropped.labels("strict").inc()
                return
        if quota is not None and verdict.action in _ASKS and self._must_line_up(quota.subject, way):
            # Until one of its subject's questions is answered.
            self._line.put_back(whole)
            self._pacer.hold(line_of(quota.subject), self._hub.settings.decision_timeout_ms)
            return
        link = GatedLink(self._line, header, client_id_field(frame))
        admission = way(
            link, self._coordinator, self._hub.recent_topics, self._hub.free_questions, request,
            user=user, client_id=client_id, quota=quota, wait_ms=verdict.wait_ms, dry=dry,
        )  # fmt: skip
        self._kept[link.slot] = size = len(frame) + _ITEM_BYTES * len(request.items)
        self.held_bytes += size
        if isinstance(admission, Passing):
            self._ungated[link.slot] = admission
        else:
            self._gate, self._gate_slot = admission, link.slot
        admission.start()

    def _must_line_up(self, subject: str, way: type[Admission]) -> bool:
        """Whether a request must wait for its turn among those of its subject."""
        questions = self._coordinator.questions
        # One that is carried out before it is counted goes alone: else all that wait would pass at once.
        return questions.full(subject) or (way is PermissiveAtOnce and questions.busy(subject))

    def _judge(
        self, quota: MutationQuota | None, request: MutationRequest, probing: bool
    ) -> tuple[Verdict, bool]:
        """What to do with a request, and whether that is for its subject's dry runs: they have their rate."""
        verdict = self._coordinator.judge(quota, strict=request.strict, probing=probing)
        if quota is None or not request.validate_only or verdict.action not in _ASKS:
            return verdict, False
        wait_ms = self._hub.free_questions.dry_runs.wait_ms(quota)
        if not wait_ms:
            return verdict, False
        return Verdict(Action.REFUSE if request.strict else Action.HOLD, ceil(wait_ms)), True
