"""Where replay's events come from: files or a cluster, and options of one with the other."""

from pathlib import Path

import pytest

from weir.cli import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "one of the arguments --events --from-kafka is required"),
        (("--events", "e", "--from-kafka", "127.0.0.1:1"), "not allowed with argument"),
        (("--events", "e", "--from", "-1h"), "--from, --to and --settings need --from-kafka HOST:PORT"),
    ],
)
def test_options_that_do_not_go_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    """Bad usage, which says what is."""
    with pytest.raises(SystemExit) as stopped:
        main(["replay", "--policies", "p", "--out", str(tmp_path / "out"), *words])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
