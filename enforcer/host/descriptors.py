"""How many connections the file descriptors of this process are enough for."""

import logging
import os
import resource
from typing import Final

logger = logging.getLogger(__name__)

PER_CONNECTION: Final = 2
"""A client connection is a socket to the client and one to its broker."""
CLIENTS: Final = 7
"""Our own Kafka clients: a producer, readers of policies, decisions and who lives, and what watches the
cluster, our topics, and whose topics are ours."""
CONSUMERS: Final = 3
"""Those that read."""
PER_ADDRESS: Final = 3 * CLIENTS
"""Each of them has a pipe and a socket for each address where it begins."""
PER_BROKER: Final = 1 + 3 * CLIENTS
"""A broker takes a listener of ours, and the same of each client: they know all brokers."""
OF_NO_BROKER: Final = 2 * CONSUMERS + 1
"""A pipe for the coordinator of a group, which no reader has, and the port of the metrics."""


class Room:
    """Room for connections.

    Raises the soft limit of file descriptors towards the hard one, as far as that is needed.

    Args:
        connections_max: how many are wanted.
        reserve: descriptors kept for what comes and goes, beside our own Kafka clients and what is open.
        addresses: where our own clients begin.
    """

    def __init__(self, connections_max: int, reserve: int, addresses: int) -> None:
        self._wanted = connections_max
        self._kept = reserve + len(os.listdir("/dev/fd")) + PER_ADDRESS * addresses + OF_NO_BROKER
        if (found := self.connections(0)) < connections_max:
            logger.warning(
                "%d file descriptors are enough for %d connections, not for the %d of proxy.connections_max:"
                " lower that, or raise the hard limit (ulimit -Hn) to %d",
                resource.getrlimit(resource.RLIMIT_NOFILE)[0], found, connections_max,
                PER_CONNECTION * connections_max + self._kept,
            )  # fmt: skip

    def connections(self, brokers: int) -> int:
        """How many connections may be open while so many brokers are known; at least one."""
        kept = self._kept + PER_BROKER * brokers
        needed = PER_CONNECTION * self._wanted + kept
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return self._wanted
        if soft < needed and soft != hard:
            soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, min(self._wanted, (soft - kept) // PER_CONNECTION))
