"""`weir proxy --workers`: several processes that share one port, started, watched, started again, stopped.

Each is a proxy of its own, with an id of its own, so decisions and shares work between them as between any
proxies. The kernel gives each new connection to one of them.
"""

import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Final

from enforcer.host.doors.listening import reserve
from weir.foreground import StopSignal, forget_ready_file, write_ready_file
from weir.stack.parts import Part, look_after, stop_all

WORKERS_MAX: Final = 64
"""More processes than this are a mistake in the command."""
_POLL_S: Final = 0.1
_FORCED: Final = 1
_STOP_MORE_S: Final = 4.0


def run_workers(
    count: int, words: Sequence[str], listen: tuple[str, int], say: Callable[[str], None], *,
    metrics: tuple[str, int] | None, proxy_id: str | None, ready_file: Path | None, stop_s: float,
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
                f"worker {place + 1}", own, command="proxy", log=None, run_dir=Path(folder), start_s=inf,
                alone=True,
            ))  # fmt: skip
        try:
            for part in parts:
                part.start()
            while not stop.wait(_POLL_S):
                if look_after(parts, say) and all(part.ready for part in parts):
                    ready = [part.ready or {} for part in parts]
                    write_ready_file(ready_file, {**ready[0], "pid": os.getpid(), "workers": ready}, say)
        finally:
            stop_all(parts, stop_s + _STOP_MORE_S, say)
    return 0
