"""One proxy's conclusions on whose a fetch is, without sockets."""

from enforcer.kafka.groups.group_finder import SETTLED_MS, GroupFinder
from enforcer.kafka.groups.readers import Client
from enforcer.kafka.groups.trails import KEPT_MS, Trail

SAME = Client("alice", "10.0.0.1", "rdkafka")
OTHER = SAME._replace(client_id="mine")
T = "persistent://public/default/t"
SLOW, FREE = "slow", "free"


class Scene(GroupFinder):
    """One proxy's conclusions, with a clock; the group `slow` has a limit.

    Args:
        groups: a member of each is told to read partition 0 of the topic.
        alone: there is no other proxy.
    """

    def __init__(self, *groups: str, alone: bool = False) -> None:
        self.now_ms = 1_000.0
        self.count = 0
        self.alone = alone
        super().__init__(lambda topic, group: group.startswith(SLOW), lambda: self.alone, lambda: self.now_ms)
        for group in groups:
            self.joins(group)

    def joins(self, group: str, client: Client = SAME, *parts: int) -> None:
        """A member is told to read partitions, 0 if none are named."""
        self.readers.assigned(client, group, f"{group}-m", {"t": frozenset(parts or (0,))})
        self.reads(client.user, group, T)

    def connection(self) -> Trail:
        """A new one."""
        self.count += 1
        return Trail(SAME, self.count)

    def fetches(self, trail: Trail, offset: int, client: Client = SAME) -> set[str]:
        """The groups that a fetch may be of."""
        trail.client = client
        trail.asked(T, [(0, offset)], self.now_ms)
        return set(self.of(client, trail, T, ["t"], [0])[0])

    def gets(self, trail: Trail, end: int, part: int = 0) -> None:
        """A connection is delivered up to an offset."""
        had = trail.of(T).get(part)
        trail.had(T, part, 0 if had is None else had.end, end)

    def delivered(self, *ends: int) -> list[Trail]:
        """New connections that have fetched from the beginning on, and got all up to these offsets."""
        trails = [self.connection() for _ in ends]
        for trail, end in zip(trails, ends, strict=True):
            self.fetches(trail, 0)
            self.gets(trail, end)
        return trails

    def commits(self, group: str, offset: int, part: int = 0) -> None:
        """A group says where it stands, a moment later."""
        self.now_ms += 10
        self.moved("alice", group, T, part, offset)

    def forgets(self) -> None:
        """Time passes until nothing of connections that have ended is kept."""
        self.now_ms += KEPT_MS
        self.trails.forget(0.0)

    def settles(self) -> None:
        """Time enough passes to judge what was committed."""
        self.now_ms += SETTLED_MS
        self.look()
