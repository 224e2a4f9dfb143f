"""The reference of the law of shares with what stands of its decisions, as a shard repeats them."""

from collections.abc import Sequence

from streaming.laws.law import Decision, DecisionForm
from streaming.laws.refresh import Refresh
from streaming.laws.shares.rounds import Rounds

STANDING = DecisionForm(type="share", subject=("group", "broker"), standing=("group", "broker"))


class Model(Rounds):
    """Groups of a shard, with what stands of them."""

    def __init__(self) -> None:
        super().__init__()
        self.standing = Refresh(STANDING, None)

    def repeats(self, decided: Sequence[tuple[int, Decision]], now: int) -> list[bytes]:
        """What stands and must be said again at `now`, of those that still have shares."""
        self.standing.note(STANDING.columns(decided), now)
        told = {
            f"{group.name}/{broker}"
            for group in self.groups.values()
            for broker, member in group.members.items()
            if member.told
        }
        again = self.standing.repeats(now)
        if again is None:
            return []
        pairs = zip(again.column("key").to_pylist(), again.column("value").to_pylist(), strict=True)
        return sorted(value for subject, value in pairs if subject in told)
