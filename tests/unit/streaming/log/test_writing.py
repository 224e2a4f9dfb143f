"""Files of lines, packed by their names."""

import gzip
from pathlib import Path

from streaming.log.writing import write_lines


def test_the_same_lines_give_the_same_packed_file_under_any_name(tmp_path: Path) -> None:
    """The name of the draft stood in it."""
    files = [tmp_path / "one.jsonl.gz", tmp_path / "another.jsonl.gz"]
    for file in files:
        write_lines(str(file), [b"{}", b"[1]"])
    one, another = (file.read_bytes() for file in files)
    assert one == another and gzip.decompress(one) == b"{}\n[1]\n"
