"""The local Pulsar, and the clients of the test kit directly on it."""

import pulsar as client_library
from pulsar_kit import Admin, client, fresh, receive, send_all

from weir.stack.pulsar import LocalPulsar


def test_messages_pass(pulsar: LocalPulsar, admin: Admin) -> None:
    """A Python client gets what it sent, in order, also after the topic was unloaded."""
    topic = admin.topic(fresh("passing"))
    messages = [b"%d" % number for number in range(50)]
    with client(pulsar.service) as connected:
        consumer = connected.subscribe(topic, "all", initial_position=client_library.InitialPosition.Earliest)
        producer = connected.create_producer(topic, batching_enabled=False)
        sent = send_all(producer, messages)
        assert len(sent) == 50 and all(one.began < one.ended for one in sent)
        assert [one.data for one in receive(consumer, most=50)] == messages
        assert admin.stats(topic)["msgInCounter"] == 50
        admin.unload(topic)
        assert len(send_all(producer, [b"after"])) == 1
        # What was acknowledged just before may come once more.
        assert receive(consumer, quiet_s=1)[-1].data == b"after"


def test_topics_over_the_admin_api(pulsar: LocalPulsar, admin: Admin) -> None:
    """What the other tests stand on: tenants, namespaces, partitioned topics and how they end."""
    namespace = admin.namespace(f"{fresh('acme')}/orders")
    topic = admin.topic(f"persistent://{namespace}/parts", partitions=3)
    assert admin.partitions(topic) == 3 and admin.exists(topic)
    assert len(admin.topics(namespace)) == 3
    admin.delete(topic)
    assert not admin.exists(topic)
    assert admin.ask("PUT", "namespaces/nobody/orders").status == 404
