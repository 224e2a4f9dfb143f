"""Brokers that clients may be connected to."""

from pathlib import Path

from each_kit import each

from enforcer.pulsar.lookup.targets import Targets, parse_target


@each(
    ("text", "target"),
    [
        ("broker:6650", ("broker", 6650)), ("Broker.Example:1", ("broker.example", 1)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)), ("[::1]:6650", ("::1", 6650)), ("::1:6650", None),
        ("broker", None), ("broker:", None), (":6650", None), ("broker:0", None), ("broker:65536", None),
        ("broker:-1", None), ("broker:٦٦٥٠", None), ("broker:99999999999999999999", None),
        ("pulsar://broker:6650", None), ("broker:6650/x", None), ("a b:6650", None), ("a\n:6650", None),
        ("x" * 300 + ":6650", None), ("x" * 63 + ".example.:6650", ("x" * 63 + ".example.", 6650)),
        ("x" * 64 + ".example:6650", None), ("a..b:6650", None), (".:6650", None), ("", None),
    ],
)
def test_addresses(text: str, target: tuple[str, int] | None) -> None:
    """HOST:PORT and nothing else."""
    assert parse_target(text) == target


def test_nothing_else_can_be_reached() -> None:
    """Only the broker of --pulsar, those that brokers have named, and those of the settings."""
    targets = Targets([("First", 6650)], ["broker-*.internal:6650", "10.0.0.9:*"], 100)
    assert targets.allows(("first", 6650)) and not targets.allows(("first", 6651))
    assert targets.allows(("broker-7.internal", 6650)) and not targets.allows(("broker-7.internal", 22))
    assert not targets.allows(("broker-7.internal.evil", 6650))
    assert targets.allows(("10.0.0.9", 22)) and not targets.allows(("10.0.0.90", 22))
    assert not targets.allows(("10a0.0.9", 22))
    assert not targets.allows(("second", 6650))
    assert targets.learn("pulsar://Second:6650") == ("second", 6650)
    assert targets.allows(("second", 6650))
    assert targets.learn("pulsar+ssl://third:6651") is None and targets.learn("") is None
    assert targets.learn("pulsar://third:6650,fourth:6650") is None
    assert not targets.allows(("third", 6651))


@each(
    ("pattern", "inside", "outside"),
    [
        ("broker-*:6650", "broker-17", "broker-17.evil.example"),
        ("10.0.0.*:6650", "10.0.0.17", "10.0.0.17.evil.example"), ("10.0.*:*", "10.0.3.4", "10.0.example"),
        ("[2001:db8::1]:6650", "2001:db8::1", "2001:db8::2"),
        ("[2001:db8::*]:6650", "2001:db8::7", "2001:db8::.example"),
        ("[2001:db8::1]:*", "2001:db8::1", "2001:db8::1:5"),
        ("*.internal:6650", "a.b.internal", "a.internal.example"), ("*:6650", "a.b.example", None),
    ],
)
def test_nobody_can_have_a_name_that_a_pattern_means(pattern: str, inside: str, outside: str | None) -> None:
    """A client names what it likes, and a domain of its own may lead anywhere."""
    targets = Targets([], [pattern], 2)
    assert targets.allows((inside, 6650))
    assert outside is None or not targets.allows((outside, 6650))


def test_a_worker_that_has_seen_no_lookup_goes_by_what_another_one_was_told(tmp_path: Path) -> None:
    """It connected to brokers itself that only a proxy of Pulsar's reaches; its own news count more."""
    first, second = (Targets([("p", 6650)], ["*"], 9, sign=tmp_path / "through") for _ in range(2))
    broker = ("b-2", 6650)
    assert not second.through(broker)
    for through in (False, True, False, True):
        first.learn("pulsar://b-2:6650", through=through)
        assert first.through(broker) is second.through(broker) is through and not second.through(("p", 6650))
    second.learn("pulsar://b-2:6650")
    assert first.through(broker) and not second.through(broker)
    # With its folder gone each goes by its own.
    lost = Targets([], [], 9, sign=tmp_path / "gone" / "through")
    lost.learn("pulsar://b-2:6650", through=True)
    assert lost.through(broker) and not Targets([], [], 9).through(broker)


def test_what_was_named_longest_ago_goes_first() -> None:
    """The table is bounded, and who is named again stays."""
    targets = Targets([], [], 2)
    for host in ("a", "b", "a", "c"):
        targets.learn(f"pulsar://{host}:1")
    assert len(targets) == 2
    assert [targets.allows((host, 1)) for host in "abc"] == [True, False, True]
