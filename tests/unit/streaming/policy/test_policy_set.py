"""Resolution of quotas over eight levels, and the names of subjects and entries."""

import tracemalloc
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries

from streaming.contract.errors import BadEvent
from streaming.contract.events import ANONYMOUS
from streaming.contract.names import encode_name, parse_subject, subject_of
from streaming.policy import policy_set as policy
from streaming.policy.policy_set import MutationQuota, PolicySet, Section, parse_path

LEVELS = (
    (1, {"user": "alice", "client-id": "cli"}, "user=alice,client-id=cli"),
    (2, {"user": "alice", "client-id": None}, "user=alice,client-id=cli"),
    (3, {"user": "alice"}, "user=alice"),
    (4, {"user": None, "client-id": "cli"}, "user=alice,client-id=cli"),
    (5, {"user": None, "client-id": None}, "user=alice,client-id=cli"),
    (6, {"user": None}, "user=alice"),
    (7, {"client-id": "cli"}, "client-id=cli"),
    (8, {"client-id": None}, "client-id=cli"),
)
NAMES = st.text(max_size=6) | st.sampled_from(["", "a", "<default>", "a,b", "a=b", "%2C", "ANONYMOUS", "é]"])


def entry(rate: float, **more: Any) -> dict[str, Any]:
    """A quota's value."""
    return {"controller_mutation_rate": rate, **more}


def reference(entries: dict[str, Any], user: str, client_id: str) -> tuple[int, float, str] | None:
    """The table of docs/contract.md 2, written down once more: every match, then the lowest level."""
    both, user_only = subject_of(user, client_id), subject_of(user, None)
    client_only = subject_of(None, client_id)
    subjects = {
        1: both, 2: both, 3: user_only, 4: both, 5: both, 6: user_only, 7: client_only, 8: client_only,
    }  # fmt: skip
    found = []
    for path, value in entries.items():
        entity = parse_path(path).entity
        assert entity is not None
        user_part, client_part = (
            "none" if kind not in entity else "default" if entity[kind] is None else "named"
            for kind in ("user", "client-id")
        )
        level = {
            ("named", "named"): 1, ("named", "default"): 2, ("named", "none"): 3, ("default", "named"): 4,
            ("default", "default"): 5, ("default", "none"): 6, ("none", "named"): 7, ("none", "default"): 8,
        }[user_part, client_part]  # fmt: skip
        matches = entity.get("user") in (None, user) and entity.get("client-id") in (None, client_id)
        if matches and value.get("controller_mutation_rate", -1) != -1:
            found.append((level, value["controller_mutation_rate"], subjects[level]))
    return min(found, default=None)


def seen(quota: MutationQuota | None) -> tuple[int, float, str] | None:
    """What the reference can say too."""
    return None if quota is None else (quota.level, quota.rate, quota.subject)


@pytest.mark.parametrize("present", list(product((False, True), repeat=8)))
def test_the_first_of_eight_levels_wins(present: tuple[bool, ...]) -> None:
    """Whatever levels have an entry, the lowest number decides rate, subject and path."""
    chosen = [level for level, here in zip(LEVELS, present, strict=True) if here]
    policies = PolicySet({policy.entity_path(entity): entry(level) for level, entity, _ in chosen})
    quota = policies.mutation_quota("alice", "cli")
    if not chosen:
        assert quota is None
        return
    level, entity, subject = chosen[0]
    assert seen(quota) == (level, float(level), subject)
    assert quota is not None
    assert quota.path == policy.entity_path(entity)


@given(
    st.dictionaries(
        st.builds(
            lambda user, client_id: (user, client_id),
            st.none() | st.just(0) | st.sampled_from(["a", "", "<default>"]),
            st.none() | st.just(0) | st.sampled_from(["c", "", "<default>"]),
        ).filter(lambda parts: parts != (None, None)),
        st.sampled_from([{}, {"controller_mutation_rate": -1}, {"producer_byte_rate": 5}])
        | st.integers(1, 9).map(lambda rate: {"controller_mutation_rate": rate}),
        max_size=10,
    ),
    st.sampled_from(["a", "b", "<default>", ANONYMOUS]),
    st.sampled_from(["c", "", "d", "<default>"]),
)
@tries(300)
def test_resolution_equals_the_slow_reference(table: dict[Any, Any], user: str, client_id: str) -> None:
    """Entries without a rate are passed over; names that look like the default are names."""
    entries = {
        policy.entity_path({
            kind: None if part == 0 else part
            for kind, part in zip(("user", "client-id"), parts, strict=True)
            if part is not None
        }): value
        for parts, value in table.items()
    }
    policies = PolicySet(entries)
    quota = policies.mutation_quota(user, client_id)
    assert seen(quota) == reference(entries, user, client_id)
    if quota is not None:
        assert policies.mutation_quota_of_subject(quota.subject) == quota


def test_the_burst_is_eleven_times_the_rate_unless_given() -> None:
    """Defaults of a quota: burst, algorithm, shadow."""
    policies = PolicySet(
        {
            "quotas[user=a]": entry(0.7),
            "quotas[user=b]": entry(5, controller_mutation_burst=500, algorithm="sampled_rate", shadow=True),
        }
    )
    first, second = policies.mutation_quota("a", ""), policies.mutation_quota("b", "")
    assert first is not None and second is not None
    assert (first.burst, first.algorithm, first.shadow) == (11 * 0.7, "token_bucket", False)
    assert (second.burst, second.algorithm, second.shadow) == (500.0, "sampled_rate", True)


def test_an_entry_may_say_where_it_is_decided() -> None:
    """Of a user's own and a client's entry the one counts whose rate applies; absent is None."""
    policies = PolicySet(
        {
            "quotas[user=a]": entry(1, decide="strict"),
            "quotas[user=a,client-id=c]": {"decide": "local"},
            "quotas[user=a,client-id=d]": entry(1),
        }
    )
    found = [policies.mutation_quota("a", client_id) for client_id in ("", "c", "d")]
    assert [quota and quota.decide for quota in found] == ["strict", "strict", None]


@pytest.mark.parametrize(
    ("subject", "level"),
    [
        ("user=alice,client-id=cli", 2), ("user=alice", 3), ("user=bob", 6), ("client-id=cli", 8),
        ("user=<default>", None), ("client-id=<default>", None), ("", None), ("group=x", None),
        ("user=alice,", None),
    ],
)  # fmt: skip
def test_a_stamped_subject_finds_the_quota_that_charges_it(subject: str, level: int | None) -> None:
    """Only levels with that very subject count; what is no subject has no quota."""
    policies = PolicySet(
        {
            "quotas[user=alice,client-id=<default>]": entry(2),
            "quotas[user=alice]": entry(3),
            "quotas[user=<default>]": entry(6),
            "quotas[client-id=<default>]": entry(8),
        }
    )
    quota = policies.mutation_quota_of_subject(subject)
    assert (quota.level if quota else None) == level


@given(NAMES, NAMES)
def test_names_survive_subjects(user: str, client_id: str) -> None:
    """Encoding is undone exactly, for each of the three kinds of subject."""
    for names in ((user, client_id), (user, None), (None, client_id)):
        assert parse_subject(subject_of(*names)) == names


@given(NAMES, NAMES)
def test_names_survive_paths(user: str, client_id: str) -> None:
    """The path of an entity reads back as that entity."""
    for entity in (
        {"user": user, "client-id": client_id},
        {"user": user, "client-id": None},
        {"user": None},
        {"client-id": client_id},
    ):
        assert parse_path(policy.entity_path(entity)).entity == entity


def test_what_has_a_meaning_in_subjects_is_encoded() -> None:
    """Comma, equals sign, percent sign and less-than sign."""
    assert encode_name("a,b=c%<d>") == "a%2Cb%3Dc%25%3Cd>"


@pytest.mark.parametrize(
    "path",
    [
        "", "quotas", "quotas[]", "quotas[user=a", "quotas[client-id=c,user=a]", "quotas[user=a,]",
        "quotas[user=a,client-id=b,client-id=c]", "quotas[user=%2c]", "quotas[user=a=b]",
        "quotas[user=<defaul>]", "resourcegroups.", "namespace.acme/orders", "broker.x",
        "backpressure.partitions.",
    ],
)  # fmt: skip
def test_other_paths_are_refused(path: str) -> None:
    """One entry has one path."""
    with pytest.raises(BadEvent):
        parse_path(path)


def test_paths_are_taken_apart() -> None:
    """A name may hold dots and slashes."""
    assert parse_path("broker").section is Section.BROKER
    assert parse_path("topics.persistent://a/b/c.d").name == "persistent://a/b/c.d"
    assert parse_path("backpressure.partitions.*").name == "*"


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that invent names do not fill the memory, and answers stay right."""
    monkeypatch.setattr(policy, "CACHED_QUOTA_BYTES", 10_000)
    policies = PolicySet({"quotas[user=<default>]": entry(3)})
    for length in (1, 100, 10_000):
        for number in range(100):
            name = f"u{number}".ljust(length, "x")
            assert seen(policies.mutation_quota(name, "")) == (6, 3.0, f"user={name}")
            assert seen(policies.mutation_quota_of_subject(f"user={name}")) == (6, 3.0, f"user={name}")
            for cache in (policies._of_request, policies._of_subject):
                assert 0 < len(cache) <= 10_000 / 450 and cache._size <= 10_000


def test_many_clients_take_as_much_as_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reckoned is what is taken: memory levels off, with short names and with long ones."""
    monkeypatch.setattr(policy, "CACHED_QUOTA_BYTES", 2**20)
    policies = PolicySet({"quotas[user=<default>,client-id=<default>]": entry(3)})
    tracemalloc.start()
    for length in (8, 300):
        taken = []
        for number in range(4):
            for client in range(1_750):
                policies.mutation_quota("ANONYMOUS", f"{number}-{client}".ljust(length, "x"))
            taken.append(tracemalloc.get_traced_memory()[0])
        assert taken[-1] < 1.25 * policy.CACHED_QUOTA_BYTES
        assert taken[3] - taken[2] < 2**16
    tracemalloc.stop()
