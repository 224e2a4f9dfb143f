"""Which of the soak's brokers leads the controllers (tests/soak)."""

import json
from pathlib import Path

from kafka.record import MemoryRecordsBuilder
from soak_kafka import BROKERS, Brokers

from weir.stack.process import Child


def test_the_newest_word_of_the_quorum_names_the_leader(tmp_path: Path) -> None:
    """One that was killed has an old word or half a file, one that seeks a leader knows none."""
    brokers = Brokers(tmp_path, [{} for _ in range(BROKERS)])
    brokers.children = [Child(f"kafka-{node}", [], log=None) for node in range(BROKERS)]
    assert brokers.leader() is brokers.children[0]

    files = []
    for node, (leader, epoch) in enumerate([(2, 5), (3, 7), (-1, 8)]):
        files.append(tmp_path / f"broker-{node + 1}" / "log" / "__cluster_metadata-0" / "quorum-state")
        files[-1].parent.mkdir(parents=True)
        files[-1].write_text(json.dumps({"leaderId": leader, "leaderEpoch": epoch}))
    assert brokers.leader() is brokers.children[2]

    files[1].write_text(files[1].read_text()[:-4])
    assert brokers.leader() is brokers.children[1]


def test_who_wrote_what_stands_in_the_log(tmp_path: Path) -> None:
    """Of each offset, of a batch with several too; what a killed broker left half is no batch."""
    brokers = Brokers(tmp_path, [{} for _ in range(BROKERS)])
    folder = tmp_path / "broker-1" / "log" / "t-0"
    folder.mkdir(parents=True)
    batches = []
    for first, count, epoch in [(0, 3, 29), (3, 1, 30)]:
        own = {"producer_id": 2, "producer_epoch": epoch, "base_sequence": 0}
        made = MemoryRecordsBuilder(2, 0, 1 << 20, **own)
        for _ in range(count):
            made.append(timestamp=0, key=None, value=b"x")
        made.close()
        # A broker puts in where it stands.
        batches.append(first.to_bytes(8, "big") + bytes(made.buffer())[8:])
    (folder / "00000000000000000000.log").write_bytes(b"".join(batches) + batches[0][:60])
    assert brokers.epochs("t") == dict.fromkeys(range(3), (2, 29)) | {3: (2, 30)}
