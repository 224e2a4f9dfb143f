"""Pulsar's own Java tools as processes, pulsar-perf above all: how they are started, what they say."""

import os
import re
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Final

from benchmarks.kit.machine import BOTH_COMPILERS
from streaming.contract.errors import WeirError
from weir.jars.java import java_command
from weir.stack.process import Child

KIND: Final = "pulsar_tools"
"""Their jars, as of `jars_dir`."""
LIMIT_S: Final = 120.0
HEAP_MB: Final = 512
QUIET: Final = {"OTEL_SDK_DISABLED": "true"}
"""Environment in which they do not look for somebody to report to."""
_PERF: Final = "org.apache.pulsar.testclient.PulsarPerfTestTool"
# Figures come through the log.
_OPTIONS: Final = (
    *BOTH_COMPILERS,
    "-XX:MaxDirectMemorySize=1g",
    *("--add-opens", "java.base/sun.net=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
    *("--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED"),
    "-Dio.netty.tryReflectionSetAccessible=true",
)
# Told to stop, pulsar-perf says its figures in a shutdown hook; the logger would have stopped in its own.
_LOGGING: Final = """\
status = error
shutdownHook = disable
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %-5level %c{1} - %msg%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""
_SUMS: Final = re.compile(
    r"Aggregated throughput stats --- +(\d+) records (?:sent|received) --- +([\d.]+) msg/s"
)
_LATENCY: Final = re.compile(r"Aggregated latency stats --- .*? med: +([\d.]+) - .*? - 99pct: +([\d.]+)")
_SECOND: Final = re.compile(r"Publish throughput: .*Ack received rate: +([\d.]+) ack/s")
_POLL_S: Final = 0.1
_STOP_LIMIT_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What pulsar-perf says at its end.

    Attributes:
        messages: all of them.
        rate: messages per second.
        p50_ms, p99_ms: produce: until the receipt; consume: from being published on, in whole milliseconds.
    """

    messages: int
    rate: float
    p50_ms: float
    p99_ms: float


def perf(kind: str, service: str, topic: str, folder: Path, *words: str) -> Measured:
    """`pulsar-perf produce` or `consume` on `HOST:PORT`.

    Args:
        kind: "produce" or "consume"; both need an end, such as `-m` messages or `-time` seconds.
        service: `HOST:PORT`.
        topic: its name.
        folder: for its files.
        words: further options.

    Raises:
        WeirError: it did not end in time, or without figures.
    """
    try:
        done = tool(_PERF, folder, kind, "-u", f"pulsar://{service}", *words, topic)
    except subprocess.TimeoutExpired as late:
        raise WeirError(f"pulsar-perf {kind} did not end within {LIMIT_S:.0f} s") from late
    return measured(done.stdout, f"pulsar-perf {kind} ended with {done.returncode}: {done.stderr[-500:]}")


def paced(
    service: str, topic: str, folder: Path, *words: str, warm_s: int, window_s: int
) -> Measured:
    """`pulsar-perf produce` for so long, without what it does before and behind that.

    Its own rate counts from the start of its JVM to its next look at the clock, up to ten seconds behind
    the last message; so the rate here is that of receipts in the seconds of the window, as its client notes
    them.

    Args:
        service, topic, folder, words: as of `perf`; without an end in `words`.
        warm_s: first seconds of sending, which are left out of rates and times.
        window_s: those behind them.

    Raises:
        WeirError: it ended, did not come so far in time, or said no figures.
    """
    log = folder / f"produce-{time.monotonic_ns()}.log"
    settings = folder / "client.conf"
    settings.touch()
    given = ("-i", "1", "--warmup-time", str(warm_s), "-u", f"pulsar://{service}")
    command = tool_command(_PERF, folder, str(settings), "produce", *given, *words, topic)
    child = Child("pulsar-perf", command, log=log, env=QUIET)
    until = time.monotonic() + LIMIT_S
    child.start()
    try:
        while len(_SECOND.findall(log.read_text())) < warm_s + window_s:
            if not child.alive() or time.monotonic() > until:
                raise WeirError(f"pulsar-perf produce: {child.last_lines(5)}")
            time.sleep(_POLL_S)
    finally:
        child.stop(_STOP_LIMIT_S)
    said = log.read_text()
    rates = [float(rate) for rate in _SECOND.findall(said)][warm_s : warm_s + window_s]
    return replace(measured(said), rate=fmean(rates))


def measured(said: str, who: str = "pulsar-perf") -> Measured:
    """The figures in what pulsar-perf said.

    Raises:
        WeirError: there are none; the message is `who` and the end of what it said.
    """
    sums, times = _SUMS.search(said), _LATENCY.search(said)
    if sums is None or times is None:
        raise WeirError(f"{who} {said[-2000:]}")
    return Measured(int(sums[1]), float(sums[2]), *map(float, times.groups()))


def tool(main_class: str, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run one of the tools to its end, LIMIT_S long at most; then subprocess.TimeoutExpired.

    Args:
        main_class: the tool.
        folder: takes the empty settings file that their scripts name.
        words: its arguments.
    """
    settings = folder / "client.conf"
    settings.touch()
    return subprocess.run(
        tool_command(main_class, folder, str(settings), *words),
        capture_output=True, text=True, timeout=LIMIT_S, check=False, env={**os.environ, **QUIET},
    )  # fmt: skip


def tool_command(main_class: str, folder: Path, *words: str) -> list[str]:
    """Command line of one of the programs among those jars; `folder` takes its logging settings."""
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING)
    return java_command(
        main_class, *words,
        heap_mb=HEAP_MB, kind=KIND, properties=(f"log4j2.configurationFile={logging}",), options=_OPTIONS,
    )  # fmt: skip
