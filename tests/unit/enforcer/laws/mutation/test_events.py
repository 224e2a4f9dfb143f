"""Events that fit a record, whatever the topics are called."""

from typing import Any

import orjson
from each_kit import each

from enforcer.laws.mutation.events import EVENT_BYTES_MAX, in_own_names, put_items


def fitted(counts: dict[str, int], *, may_sum: bool, key: str = "user=a", **more: Any) -> Any:
    """What becomes of items: aliases and the event, both None if there is no way."""
    event: dict[str, Any] = {"type": "request", "user": "a", "client_id": "c", "subject": key, **more}
    put = put_items(event, key, counts, may_sum=may_sum)
    if put is None:
        assert "items" not in event
        return None, None
    sent, aliases = put
    assert event["items"] == [{"name": name, "mutations": count} for name, count in sent.items()]
    assert len(orjson.dumps(event)) + len(key.encode()) <= EVENT_BYTES_MAX
    return aliases, event


def test_names_are_cut_only_where_they_must_be() -> None:
    """2,500 long names go as they are, 4,200 are cut, 15,000 keep their numbers alone; counts stay."""
    for many, first in ((2_500, "x" * 245), (4_200, "x" * 32 + "#0"), (15_000, "#0")):
        counts = {"x" * 245 + f"{number:05}": number for number in range(many)}
        aliases, event = fitted(counts, may_sum=False)
        assert event["items"][0]["name"].startswith(first)
        assert [item["mutations"] for item in event["items"]] == list(range(many))
        names = [item["name"] for item in event["items"]]
        if aliases:
            assert in_own_names(aliases, frozenset(names[5:7])) == frozenset(list(counts)[5:7])
            assert in_own_names(aliases, frozenset({"forged"})) == frozenset()
        else:
            assert names == list(counts)


def test_there_is_room_for_what_is_rejected() -> None:
    """1,650 long names fit twice, 2,500 only once: then they are cut, and all of them may be rejected."""
    for many, cut in ((1_650, False), (2_500, True), (15_000, True)):
        counts = {"x" * 245 + f"{number:05}": 1 for number in range(many)}
        event: dict[str, Any] = {"type": "request", "user": "a", "client_id": "c", "subject": "user=a"}
        put = put_items(event, "user=a", counts, may_sum=False, twice=True)
        assert put is not None and bool(put[1]) is cut
        event["decided"] = {"outcome": "reject", "rejected": [item["name"] for item in event["items"]]}
        assert len(orjson.dumps(event)) <= EVENT_BYTES_MAX + 100


def test_what_is_decided_together_may_be_one_sum() -> None:
    """30,000 items fit no event; where all of them pass or none does, their sum does."""
    counts = {f"t{number}": 2 for number in range(30_000)}
    assert fitted(counts, may_sum=False) == (None, None)
    aliases, event = fitted(counts, may_sum=True)
    assert event["items"] == [{"name": "30000 items", "mutations": 60_000}]
    assert in_own_names(aliases, frozenset({"30000 items"})) == frozenset(counts)


@each("letter", ["x", "\x01", "%", '"', "\u00e9", "\U0001f9a6"])
def test_the_largest_client_leaves_room_for_a_sum(letter: str) -> None:
    """User and client-id as long as a header can hold them, in what takes most room in JSON or a subject."""
    longest = letter * (32_767 // len(letter.encode()))
    key = f"user={longest},client-id={longest}".replace("%", "%25")
    counts = {letter * 1_000 + str(number): 1 for number in range(500)}
    _, event = fitted(counts, may_sum=True, key=key, user=longest, client_id=longest)
    assert event is not None and sum(item["mutations"] for item in event["items"]) == 500
