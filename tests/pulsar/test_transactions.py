"""Transactions of the Java client through the proxy: what commits is there once, what aborts is not."""

from collections.abc import Iterator
from pathlib import Path

import pulsar as client_library
import pytest
from creation_proxy_kit import Limited
from pulsar_dispatch_kit import filled, rate
from pulsar_kit import Admin, client, fresh, receive
from pulsar_proxy_kit import bare_proxy
from pulsar_tools import java_says

from weir.stack.pulsar import LocalPulsar

pytestmark = pytest.mark.soak
MESSAGES, EACH = 120, 12
"""Whole batches: one of which an aborted transaction had a part comes again, and Pulsar takes no further
acknowledgement of the other part (TransactionConflict), with a proxy or without."""
SOURCE = Path(__file__).with_name("CopyInTransactions.java")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPulsar]:
    """One with a coordinator, which acknowledges parts of batches."""
    on = ("acknowledgmentAtBatchIndexLevelEnabled", "transactionCoordinatorEnabled", "systemTopicEnabled")
    folder = tmp_path_factory.mktemp("transactions")
    with LocalPulsar(folder, properties=dict.fromkeys(on, "true")) as running:
        yield running


def copy(service: str, user: str, source: str, target: str) -> list[tuple[str, int, int]]:
    """Run the copying client: what became of each transaction, its messages, and when (ms)."""
    words = [service, user, source, target, str(MESSAGES), str(EACH)]
    lines = java_says(SOURCE, *words, limit_s=180.0)
    return [(line[0], int(line[1]), int(line[2])) for line in lines if line[0] in ("committed", "aborted")]


def stored_once(service: str, topic: str) -> None:
    """A consumer gets each message of the source once, and nothing else."""
    with client(service) as made:
        consumer = made.subscribe(topic, "checks", initial_position=client_library.InitialPosition.Earliest)
        got = [int.from_bytes(each.data[:8], "big") for each in receive(consumer, quiet_s=2.0)]
    assert sorted(got) == list(range(MESSAGES))


@pytest.mark.parametrize("batch", [1, 4])
def test_a_copy_in_transactions_is_exact(broker: LocalPulsar, batch: int) -> None:
    """Every third transaction aborts and its messages come again; first without limits, then with all."""
    admin = Admin(broker.admin)
    with bare_proxy(broker.service, decide="local", lone=True) as thread:
        for limit in (None, 60):
            name = fresh("exact")
            namespace = admin.namespace(f"public/{name}")
            source, target = (f"persistent://{namespace}/{end}" for end in ("source", "target"))
            filled(broker.service, MESSAGES, batch, source)
            proxy = Limited(thread)
            if limit is not None:
                proxy.limit(controller_mutation_rate=0.01, controller_mutation_burst=10)
                thread.set(
                    {
                        f"resourcegroups.{name}": {"publishRateInMsgs": limit},
                        f"namespaces.{namespace}": {
                            "resourcegroup": name,
                            "subscriptionDispatchRate": rate(limit),
                        },
                    }
                )
            done = copy(thread.bootstrap, proxy.user, source, target)
            outcomes = [outcome for outcome, _, _ in done]
            passed = sum(taken for _, taken, _ in done)
            assert outcomes.count("aborted") == len(done) // 3
            stats = admin.stats(source)["subscriptions"]["copies"]
            assert stats["msgBacklog"] == 0
            if limit is not None:
                # A period's rate may come at once.
                assert done[-1][2] / 1000 >= (passed - 2 * limit) / limit
                assert thread.used(name)[0] == passed
                # The target alone is new: coordinators and their topics are Pulsar's own.
                assert 9 <= proxy.balance() < 9.5
            stored_once(broker.service, target)
