"""The fake group state behaves as Spark's."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from spark_kit import FakeGroupState

from streaming.job import schemas

COMMANDS = ["get", "update", "get", "update", "remove", "get", "update none", "update"]


def actor() -> Callable[[str, Any], str]:
    """A function that makes one call and says what can be seen of the state afterwards.

    Made here and not at the top: workers cannot import tests, so Spark must ship it by value.
    """

    def act(command: str, state: Any) -> str:
        try:
            if command == "update":
                state.update((7, b"body"))
            elif command == "update none":
                state.update(None)
            elif command == "remove":
                state.remove()
            found = [state.get[0], bytes(state.get[1])]
        except (TypeError, ValueError) as error:
            found = [isinstance(error, TypeError)]
        return f"{command}: {state.exists} {found}"

    return act


def test_the_fake_says_what_spark_says(spark: SparkSession, tmp_path: Path) -> None:
    """The same calls in two batches; the second one begins with the state that the first one left."""
    act, seen = actor(), list[str]()

    def transcript(_: Any, chunks: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        lines = [act(command, state) for chunk in chunks for command in chunk["value"]]
        assert state.getCurrentProcessingTimeMs() > 0
        yield pd.DataFrame({"line": lines})

    source = tmp_path / "in"
    source.mkdir()
    stream = spark.readStream.schema("value string").text(str(source)).selectExpr("value", "1 AS one")
    lines = stream.groupBy("one").applyInPandasWithState(
        transcript, "line string", schemas.STATE, "update", GroupStateTimeout.NoTimeout
    )
    for number in range(2):
        (source / f"{number}.txt").write_text("\n".join(COMMANDS))
        query = (
            lines.writeStream.outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(lambda frame, _: seen.extend(row.line for row in frame.collect()))
            .start()
        )
        assert query.awaitTermination(60)
    fake = FakeGroupState(processed_ts=1)
    assert [act(command, fake) for command in COMMANDS * 2] == seen
