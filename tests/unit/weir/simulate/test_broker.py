"""The simulated broker."""

from statistics import fmean

from weir.simulate.run import Broker
from weir.simulate.scenario import NS, Scenario


def test_requests_are_served_in_order_by_as_many_servers_as_there_are() -> None:
    """One server has one request at a time, so what comes at once is answered one after the other."""
    broker = Broker(Scenario(servers=1, service_rate=100))
    done = [broker.send(0, number) for number in range(200)]
    assert done == sorted(done) and len(set(done)) == 200
    assert abs(done[-1] / 200 / (NS / 100) - 1) < 0.1


def test_alone_a_request_takes_its_own_work() -> None:
    """Half of the mean at least, and the mean on average; the same for each algorithm."""
    first, second = Broker(Scenario()), Broker(Scenario())
    alone = [first.send(number * NS // 100, number) - number * NS // 100 for number in range(2_000)]
    mean_ns = 8 / 500 * NS
    assert min(alone) >= mean_ns / 2 and abs(fmean(alone) / mean_ns - 1) < 0.05
    assert [second.send(number * NS // 100, number) - number * NS // 100 for number in range(50)] == alone[
        :50
    ]
