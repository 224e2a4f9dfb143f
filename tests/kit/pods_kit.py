"""Several proxies behind one address: workers of one command, or two behind a Service's stand-in."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from cluster_kit import fresh
from path_kit import SpreadPath
from process_kit import Command
from proxy_kit import until
from stack_kit import series_at

from weir.stack.kafka import free_port

_START_S: Final = 90.0
_ALIVE: Final = "weir_proxy_proxies_alive"
_SERVICE, _PODS = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
_BROKER: Final = 2
"""The only broker's port is so far behind the first one: broker 0's comes next to it, and its id is 1."""


@contextmanager
def workers(kafka: str, folder: Path) -> Iterator[list[str]]:
    """`weir proxy --workers 2`; their address, for each of two clients."""
    listen = f"{_SERVICE}:{free_port()}"
    with ExitStack() as running:
        ready = _start(running, kafka, folder, "workers", "--listen", listen, "--workers", "2")
        _await_each_other(ready["workers"])
        yield [listen, listen]


@contextmanager
def pods(kafka: str, folder: Path) -> Iterator[list[str]]:
    """Two proxies that tell clients the address of one Service; that of the first, and the Service's.

    It gives each connection to the other proxy than the one before.
    """
    port = free_port()
    with ExitStack() as running:
        ready = []
        for host in _PODS:
            words = ["--listen", f"{host}:{port}", "--advertise", _SERVICE]
            ready.append(_start(running, kafka, folder, host, *words))
            assert ready[-1]["brokers"] == {"1": f"{host}:{port + _BROKER}"}
        for number in (port, port + _BROKER):
            targets = [(host, number) for host in _PODS]
            running.enter_context(SpreadPath((_SERVICE, number), targets))
        _await_each_other(ready)
        yield [f"{_PODS[0]}:{port}", f"{_SERVICE}:{port}"]


def _start(running: ExitStack, kafka: str, folder: Path, name: str, *words: str) -> dict[str, Any]:
    """A proxy, until it is ready; what it says then."""
    options = ("--kafka", kafka, "--id", fresh(name), "--metrics", f"{_SERVICE}:0")
    started = Command(folder / name, "proxy", *options, *words)
    running.enter_context(started)
    return started.ready(_START_S)


def _await_each_other(ready: Sequence[dict[str, Any]]) -> None:
    """Until all know how many they are; those of a test before are taken to be alive for a while."""
    for each in ready:
        url = each["metrics"]
        until(lambda url=url: series_at(url)[_ALIVE] == len(ready), _START_S, "all know each other")
