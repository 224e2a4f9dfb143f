"""What a worker's memory makes of names as long as Kafka takes them."""

import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from law_kit import policy, quota, request
from spark_kit import LIVE, group_state, record_columns

from enforcer.host.budget import resident_bytes
from streaming.columns.records import Records
from streaming.job import schemas
from streaming.job.blobs.local import FileBlobStore
from streaming.job.grouping_keys import grouping_keys_of
from streaming.job.operator import group_function, warm_up
from streaming.job.spark.memory import UNUSUAL_BYTES, is_unusual

NAMES, NAME_CHARS = 1_500, 10_000
EVERYBODY = "quotas[user=<default>,client-id=<default>]"
LIMIT_MIB = 64


def grown_mib(folder: Path, at_once: int) -> float:
    """By how much a worker grows when each of many client-ids asks once, so many in a batch."""
    warm_up()
    given = replace(LIVE, shards=1, tasks=1, blob_stores=FileBlobStore(folder, 2))
    decide, state = group_function(given), group_state()
    key = (grouping_keys_of(1, 1)["mutation"][0],)

    def asked(number: int) -> tuple[int, int, dict[str, Any]]:
        name = f"{number}-{'c' * NAME_CHARS}"
        subject = f"user=alice,client-id={name}"
        return schemas.EVENT, number, request(str(number), number, 1, client_id=name, subject=subject)

    def step(first: int, count: int) -> None:
        limit = (schemas.POLICY, first, policy(0, EVERYBODY, quota(5)))
        records = record_columns([limit, *map(asked, range(first, first + count))])
        rows = sum(len(each[0]) for each in decide(key, iter([records]), state))
        assert rows == count

    step(NAMES, 1)
    before = resident_bytes()
    for first in range(0, NAMES, at_once):
        step(first, at_once)
    return (resident_bytes() - before) / 2**20


@pytest.mark.parametrize("at_once", [50, NAMES])
def test_made_up_names_leave_a_worker_as_small_as_it_was(tmp_path: Path, at_once: int) -> None:
    """15 MB of names, a few at a time or in one batch of 30 MB."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(grown_mib, (tmp_path, at_once)) < LIMIT_MIB


@pytest.mark.parametrize(
    ("count", "size", "unusual"),
    [(1, UNUSUAL_BYTES, True), (1, UNUSUAL_BYTES - 1, False), (2000, 4096, True), (2000, 4095, False)],
)
def test_memory_is_given_back_after_large_records_only(count: int, size: int, unusual: bool) -> None:
    """Batches of many small records, which come one after the other, keep what they need."""
    assert is_unusual(Records(value=[b"x" * size] * count)) is unusual
