"""Fetch, ShareFetch and group requests of one connection while limits of dispatch are in force."""

from enforcer.kafka.dispatch.context import FetchContext
from enforcer.kafka.dispatch.fetches import Fetches
from enforcer.kafka.dispatch.share_fetches import ShareFetches
from enforcer.kafka.groups.frames import TOLD_KEYS, acting, let_in, places, told
from enforcer.kafka.groups.readers import Client, short
from enforcer.kafka.names import NameResolver
from enforcer.kafka.part import OBJECTS, Behind, Limit, Link, Part, Request, Slot
from enforcer.kafka.share_sessions import PART_BYTES
from enforcer.wire.kafka.frames import FETCH, SHARE_FETCH, BadFrame


class DispatchLimit(Limit):
    """Dispatch rates."""

    def __init__(self, context: FetchContext) -> None:
        super().__init__(context.dispatch)
        self._context = context

    @property
    def keys(self) -> frozenset[int]:
        return self._context.keys

    def part(self, link: Link) -> Part:
        return DispatchPart(link, self._context)


class DispatchPart(Part):
    """The dispatch side of a connection."""

    def __init__(self, link: Link, context: FetchContext) -> None:
        self._context = context
        self._link = link
        self._naming = NameResolver(context.names, link, context.steady_ms)
        self._fetches = Fetches(context, link.pacer, self._naming)
        self._shares: ShareFetches | None = None

    @property
    def held_bytes(self) -> int:
        """What is remembered: anybody may name partitions that nobody has made."""
        known = 0 if self._shares is None else self._shares.sessions.partitions
        return PART_BYTES * (known + self._fetches.partitions)

    def take(self, request: Request) -> bool:
        if request.header.api_key not in (FETCH, SHARE_FETCH):
            self._hear(request)
            return True
        with self._naming.about(request):
            planner, client = self._planner(request.header.api_key), self._client(request)
            plan = planner.plan(request.frame, request.header, client, self._link.address)
        if plan is None:
            self._link.hold(request)
            return False
        if plan.answer:
            self._link.answer(request, plan.answer)
            return False
        request.frame, request.undo = plan.frame, planner.take_back
        if (read := plan.cut or plan.look) is not None:
            request.kept += OBJECTS * len(request.whole)
            request.readers.append(lambda _slot, response: read(response))
        return True

    def look_behind(self, requests: Behind, *, over: bool) -> None:
        if self._shares is not None:
            self._shares.look_behind(requests)

    def unheard(self) -> None:
        self._fetches.unheard()

    def close(self) -> None:
        self._fetches.close()
        if self._shares is not None:
            self._shares.claims.close()

    def _planner(self, key: int) -> Fetches | ShareFetches:
        if key == FETCH:
            return self._fetches
        if self._shares is None:
            self._shares = ShareFetches(self._context, self._link.pacer, self._naming)
        return self._shares

    def _hear(self, request: Request) -> None:
        """Learn from the answer to a request that tells who fetches, if the broker lets it in.

        Raises:
            BadFrame: the request cannot be read.
        """
        frame, header, client = request.frame, request.header, self._client(request)
        key, version = header.api_key, header.api_version
        found, readers = acting(frame, header), self._context.readers

        def learn(_slot: Slot, response: bytes) -> bytes:
            try:
                said = told(response, key, version) if key in TOLD_KEYS else None
                known = let_in(found, response, key, version)
                stood = places(frame, header, response) if known else []
            except BadFrame:
                # As of tens of thousands of partitions: it is the client's, and teaches nothing.
                return response
            for group, member, leaves in known:
                group, member = short(group), short(member)
                if leaves:
                    readers.left(client, group, [member])
                    continue
                readers.saw(client, group, member)
                if said is not None:
                    self._context.assigned(client, group, short(said[0]) or member, said[1])
            # By now it is known that this client acts for them.
            self._context.stands(client.user, stood)
            return response

        request.kept += len(frame)
        request.readers.append(learn)

    def _client(self, request: Request) -> Client:
        peer = self._link.peer
        host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        return Client(request.user, host, short(request.header.client_id or ""))
