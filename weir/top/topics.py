"""The view over all laws, from the recent past of Weir's topics."""

from contextlib import ExitStack, closing
from typing import Final

from enforcer.control.entities.feed import REPORTS, REQUESTS, decisions_of, reports_of
from enforcer.control.entities.table import SLOT_MS, SLOTS
from enforcer.control.entities.view import EntityView
from streaming.contract.topics import Cluster
from streaming.kafka_io.policy_topic import TIMEOUT_S, PolicyReader
from streaming.kafka_io.reader import Reader
from streaming.policy.policy_set import PolicySet
from weir.logs.times import wall_ms

BACK_MS: Final = SLOTS * SLOT_MS
"""So far back is read: what the view keeps of the past, and many life times of what stands."""


class RecentPast:
    """Reads it, and later on what has come since; `view` is what is known."""

    def __init__(self, cluster: Cluster) -> None:
        self._in_force = PolicySet()
        self.view = EntityView(lambda: self._in_force)
        self.bootstrap = cluster.bootstrap
        self._topics = cluster.topics
        self._open = ExitStack()
        self._policies = self._open.enter_context(PolicyReader(cluster, told_max=0))
        self._reader = self._open.enter_context(closing(Reader(cluster.bootstrap, cluster.client)))

    def close(self) -> None:
        """Close the connections."""
        self._open.close()

    def read(self) -> int:
        """Read to where the topics end now; the time then, ms since the epoch.

        Raises:
            WeirError: no such topics, or the cluster does not answer.
        """
        now_ms = wall_ms()
        self._in_force = self._policies.read(TIMEOUT_S).timeline.at(now_ms)
        since_ms, reader = now_ms - BACK_MS, self._reader
        # Limits before what is measured against them.
        for message in reader.read_on(reader.spans(self._topics.decisions, since_ms)):
            self.view.take_decisions(decisions_of(message))
        for topic, readers in ((self._topics.usage, REPORTS), (self._topics.requests, REQUESTS)):
            for message in reader.read_on(reader.spans(topic, since_ms)):
                self.view.take_reports(reports_of(message, readers))
        return wall_ms()
