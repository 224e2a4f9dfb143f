"""Fetch and group requests of one connection while limits of dispatch are in force."""

from collections.abc import Callable

from enforcer.core.pacing import Pacer
from enforcer.kafka.dispatch.fetches import Fetches, Plan
from enforcer.kafka.groups.frames import TOLD_KEYS, acting, let_in, told
from enforcer.kafka.groups.offsets import places
from enforcer.kafka.groups.readers import Client, short
from enforcer.kafka.link import Hub, Line, NameQuestions
from enforcer.wire.kafka.frames import BadFrame, RequestHeader
from streaming.contract.events import ANONYMOUS


class Dispatched:
    """The dispatch side of a connection.

    Args:
        hub: what all connections share.
        line: the connection.
        pacer: holds it back.
    """

    def __init__(self, hub: Hub, line: Line, pacer: Pacer) -> None:
        self._desk = hub.fetch_desk
        self._line = line
        self._questions = NameQuestions(line)
        self._fetches = Fetches(hub.fetch_desk, pacer, self._questions.ask)
        self.take_back = self._fetches.take_back
        """The Fetch that was planned last is not sent after all."""
        self.unheard = self._fetches.unheard
        """The client is gone."""
        self.close = self._fetches.close
        """The connection is over."""

    def plan(self, frame: bytes, header: RequestHeader, user: str) -> Plan | None:
        """What becomes of a Fetch request; None: it is to stay at the head of its connection, which waits.

        Raises:
            BadFrame: it cannot be read.
        """
        if user != ANONYMOUS:
            self._fetches.naming.proven = True
        self._questions.begin(frame, header)
        try:
            return self._fetches.plan(frame, header, self._client(header, user), self._line.address)
        finally:
            self._questions.end()

    def heard(self, frame: bytes, header: RequestHeader, user: str) -> Callable[[bytes], None]:
        """What learns from a request for a group and its response, when that has come: the broker let it in.

        Raises:
            BadFrame: the request cannot be read.
        """
        key, version, client = header.api_key, header.api_version, self._client(header, user)
        found, readers = acting(frame, header), self._desk.readers

        def learn(response: bytes) -> None:
            try:
                said = told(response, key, version) if key in TOLD_KEYS else None
                known = let_in(found, response, key, version)
                stood = places(frame, header, response) if known else []
            except BadFrame:
                # As of tens of thousands of partitions: it is the client's, and teaches nothing.
                return
            for group, member, leaves in known:
                group, member = short(group), short(member)
                if leaves:
                    readers.left(client, group, [member])
                    continue
                readers.saw(client, group, member)
                if said is not None:
                    self._desk.assigned(client, group, short(said[0]) or member, said[1])
            # By now it is known that this client acts for them.
            self._desk.stands(client.user, stood)

        return learn

    def _client(self, header: RequestHeader, user: str) -> Client:
        peer = self._line.peer
        host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        return Client(user, host, short(header.client_id or ""))
