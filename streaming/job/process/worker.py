"""The daemon that Spark forks its Python workers from (`spark.python.daemon.module`).

Every task calls `importlib.invalidate_caches()`. With `pyspark.zip` on `sys.path` that reads the archive's
directory again each time: over 80 % of a small task's Python time (docs/decisions.md, "Job"). So the
archives leave the path, everything that a task needs is imported before the first fork, and the call is made
to do nothing.
"""

import gc
import importlib
import sys


def main() -> None:
    """Prepare the interpreter, then run pyspark's own daemon in it."""
    # Nothing may be printed before the daemon has sent its port: Spark reads it from standard output.
    _drop_archives()
    _preload()
    importlib.invalidate_caches = _nothing_changed
    # The daemon's workers collect garbage after every task. Frozen, the hundred thousands of objects that the
    # imports made are not walked each time, and their memory stays shared between the workers.
    gc.collect()
    gc.freeze()
    from pyspark import daemon

    daemon.manager()  # type: ignore[no-untyped-call]


def _drop_archives() -> None:
    # The same modules are installed as ordinary files, or this one would not have been found.
    sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".egg"))]
    for entry in [entry for entry in sys.path_importer_cache if entry.endswith((".zip", ".egg"))]:
        del sys.path_importer_cache[entry]


def _preload() -> None:
    import numba  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow  # noqa: F401
    import pyspark.sql.pandas.serializers
    import pyspark.worker  # noqa: F401

    from streaming.job import operator
    from streaming.job.spark import arrow_serializer

    operator.warm_up()
    arrow_serializer.install()


def _nothing_changed() -> None:
    """Modules do not come and go while a worker lives."""


if __name__ == "__main__":
    main()
