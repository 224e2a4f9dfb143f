"""The brokers' clock: never ahead of it, and near."""

from streaming.kafka_io.brokers_clock import WINDOW_MS, BrokersClock


class Bench:
    """A clock of ours that stands 5 s behind the brokers'."""

    def __init__(self) -> None:
        self.own_ms = 1_000.0
        self.clock = BrokersClock(lambda: self.own_ms, lambda: 77)

    def acknowledge(self, delay_ms: float, ahead_ms: int = 5_000) -> None:
        """A record that is written now is acknowledged so much later."""
        record_ms = int(self.own_ms) + ahead_ms
        self.own_ms += delay_ms
        self.clock.learn(record_ms, self.own_ms)


def test_the_quickest_acknowledgement_counts_and_it_never_leads() -> None:
    """Unknown it is our own; then behind by the shortest delay."""
    bench = Bench()
    assert (bench.clock.known, bench.clock.now_ms()) == (False, 77)
    for delay_ms, behind_ms in ((40.0, 40), (3.0, 3), (400.0, 3)):
        bench.acknowledge(delay_ms)
        assert bench.clock.now_ms() == bench.own_ms + 5_000 - behind_ms
    assert bench.clock.known


def test_a_clock_that_was_set_is_learnt_anew() -> None:
    """Forward at once, back after two windows at most."""
    bench = Bench()
    bench.acknowledge(1.0)
    bench.acknowledge(1.0, ahead_ms=9_000)
    assert bench.clock.now_ms() == bench.own_ms + 8_999
    for _ in range(2):
        bench.own_ms += WINDOW_MS
        bench.acknowledge(1.0, ahead_ms=2_000)
    assert bench.clock.now_ms() == bench.own_ms + 1_999


def test_what_was_learnt_before_a_long_silence_is_not_kept_beside_the_new() -> None:
    """The newest acknowledgement alone counts then."""
    bench = Bench()
    bench.acknowledge(1.0, ahead_ms=9_000)
    bench.own_ms += 3 * WINDOW_MS
    bench.acknowledge(50.0)
    assert bench.clock.now_ms() == bench.own_ms + 4_950
