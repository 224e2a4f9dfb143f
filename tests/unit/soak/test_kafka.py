"""Which of the soak's brokers leads the controllers (tests/soak)."""

import json
from pathlib import Path

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
