"""`weir proxy --workers`: several processes that share one port, started, watched, started again, stopped.

Each is a proxy of its own, with an id of its own, so decisions and shares work between them as between any
proxies. The kernel gives each new connection to one of them.
"""

import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Final

from enforcer.host.doors.listening import reserve
from streaming.contract.errors import WeirError
from weir.foreground import StopSignal, forget_ready_file, write_ready_file
from weir.stack.parts import Change, Part

WORKERS_MAX: Final = 64
"""More processes than this are a mistake in the command."""
_POLL_S: Final = 0.1
_FORCED: Final = 1
_STOP_MORE_S: Final = 4.0


def run_workers(
    count: int, words: Sequence[str], listen: tuple[str, int], say: Callable[[str], None], *,
    metrics: tuple[str, int] | None, proxy_id: str | None, ready_file: Path | None, stop_s: float,
    restarts_max: int,
) -> int:  # fmt: skip
    """Run so many, with these words, until SIGINT or SIGTERM; a second signal kills them.

    The first serves its metrics at the given address, the others on the ports behind it. Their ids begin with
    `proxy_id`, without one with host name and port. Each takes `stop_s` to stop in order.

    Raises:
        WeirError: the port is taken, or one of them failed too often; the others were stopped.
    """
    parts: list[Part] = []

    def force() -> None:
        for part in parts:
            part.kill()
        # No end on the spot: the folder goes first.
        raise SystemExit(_FORCED)

    stop = StopSignal(force).install()
    with reserve(listen) as port, tempfile.TemporaryDirectory(prefix="weir-workers-") as folder:
        forget_ready_file(ready_file)
        host, number = port.getsockname()[:2]
        name = proxy_id or f"{socket.gethostname()}-{number}"
        for place in range(count):
            # The last ones count where a word is said twice.
            own = [*words, "--worker", "--listen", f"{host}:{number}", "--id", f"{name}-{place + 1}"]
            if metrics is not None:
                own += ["--metrics", f"{metrics[0]}:{metrics[1] + place if metrics[1] else 0}"]
            # It is ready when it has read back what stands, and Kafka may be away: it takes what it takes.
            parts.append(Part(
                "proxy", own, log=None, run_dir=Path(folder) / str(place + 1), start_s=inf,
                restarts_max=restarts_max, alone=True,
            ))  # fmt: skip
        try:
            for part in parts:
                part.start()
            while not stop.wait(_POLL_S):
                if _look(parts, say) and all(part.ready for part in parts):
                    ready = [part.ready or {} for part in parts]
                    write_ready_file(ready_file, {**ready[0], "pid": os.getpid(), "workers": ready}, say)
        finally:
            _stop(parts, stop_s + _STOP_MORE_S, say)
    return 0


def _look(parts: Sequence[Part], say: Callable[[str], None]) -> bool:
    """Look after each once; returns whether one got ready or ended."""
    changed = False
    for number, part in enumerate(parts, 1):
        change = part.look()
        changed = changed or change is not Change.NONE
        if change is Change.READY:
            say(f"worker {number} is ready (process {part.child.pid})")
        elif change is Change.DIED:
            ended = f"worker {number} (process {part.child.pid}) ended with status {part.child.poll()}"
            pause_s = part.plan_restart()
            if pause_s is None:
                raise WeirError(f"{ended}, too often; see its lines above")
            say(f"{ended}; it is started again in {pause_s:.0f} s")
    return changed


def _stop(parts: Sequence[Part], limit_s: float, say: Callable[[str], None]) -> None:
    """All at once, since each waits for its own clients."""
    for part in parts:
        part.child.terminate()
    until = time.monotonic() + limit_s
    for number, part in enumerate(parts, 1):
        if not part.child.wait(until - time.monotonic()):
            say(f"worker {number} did not stop in time and is killed")
        part.kill()
