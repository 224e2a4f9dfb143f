"""What is kept within a bound."""

from streaming.contract.lru_cache import Kept


def test_the_ones_used_longest_ago_leave() -> None:
    """Looking one up is using it."""
    kept = Kept(10)
    for key in "abc":
        kept.put(key, key.upper(), 3)
    assert kept.get("a") == "A"
    kept.put("d", "D", 4)
    assert [kept.get(key) for key in "abcd"] == ["A", None, "C", "D"]


def test_a_key_is_counted_once() -> None:
    """Its new value takes the place of the old one."""
    kept = Kept(10)
    for _ in range(5):
        kept.put("a", 1, 6)
    kept.put("b", 2, 4)
    assert (kept.get("a"), kept.get("b")) == (1, 2)


def test_what_is_too_large_is_kept_alone() -> None:
    """Otherwise the largest policies would be read again in each batch."""
    kept = Kept(10)
    kept.put("a", 1, 2)
    kept.put("b", 2, 100)
    assert (len(kept), kept.get("b")) == (1, 2)
    kept.put("c", 3, 1)
    assert (len(kept), kept.get("c")) == (1, 3)
