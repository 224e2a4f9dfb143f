"""What outlives an outage of brokers, and what is said while it lasts: slow, since brokers stop and start.

That a proxy outlives one is tested with every change (test_failures.py).
"""

from contextlib import ExitStack
from pathlib import Path

import pytest
import with_constant
from admin_process_kit import Admin
from confluent_kafka.admin import AdminClient
from proxy_kit import until
from stack_kit import new_topics

from benchmarks.load.asked import Asked
from streaming.contract.topics import Cluster, Topics
from weir.stack.kafka import LocalKafka, brokers_seen
from weir.stack.topics import ensure_topics

pytestmark = pytest.mark.soak
GROUPS = "/admin/v2/resourcegroups"


def test_without_kafka_changes_end_in_time_and_come_back(tmp_path: Path) -> None:
    """503 with a reason within the limit; reading goes on; afterwards changes do."""
    kafka, topics = LocalKafka(tmp_path / "kafka"), Topics()
    with ExitStack() as running:
        running.enter_context(kafka)
        ensure_topics(Cluster(kafka.bootstrap, topics))
        folder = tmp_path / "admin"
        soon = with_constant.at("enforcer.control.store", "CHANGE_S", 3)
        admin = running.enter_context(Admin(kafka.bootstrap, folder, topics.prefix, module=soon))
        assert admin.ask("PUT", f"{GROUPS}/rg1", {"publishRateInMsgs": 5}) == (204, "")
        kafka.stop()
        for _ in range(2):
            status, said = admin.ask("PUT", f"{GROUPS}/rg1", {"publishRateInMsgs": 6})
            assert (status, list(said)) == (503, ["reason"])
        assert admin.ask("GET", f"{GROUPS}/rg1")[0] == 200
        kafka.start()
        until(
            lambda: admin.ask("PUT", f"{GROUPS}/rg1", {"publishRateInMsgs": 7})[0] == 204,
            what="a change after the outage",
            limit_s=60,
        )
        assert admin.ask("GET", f"{GROUPS}/rg1")[1]["publishRateInMsgs"] == 7


# One reading for each line of input. In a process of its own: kafka-python drops the sockets of failed
# attempts without closing them, which pytest would report.
READ_AND_SAY = """
import logging, sys, threading
from benchmarks.load.asked import say
from streaming.kafka_io.cluster_quotas import QuotaReader
from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
logging.getLogger("kafka").setLevel(logging.CRITICAL)
reader = QuotaReader(Cluster(sys.argv[1]), 2000)
for line in sys.stdin:
    try:
        say(reader.read())
    except WeirError as error:
        say([str(error), threading.active_count()])
"""


def test_collector_connects_again_after_an_outage(tmp_path: Path) -> None:
    """An error of ours while the broker is away, no thread left over; the next reading works."""
    with LocalKafka(tmp_path) as broker, Asked("-c", READ_AND_SAY, broker.bootstrap) as child:
        assert child.ask(None) == {}
        broker.stop()
        for _ in range(3):
            why, threads = child.ask(None)
            assert "could not be read" in why and threads == 1
        broker.start()
        assert child.ask(None) == {}


def test_three_brokers_keep_their_data_and_ports_over_a_restart(tmp_path: Path) -> None:
    """One cluster of several processes, for tests of what a proxy does with them."""
    cluster = LocalKafka(tmp_path, brokers=3)
    with cluster:
        addresses = cluster.bootstrap
        new_topics(addresses, "kept", partitions=3, replicas=3)
        cluster.stop()
        cluster.start()
        assert cluster.bootstrap == addresses
        assert [brokers_seen(int(address.rpartition(":")[2])) for address in addresses.split(",")] == [3] * 3
        assert "kept" in AdminClient({"bootstrap.servers": addresses}).list_topics(timeout=20).topics
