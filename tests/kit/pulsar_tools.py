"""Pulsar's Java clients, as tests use them; how they are started the benchmarks know."""

import re
import subprocess
from pathlib import Path
from typing import Final

from benchmarks.load.pulsar_perf import tool
from weir.jars.folders import PULSAR, jars_dir

CLIENT: Final = "org.apache.pulsar.client.cli.PulsarClientTool"
_CONTENT: Final = re.compile(r"^publishTime:.*?, content:(.*)$", re.MULTILINE)


def java_produce(service: str, topic: str, messages: list[str], folder: Path, *words: str) -> None:
    """`pulsar-client produce`; messages must hold no comma. It has to end with 0."""
    given = ["--url", f"pulsar://{service}", "produce", "-m", ",".join(messages), *words, topic]
    done = tool(CLIENT, folder, *given)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def java_consume(service: str, topic: str, count: int, folder: Path, *words: str) -> list[str]:
    """`pulsar-client consume` from the beginning; contents in the order in which they came."""
    given = ["--url", f"pulsar://{service}", "consume", "-n", str(count), "-s", "java", "-p", "Earliest"]
    done = tool(CLIENT, folder, *given, *words, topic)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return _CONTENT.findall(done.stdout)


def java_says(source: Path, *words: str, limit_s: float = 120.0) -> list[list[str]]:
    """The words of each line that a program of ours with Pulsar's client says. It has to end with 0."""
    command = ["java", "-cp", f"{jars_dir(PULSAR)}/*", str(source), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return [line.split(" ") for line in done.stdout.splitlines()]
