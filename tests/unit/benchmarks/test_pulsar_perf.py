"""What pulsar-perf says is read as figures, and silence is an error."""

import pytest

from benchmarks.load.pulsar_perf import Measured, measured
from streaming.contract.errors import WeirError

LATENCY = "06:49:01.476 INFO  P - Aggregated latency stats --- Latency: mean: 270.752 ms - med: 281.071"
LATENCY += " - 95pct: 344.181 - 99pct: 346.751 - 99.9pct: 348.619 - Max: 348.869\n"


@pytest.mark.parametrize(("verb", "behind"), [("sent", ""), ("received", " --- AckRate: 1.5  msg/s")])
def test_both_kinds_say_the_same_figures(verb: str, behind: str) -> None:
    """Messages, rates and times, wherever they stand among other lines."""
    said = f"Aggregated throughput stats --- 4000 records {verb} --- 2000.5 msg/s --- 1.6 Mbit/s{behind}\n"
    expected = Measured(4_000, 2000.5, 281.071, 346.751)
    assert measured("P - started\n" + said + LATENCY) == expected


@pytest.mark.parametrize("said", ["", LATENCY, "Aggregated throughput stats --- many records sent"])
def test_no_figures_are_an_error(said: str) -> None:
    """Rather than zeros; the message has the end of what was said."""
    with pytest.raises(WeirError, match="who "):
        measured(said, "who")
