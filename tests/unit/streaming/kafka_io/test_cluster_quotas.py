"""Quotas of a cluster as policy entries."""

from types import SimpleNamespace
from typing import Any

import pytest

from streaming.kafka_io.cluster_quotas import quota_entries


def values(**rates: float) -> list[Any]:
    """Key-value pairs as kafka-python decodes them."""
    return [SimpleNamespace(key=key, value=value) for key, value in rates.items()]


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        ({"user": "alice"}, "quotas[user=alice]"),
        ({"user": None}, "quotas[user=<default>]"),
        ({"client-id": "x"}, "quotas[client-id=x]"),
        ({"client-id": None}, "quotas[client-id=<default>]"),
        ({"user": "a", "client-id": "x"}, "quotas[user=a,client-id=x]"),
        ({"client-id": None, "user": None}, "quotas[user=<default>,client-id=<default>]"),
        ({"user": "a,b=<c>%"}, "quotas[user=a%2Cb%3D%3Cc>%25]"),
        ({"user": "<default>"}, "quotas[user=%3Cdefault>]"),
    ],
)
def test_entities_become_paths(entity: dict[str, str | None], path: str) -> None:
    """All forms of an entity; None is the default, a user of that name is not."""
    entries, refused = quota_entries([(entity, values(controller_mutation_rate=2.5))])
    assert (entries, refused) == ({path: {"controller_mutation_rate": 2.5}}, [])


def test_only_what_has_a_meaning_here_is_taken() -> None:
    """Byte rates as whole numbers; request percentages and quotas of addresses are left out."""
    quotas = [
        (
            {"user": "a"},
            values(producer_byte_rate=1024.0, consumer_byte_rate=2048.0, request_percentage=50.0),
        ),
        ({"user": "b"}, values(request_percentage=50.0)),
        ({"ip": "10.0.0.1"}, values(connection_creation_rate=5.0)),
        ({"ip": None, "user": "c"}, values(controller_mutation_rate=5.0)),
    ]
    entries, refused = quota_entries(quotas)
    assert entries == {"quotas[user=a]": {"producer_byte_rate": 1024, "consumer_byte_rate": 2048}}
    assert isinstance(entries["quotas[user=a]"]["producer_byte_rate"], int)
    assert refused == []


def test_the_largest_quota_of_kafka_is_the_largest_of_a_policy() -> None:
    """Java's Long.MAX_VALUE, which exempts from a default, is 2^63 as a double; the default held."""
    rates = {"producer_byte_rate": 2.0**63, "controller_mutation_rate": 1e19}
    entries, refused = quota_entries([({"user": "a"}, values(**rates))])
    assert (entries, refused) == ({"quotas[user=a]": dict.fromkeys(rates, 2**63 - 1)}, [])


@pytest.mark.parametrize("rate", [0.0, -5.0, float("nan"), float("inf")])
def test_values_that_a_policy_could_not_hold_are_refused_with_a_reason(rate: float) -> None:
    """The others are still taken."""
    quotas = [
        ({"user": "bad"}, values(controller_mutation_rate=rate)),
        ({"user": "good"}, values(controller_mutation_rate=1.0)),
    ]
    entries, refused = quota_entries(quotas)
    assert list(entries) == ["quotas[user=good]"]
    assert len(refused) == 1 and "quotas[user=bad]" in refused[0]
