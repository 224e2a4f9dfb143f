"""Kafka's own kafka-producer-perf-test and kafka-consumer-perf-test."""

import re
import subprocess
from pathlib import Path
from typing import Final

from benchmarks.kit.machine import BOTH_COMPILERS
from streaming.contract.errors import WeirError
from weir.jars.java import java_command

LIMIT_S: Final = 120.0
_MB: Final = 1_048_576
_PRODUCED = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\)")


def produce(address: str, topic: str, *, count: int, record_bytes: int, client: Path | None = None) -> float:
    """Send records with one producer at its defaults, as fast as it can; returns MiB/s.

    Args:
        address: `HOST:PORT`.
        topic: takes them.
        count: of them.
        record_bytes: of each.
        client: its properties, if there are any.

    Raises:
        WeirError: it failed or did not end within LIMIT_S.
    """
    out = _run(
        "org.apache.kafka.tools.ProducerPerformance",
        "--topic", topic, "--num-records", str(count), "--record-size", str(record_bytes),
        "--throughput", "-1", "--command-property", f"bootstrap.servers={address}",
        *(() if client is None else ("--command-config", str(client))),
    )  # fmt: skip
    # The last line is that of the whole run; those before it are of five seconds each.
    found = [_PRODUCED.match(line) for line in out.splitlines()]
    total = found[-1] if found else None
    if total is None or int(total[1]) != count:
        raise WeirError(f"kafka-producer-perf-test said: {out[-500:]}")
    return float(total[2]) * record_bytes / _MB


def consume(address: str, topic: str, *, count: int, client: Path | None = None) -> float:
    """Read the first records of a topic with one consumer at its defaults; returns MiB/s while fetching.

    Args:
        address, topic, count, client: see produce.

    Raises:
        WeirError: it failed, got fewer records or did not end within LIMIT_S.
    """
    out = _run(
        "org.apache.kafka.tools.ConsumerPerformance",
        "--topic", topic, "--num-records", str(count), "--bootstrap-server", address, "--timeout", "20000",
        *(() if client is None else ("--command-config", str(client))),
    )  # fmt: skip
    lines = [line.split(", ") for line in out.splitlines() if ", " in line]
    values = dict(zip(lines[0], lines[-1], strict=False)) if lines else {}
    if int(values.get("data.consumed.in.nMsg", 0)) < count:
        raise WeirError(f"kafka-consumer-perf-test said: {out[-500:]}")
    return float(values["fetch.MB.sec"])


def _run(program: str, *words: str) -> str:
    try:
        done = subprocess.run(
            java_command(program, *words, options=BOTH_COMPILERS),
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise WeirError(f"{program} did not end within {LIMIT_S:.0f} s") from late
    if done.returncode:
        raise WeirError(f"{program} failed: {(done.stdout + done.stderr)[-500:]}")
    return done.stdout
