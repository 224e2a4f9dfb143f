"""Numbers of the laws' shards, chosen so that Spark spreads them evenly over its tasks.

Spark puts a number into the task that its hash names. Numbers from 0 up would fall where they like: of four
shards in two tasks three lie in one. So each shard takes the first number whose hash names the task it should
be in; the layout of a checkpoint depends on that choice (`checkpoint_name.LAYOUT`).
"""

from functools import cache
from typing import Final

from streaming.laws.registry import LAWS, NUMBERS

_SEED: Final = 42
_CANDIDATES: Final = 1 << 24
"""No shard of the policies in force has such a number."""
_MASK: Final = 0xFFFFFFFF


@cache
def grouping_keys_of(shards: int, tasks: int) -> dict[str, list[int]]:
    """Per law, the number of each of its shards: shard s falls into task s modulo `tasks`.

    Args:
        shards: per law.
        tasks: of the stateful stage.

    Example: one task takes any number, so the shards of the first law are 0, 16, 32 and 48.
    """
    return {law.name: _numbers(law.number, shards, tasks) for law in LAWS.by_name.values()}


def candidate_key(candidate: int) -> int:
    """Where the numbers of a candidate begin; a law's is so much further as `LawSpec.number` says.

    All its shards are one: its subjects are others than those that events are routed by.
    """
    return _CANDIDATES + NUMBERS * candidate


def law_of_key(key: int, shards: int, tasks: int) -> tuple[int | None, str, int]:
    """Number of the candidate (None: the policies in force), law and shard of a number.

    Raises:
        StopIteration, ValueError: no shard has it.
    """
    law = next(law.name for law in LAWS.by_name.values() if law.number == key % NUMBERS)
    if key < _CANDIDATES:
        return None, law, grouping_keys_of(shards, tasks)[law].index(key)
    return (key - _CANDIDATES) // NUMBERS, law, 0


def task_of(place: int, tasks: int) -> int:
    """The task into which Spark's HashPartitioning puts a number: Murmur3 of an int, seed 42, modulo."""
    mixed = _rotated(place * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    mixed = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _MASK) ^ 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _MASK
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _MASK
    mixed ^= mixed >> 16
    # Java's int has a sign, Spark's modulo has none.
    return (mixed - (1 << 32) if mixed >> 31 else mixed) % tasks


def _numbers(law: int, shards: int, tasks: int) -> list[int]:
    wanted = {task: list(range(task, shards, tasks))[::-1] for task in range(min(tasks, shards))}
    chosen = [0] * shards
    place = law
    while wanted:
        task = task_of(place, tasks)
        if task in wanted:
            chosen[wanted[task].pop()] = place
            if not wanted[task]:
                del wanted[task]
        place += NUMBERS
    return chosen


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK
