"""Pulsar's Java clients and its own proxy as processes: pulsar-perf, pulsar-client, pulsar-proxy."""

import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stack_kit import until

from weir.stack.jars import java_command
from weir.stack.kafka import HOST, free_port
from weir.stack.process import Child
from weir.stack.pulsar import LocalPulsar

KIND: Final = "pulsar_tools"
LIMIT_S: Final = 120.0
PERF: Final = "org.apache.pulsar.testclient.PulsarPerfTestTool"
CLIENT: Final = "org.apache.pulsar.client.cli.PulsarClientTool"
OWN_PROXY: Final = "org.apache.pulsar.proxy.server.ProxyServiceStarter"
_QUIET: Final = {"OTEL_SDK_DISABLED": "true"}
# Figures come through the log; both compilers, as in Pulsar's own scripts: what runs for long is measured.
_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=4",
    "-XX:MaxDirectMemorySize=1g",
    *("--add-opens", "java.base/sun.net=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
    *("--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED"),
    "-Dio.netty.tryReflectionSetAccessible=true",
)
_LOGGING: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %-5level %c{1} - %msg%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""
_PRODUCED: Final = re.compile(
    r"Aggregated throughput stats --- +(\d+) records sent --- +([\d.]+) msg/s --- +([\d.]+) Mbit/s"
)
_CONSUMED: Final = re.compile(
    r"Aggregated throughput stats --- +(\d+) records received --- +([\d.]+) msg/s --- +([\d.]+) Mbit/s"
)
_LATENCY: Final = re.compile(
    r"Aggregated latency stats --- .*?mean: +([\d.]+) ms - med: +([\d.]+) - 95pct: +([\d.]+)"
    r" - 99pct: +([\d.]+)"
)
_CONTENT: Final = re.compile(r"^publishTime:.*?, content:(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Measured:
    """What pulsar-perf says at its end.

    Attributes:
        messages: all of them.
        rate: messages per second.
        mbit: of payload per second.
        mean_ms, p50_ms, p95_ms, p99_ms: produce: until the receipt; consume: from being published on.
    """

    messages: int
    rate: float
    mbit: float
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float


def tool(
    main_class: str, folder: Path, *words: str, limit_s: float = LIMIT_S
) -> "subprocess.CompletedProcess[str]":
    """Run one of them to its end; `folder` takes the empty settings file that their scripts name."""
    (folder / "client.conf").touch()
    command = _command(main_class, folder, str(folder / "client.conf"), *words)
    return subprocess.run(
        command, capture_output=True, text=True, timeout=limit_s, check=False, env={**os.environ, **_QUIET}
    )


def perf(
    kind: str, service: str, topic: str, folder: Path, *words: str, limit_s: float = LIMIT_S
) -> Measured:
    """`pulsar-perf produce` or `consume` on `HOST:PORT`; it has to end with 0 and say its figures.

    Args:
        kind: "produce" or "consume"; both need an end, such as `-m` messages or `-time` seconds.
        service: `HOST:PORT`.
        topic: its name.
        folder: for its files.
        words: further options.
        limit_s: for all of it.
    """
    done = tool(PERF, folder, kind, "-u", f"pulsar://{service}", *words, topic, limit_s=limit_s)
    pattern = _PRODUCED if kind == "produce" else _CONSUMED
    sums, times = pattern.search(done.stdout), _LATENCY.search(done.stdout)
    assert sums and times, f"{done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    messages, rate, mbit = sums.groups()
    return Measured(int(messages), float(rate), float(mbit), *(float(value) for value in times.groups()))


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


@contextmanager
def own_proxy(pulsar: LocalPulsar, folder: Path) -> Iterator[str]:
    """Pulsar's own proxy in front of a local Pulsar; gives its `HOST:PORT`."""
    port, web_port = free_port(), free_port()
    lines = {
        "clusterName": "standalone",
        "brokerServiceURL": f"pulsar://{pulsar.service}",
        "brokerWebServiceURL": pulsar.admin,
        "servicePort": port,
        "webServicePort": web_port,
        "bindAddress": HOST,
        "advertisedAddress": HOST,
        # By default it connects to brokers on 6650 and 6651 only.
        "brokerProxyAllowedTargetPorts": "*",
    }
    conf = folder / "proxy.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    command = _command(OWN_PROXY, folder, "-c", str(conf))
    child = Child("own proxy", command, log=folder / "own.log", env=_QUIET)
    child.start()

    def serves() -> bool:
        assert child.alive(), child.last_lines(20)
        try:
            with urllib.request.urlopen(f"http://{HOST}:{web_port}/admin/v2/clusters", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        until(serves, what="Pulsar's own proxy", limit_s=LIMIT_S)
        yield f"{HOST}:{port}"
    finally:
        child.stop(10.0)


def _command(main_class: str, folder: Path, *words: str) -> list[str]:
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING)
    return java_command(
        main_class, *words, kind=KIND, properties=(f"log4j2.configurationFile={logging}",), options=_OPTIONS
    )
