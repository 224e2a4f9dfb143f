"""Names of topics as clients write them, and what they mean (docs/protocol_notes.md 4.8)."""

import re
from typing import Final, NamedTuple

from streaming.contract.errors import WeirError

_DOMAINS: Final = ("persistent", "non-persistent")
_PARTITION: Final = re.compile(r"-partition-(\d+)\Z")
_DEFAULT_NAMESPACE: Final = "public/default"
_SAME_LETTERS: Final = str.maketrans("\u017f\u0131\u0130", "sii")
"""Brokers compare domains as Java compares letters of any size, and for Java these are the same too."""


class BadName(WeirError):
    """No topic can have this name; a broker says so, too."""


class Topic(NamedTuple):
    """One topic.

    Attributes:
        persistent: whether it is stored.
        namespace: tenant/namespace; with the cluster between them where the name has the old form.
        local: its name within the namespace, without partition.
        partition: its number; -1: it names no partition.
    """

    persistent: bool
    namespace: str
    local: str
    partition: int

    @property
    def whole(self) -> str:
        """The full name without partition: one for all partitions."""
        return f"{_DOMAINS[not self.persistent]}://{self.namespace}/{self.local}"

    @property
    def name(self) -> str:
        """The full name."""
        return self.whole if self.partition < 0 else f"{self.whole}-partition-{self.partition}"


def read_topic(name: str) -> Topic:
    """A topic by its name, full or short: `x`, `tenant/namespace/x`, `persistent://tenant/namespace/x`.

    Every way to write a name that brokers take is read as they read it, or nobody would be charged: a domain
    in letters of any size, slashes around a short name.

    Raises:
        BadName: it is none.
    """
    domain, colon, rest = name.partition("://")
    domain = domain.translate(_SAME_LETTERS).lower()
    if not colon:
        domain, rest = "persistent", name
        words = list(filter(None, name.split("/")))
        if len(words) == 1:
            rest = f"{_DEFAULT_NAMESPACE}/{words[0]}"
        elif name.count("/") != 2:
            raise BadName(f"no topic has the name {name[:100]!r}")
    parts = rest.split("/", 3)
    if domain not in _DOMAINS or len(parts) < 3 or not all(parts):
        raise BadName(f"no topic has the name {name[:100]!r}")
    namespace, local, partition = "/".join(parts[:-1]), parts[-1], -1
    # A number of partitions is an int of Java's; what looks like a larger one is a part of the name.
    if (found := _PARTITION.search(local)) is not None and len(found[1]) < 10 and found.start():
        local, partition = local[: found.start()], int(found[1])
        if found[1] != str(partition):
            local, partition = parts[-1], -1
    return Topic(domain == "persistent", namespace, local, partition)
