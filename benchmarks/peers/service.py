"""Starts one node of a peer on loopback, as its documentation sets one up, and asks it by the load client."""

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.kit.machine import cpu_s
from benchmarks.peers.build import CLIENT, GUBERNATOR, RATELIMIT, Program, Unavailable, listening
from weir.stack.kafka import HOST, free_port
from weir.stack.process import Child

_CALL_LIMIT_S: Final = 30.0
# Room for every subject: by default Gubernator keeps 50,000 and would forget half of them all the time.
_GUBERNATOR_CACHE: Final = 200_000
_LOCAL_CACHE_BYTES: Final = 64 * 2**20
_LIMITS: Final = """\
domain: weir
descriptors:
  - key: subject
    rate_limit: {unit: day, requests_per_unit: 1000000000}
  - key: held
    rate_limit: {unit: day, requests_per_unit: 1}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the load client saw.

    Attributes:
        checks: answered.
        refused: of these.
        seconds: how long it asked.
        cpu_s: processor time of the service, its store included and the client not.
        latency_us: 10,001 order statistics of the calls.
        late_us: the same of how late the client itself began calls; empty in a closed loop.
    """

    checks: int
    refused: int
    seconds: float
    cpu_s: float
    latency_us: list[float]
    late_us: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running peer.

    Attributes:
        api: what the load client calls its API.
        address: HOST:PORT.
        children: all that it consists of.
    """

    api: str
    address: str
    children: Sequence[Child]

    def ask(self, **options: float) -> Answers:
        """Run the load client with these options (`benchmarks/peers/main.go` says which).

        Raises:
            Unavailable: a call failed, or the client did.
        """
        used_s = self._cpu_s()
        seen = self._client(options)
        used_s = self._cpu_s() - used_s
        if seen["failed"]:
            raise Unavailable(f"{self.api}: {seen['failed']} checks failed, one with: {seen['failure']}")
        del seen["failed"], seen["failure"]
        return Answers(**seen, cpu_s=used_s)

    def _cpu_s(self) -> float:
        return sum(cpu_s(child.pid) for child in self.children)

    def _client(self, options: Mapping[str, float]) -> dict[str, Any]:
        command = [str(CLIENT.path), "-api", self.api, "-address", self.address]
        command += [f"-{name}={value}" for name, value in options.items()]
        try:
            done = subprocess.run(
                command, capture_output=True, check=True, timeout=_CALL_LIMIT_S + options.get("seconds", 0.0)
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or b""
            raise Unavailable(f"{self.api}: the client failed: {error} {said.decode()}") from error
        seen: dict[str, Any] = orjson.loads(done.stdout)
        return seen


def gubernator(folder: Path) -> AbstractContextManager[Service]:
    """One node without tracing, which is on by default and costs it much."""
    address, gossip = f"{HOST}:{free_port()}", f"{HOST}:{free_port()}"
    environment = {
        "GUBER_GRPC_ADDRESS": address, "GUBER_HTTP_ADDRESS": f"{HOST}:{free_port()}",
        "GUBER_ADVERTISE_ADDRESS": address, "GUBER_MEMBERLIST_ADDRESS": gossip,
        "GUBER_MEMBERLIST_BIND_ADDRESS": gossip, "GUBER_MEMBERLIST_KNOWN_NODES": gossip,
        "GUBER_CACHE_SIZE": str(_GUBERNATOR_CACHE), "GUBER_LOG_LEVEL": "error",
        "OTEL_TRACES_EXPORTER": "none", "OTEL_TRACES_SAMPLER": "always_off",
    }  # fmt: skip
    return _running(folder, GUBERNATOR, environment, address)


@contextmanager
def ratelimit(folder: Path) -> Iterator[Service]:
    """One service with a Redis that writes nothing to disk, over its default, a Unix socket.

    Statistics off, and its cache of refused subjects on, which it is not by default.
    """
    redis = shutil.which("redis-server")
    if redis is None:
        raise Unavailable("ratelimit: there is no redis-server command")
    # By its name alone, since the path of a socket must be short.
    socket, address = "redis.sock", f"{HOST}:{free_port()}"
    (folder / "limits" / "config").mkdir(parents=True, exist_ok=True)
    (folder / "limits" / "config" / "weir.yaml").write_text(_LIMITS)
    environment = {
        "HOST": HOST,
        "PORT": str(free_port()),
        "DEBUG_HOST": HOST,
        "DEBUG_PORT": str(free_port()),
        "GRPC_HOST": HOST,
        "GRPC_PORT": address.rpartition(":")[2],
        "USE_STATSD": "false",
        "DISABLE_STATS": "true",
        "REDIS_SOCKET_TYPE": "unix",
        "REDIS_URL": socket,
        "RUNTIME_ROOT": str(folder / "limits"),
        "RUNTIME_WATCH_ROOT": "false",
        "LOCAL_CACHE_SIZE_IN_BYTES": str(_LOCAL_CACHE_BYTES),
    }
    command = [redis, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"]
    store = _child(folder, "redis", command, {})
    with (
        listening(store, socket, (folder / socket).stat),
        _running(folder, RATELIMIT, environment, address, store) as service,
    ):
        yield service


PEERS: Final[Mapping[Program, Callable[[Path], Any]]] = {GUBERNATOR: gubernator, RATELIMIT: ratelimit}


@contextmanager
def _running(
    folder: Path, program: Program, environment: Mapping[str, str], address: str, *stores: Child
) -> Iterator[Service]:
    """A service that answers checks, beside what it keeps its counts in."""
    child = _child(folder, program.name, [str(program.path)], environment)
    service = Service(api=program.name, address=address, children=[child, *stores])
    with listening(child, address, lambda: service.ask(subjects=1, passes=1)):
        yield service


def _child(folder: Path, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Child:
    """A process in a folder that knows no variables of ours."""
    variables = [f"{key}={value}" for key, value in environment.items()]
    words = ["/usr/bin/env", "-i", "-C", str(folder), *variables, *command]
    return Child(name, words, log=folder / f"{name}.log")
