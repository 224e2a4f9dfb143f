"""`python -m benchmarks.kit.alone MODULE OUT [--smoke]`: one benchmark in this process, for the runner."""

import importlib
import signal
import sys
from pathlib import Path
from types import FrameType

from benchmarks.kit.progress import Progress
from benchmarks.kit.result import to_json


def main(module: str, out: str, *options: str) -> None:
    """Run a benchmark and write its result as JSON."""
    # As an exception a request to stop runs every `with` to its end, so that nothing is left running.
    signal.signal(signal.SIGTERM, _stop)
    benchmark = importlib.import_module(module)
    with Progress(benchmark.DURATION_S, name=module.rpartition(".")[2]) as progress:
        result = benchmark.run(smoke="--smoke" in options, progress=progress)
        progress.step("done", 1.0)
    Path(out).write_bytes(to_json(result))


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main(*sys.argv[1:])
