"""Requests for partition mutations of one connection, and those that would create topics in passing."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from cachetools import TTLCache

from enforcer.core import bounds
from enforcer.core.settings import AutoCreation
from enforcer.kafka.mutations.mutation import GatedLink, Mutation, RecentTopics
from enforcer.kafka.mutations.streams import StreamsHeartbeat, leaves
from enforcer.kafka.mutations.topology import REMEMBERED_MAX, REMEMBERED_MS, Remembered
from enforcer.kafka.part import Concern, Link, Part, Request, Slot
from enforcer.laws.mutation.admission import Admission
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.laws.mutation.events import line_of
from enforcer.laws.mutation.request import Action, MutationQuota, Verdict
from enforcer.laws.mutation.request import Request as Mutated
from enforcer.wire.kafka.codec import asked
from enforcer.wire.kafka.definitions import NAMES
from enforcer.wire.kafka.frames import METADATA, STREAMS_HEARTBEAT
from enforcer.wire.kafka.messages import (
    NOTHING_KNOWN,
    forbid_auto_creation,
    metadata_answer_as,
    unknown_topics,
)
from enforcer.wire.kafka.mutations import (
    MUTATION_KEYS,
    POLICY_VIOLATION,
    MutationRequest,
    TooManyItems,
    decode_request,
    refuse_all,
)

logger = logging.getLogger(__name__)

_FLAG_FROM: Final = 4
"""The first version of Metadata that may ask without creating; older requests are sent as this one."""
_TOPICS: Final = asked(METADATA, "Topics:count")
_NOTED_MAX_BYTES: Final = 262_144
"""Larger answers are not gone through for topics that are not there: that would hold up other traffic."""
_LOG_AGAIN_MS: Final = 3_600_000.0
_ITEM_BYTES: Final = 500
"""What an item of a request for mutations takes beside its frame, about."""


class Mutations(Concern):
    """Quotas on partition mutations.

    Attributes:
        coordinator: decides.
        recent: knows partition counts better than the brokers.
        streams_groups: what was said of large ones a moment ago.
    """

    keys = MUTATION_KEYS | {METADATA, STREAMS_HEARTBEAT}
    asked = frozenset({METADATA, STREAMS_HEARTBEAT})

    def __init__(self, coordinator: QuotaCoordinator, recent: RecentTopics) -> None:
        self.coordinator = coordinator
        self.recent = recent
        steady_ms = coordinator.clock.steady_ms
        self.streams_groups: Remembered = TTLCache(REMEMBERED_MAX, REMEMBERED_MS, steady_ms)
        # A client waits for a topic that it would have created for as long as it likes: its operator learns
        # why here.
        self._logged: TTLCache[str, None] = TTLCache(
            coordinator.settings.subjects_max, _LOG_AGAIN_MS, steady_ms
        )

    def reads(self, key: int, user: str, client_id: str) -> bool:
        if key == STREAMS_HEARTBEAT:
            return self.coordinator.quota(user, client_id) is not None
        return self.forbids_creation(user, client_id)

    def forbids_creation(self, user: str, client_id: str) -> bool:
        """Whether a client's Metadata requests must not create topics: that would slip past its quota."""
        if self.coordinator.settings.auto_topic_creation is not AutoCreation.FORBID:
            return False
        return self.coordinator.enforces(user, client_id)

    def keep_from_creating(self, request: Request) -> None:
        """Have a Metadata request create nothing: if it is older than _FLAG_FROM, it goes on as that one.

        Raises:
            BadFrame: it cannot be read.
        """
        header, user = request.header, request.user
        version = header.api_version
        named = _TOPICS(request.frame, header) > 0
        request.frame, changed = forbid_auto_creation(request.frame, header)
        if not changed or (version >= _FLAG_FROM and not named):
            return
        sent_version = max(version, _FLAG_FROM)

        def answer(response: bytes) -> bytes:
            if named and len(response) <= _NOTED_MAX_BYTES:
                self._note(unknown_topics(response, sent_version), user, header.client_id or "")
            return response if version == sent_version else metadata_answer_as(response, version)

        request.header = header._replace(api_version=sent_version)
        request.amend(answer)

    def part(self, link: Link) -> Part:
        return MutationsPart(link, self)

    def _note(self, names: list[str], user: str, client_id: str) -> None:
        """Count what was not created; say it once an hour for each subject."""
        quota = self.coordinator.quota(user, client_id)
        if not names or quota is None:
            return
        self.coordinator.metrics.forbidden_creations.inc(len(names))
        if quota.subject not in self._logged:
            self._logged[quota.subject] = None
            logger.warning(
                "topic %s is not there and is not created by asking for it, since %s has a mutation quota: "
                "create it, or set proxy.auto_topic_creation: pass", names[0], quota.subject,
            )  # fmt: skip


class MutationsPart(Part):
    """The mutations of one connection.

    Attributes:
        concern: of all connections.
        watch: heartbeats whose topics are still to appear; told by `over` that they will not be seen.
    """

    def __init__(self, link: Link, concern: Mutations) -> None:
        self._link = link
        self.concern = concern
        self._coordinator = concern.coordinator
        self._settings = concern.coordinator.settings
        self._metrics = concern.coordinator.metrics
        self._heard = True
        # What later requests wait for: one that may have to wait, or a heartbeat.
        self._gate: GatedLink | None = None
        self._admissions: dict[GatedLink, Admission] = {}
        self._held_bytes = 0
        self.watch: set[StreamsHeartbeat] = set()

    @property
    def free(self) -> bool:
        """Whether none waits for its decision, nor too much for answers."""
        return self._gate is None and self._held_bytes <= bounds.HELD_BYTES_MAX

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @property
    def unadmitted(self) -> Slot | None:
        gate, deciding = self._gate, self._deciding
        return None if gate is None or deciding is None or deciding.admitted else gate.slot

    @property
    def waits_for_decision(self) -> bool:
        deciding = self._deciding
        return deciding is not None and deciding.waits_for_decision

    def take(self, request: Request) -> bool:
        header = request.header
        if header.api_key == METADATA:
            if self.concern.forbids_creation(request.user, header.client_id or ""):
                self.concern.keep_from_creating(request)
            return True
        if header.api_key == STREAMS_HEARTBEAT:
            return self._take_heartbeat(request)
        try:
            asked = decode_request(request.frame, header, self._settings.max_items)
        except TooManyItems as many:
            self._metrics.requests.labels(NAMES[header.api_key], "too_many_items").inc()
            message = f"A request may have {self._settings.max_items} topics; ask for fewer at a time."
            self._link.answer(request, refuse_all(many.request, 0, message, POLICY_VIOLATION))
        else:
            self._handle(request, asked)
        return False

    def unheard(self) -> None:
        """What waits, or would wait, to be admitted is dropped."""
        self._heard = False
        gate, deciding = self._gate, self._deciding
        if gate is None or (deciding is not None and deciding.admitted):
            return
        if deciding is not None:
            deciding.gone()
        if gate.leave():
            self._metrics.dropped_requests.labels("strict").inc()
        self._finished(gate)
        self._link.forgo(gate.slot)

    def close(self) -> None:
        self._gate = None
        for admission in self._admissions.values():
            admission.gone()
        self._admissions.clear()
        for heartbeat in list(self.watch):
            heartbeat.over()

    @property
    def _deciding(self) -> Admission | None:
        found = None if self._gate is None else self._admissions.get(self._gate)
        return None if found is None or found.passes else found

    def _finished(self, link: GatedLink) -> None:
        """A request is answered: if it was the gate, later ones may go on."""
        self._held_bytes -= link.kept
        link.kept = 0
        self._admissions.pop(link, None)
        if link is self._gate:
            self._gate = None

    def _handle(self, request: Request, asked: MutationRequest) -> None:
        user, client_id = request.user, request.header.client_id or ""
        quota = self._coordinator.quota(user, client_id)
        verdict = self._coordinator.judge(
            quota, strict=asked.strict, probing=request.probing, dry_run=asked.validate_only
        )
        if quota is not None and verdict.action is Action.HOLD:
            # Until its subject may go on.
            self._link.hold(request)
            self._link.pacer.hold(quota.subject, verdict.wait_ms)
            return
        passes = verdict.action is Action.FORWARD
        if asked.strict and not passes and not self._heard:
            self._metrics.dropped_requests.labels("strict").inc()
            return
        if quota is not None and self._coordinator.must_line_up(quota, verdict, strict=asked.strict):
            # Until one of its subject's questions is answered.
            self._link.hold(request)
            self._link.pacer.hold(line_of(quota.subject), self._settings.decision_timeout_ms)
            return
        link = GatedLink(self._link, request, self._finished)
        if not passes:
            self._gate = link
        self._keep(link, request.kept + len(request.frame) + _ITEM_BYTES * len(asked.items))
        self._admit(link, asked, quota, verdict)

    def _take_heartbeat(self, request: Request) -> bool:
        """Whether a heartbeat of a streams group goes on as it is."""
        client_id = request.header.client_id or ""
        if self._coordinator.quota(request.user, client_id) is None or leaves(request.frame, request.header):
            return True
        if not self._heard:
            self._metrics.dropped_requests.labels("strict").inc()
            return False
        self._gate = heartbeat = StreamsHeartbeat(self, self._link, request, self._finished)
        self._keep(heartbeat, len(request.frame))
        heartbeat.start()
        return False

    def create(self, asked: MutationRequest, heartbeat: StreamsHeartbeat) -> None:
        """Have topics created for a heartbeat."""
        quota = self._coordinator.quota(heartbeat.user, heartbeat.header.client_id or "")
        verdict = self._coordinator.judge(quota, strict=True)
        if quota is not None and self._coordinator.must_line_up(quota, verdict, strict=True):
            heartbeat.wait_in_line()
            return
        self._keep(heartbeat, _ITEM_BYTES * len(asked.items))
        self._admit(heartbeat, asked, quota, verdict)

    def appeared(self, heartbeat: StreamsHeartbeat, counts: Mapping[str, int]) -> None:
        """Topics, by name, were made by a heartbeat that went on: charge those nobody was charged for."""
        recent, user, header = self.concern.recent, heartbeat.user, heartbeat.header
        known = recent.over(replace(NOTHING_KNOWN, by_name=dict.fromkeys(counts))).by_name
        new = {name: count for name, count in counts.items() if known[name] is None}
        for name, count in new.items():
            recent.note(name, None, count)
        if new:
            client_id = header.client_id or ""
            done = Mutated(
                user=user, client_id=client_id, api=NAMES[header.api_key], api_version=header.api_version,
                strict=False, items=new,
            )  # fmt: skip
            self._coordinator.report(done, self._coordinator.quota(user, client_id))

    def _keep(self, link: GatedLink, size: int) -> None:
        link.kept += size
        self._held_bytes += size

    def _admit(
        self, link: GatedLink, asked: MutationRequest, quota: MutationQuota | None, verdict: Verdict
    ) -> None:
        mutation = Mutation(link, self._coordinator, self.concern.recent, asked, quota, verdict)
        self._admissions[link] = mutation.admission
        mutation.admission.start()
