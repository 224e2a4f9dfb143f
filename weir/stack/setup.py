"""What a machine needs before parts of Weir run on it: jars, laws in machine code, archives of classes."""

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import streaming
from streaming.contract.errors import WeirError
from streaming.job.spark.class_archive import shared_classes
from streaming.job.spark.java import find_java
from weir.jars.folders import KAFKA, PULSAR, SPARK, folder_of, jars_base
from weir.jars.installation import fetch_jars
from weir.jars.wait import Wait, never
from weir.stack.pulsar import archive_classes

_COMPILED: Final = ".compiled"
COMPILE: Final = (
    "import sys; from streaming.columns.compiled import kept; from streaming.job.operator import warm_up;"
    " warm_up(); sys.exit(not kept())"
)
"""Fails where nothing is kept of it: each start would compile anew."""
_COMPILE_LIMIT_S: Final = 600.0
_ARCHIVE_LIMIT_S: Final = 600.0
_LAST_LINES: Final = 5


def set_up(
    kinds: Sequence[str], say: Callable[[str], None], stopping: Callable[[], bool] = never,
    repository: str = "",
) -> bool:  # fmt: skip
    """Bring what is missing for these kinds of jars (`folders.KINDS`), from a Maven repository or by Maven.

    Whether anything was. `stopping` is asked while it waits; True gives up.

    Raises:
        WeirError: Java or jars are not to be had, or the laws do not compile. Without archives of classes all
            works, and starts take twice as long; that is said and no error.
    """
    find_java()
    done = [fetch_jars(kind, say, stopping, repository) for kind in kinds]
    if SPARK in kinds:
        done.append(_compile(say, stopping))
    if SPARK in kinds and not shared_classes(folder_of(SPARK)):
        done.append(_archive_both(say, stopping))
    if PULSAR in kinds and not shared_classes(folder_of(PULSAR)):
        done.append(archive_classes(say, stopping))
    return any(done)


def _compile(say: Callable[[str], None], stopping: Callable[[], bool]) -> bool:
    stamp, wanted = jars_base() / _COMPILED, _laws()
    if stamp.exists() and stamp.read_text() == wanted:
        return False
    say("compiling the laws (half a minute)")
    if said := _run(["-c", COMPILE], Wait("the laws", say, stopping, "compiling"), _COMPILE_LIMIT_S):
        raise WeirError(f"the laws could not be compiled: {said}")
    stamp.write_text(wanted)
    return True


def _laws() -> str:
    """Changes with all that Numba's cache is found by: sources, this Python, the user, the cache's folder."""
    place = (sys.version, version("numba"), str(os.getuid()), os.environ.get("NUMBA_CACHE_DIR", ""))
    stamp = hashlib.sha256("\n".join(place).encode())
    home = Path(streaming.__file__).parent
    for path in sorted(path for room in ("columns", "laws") for path in (home / room).rglob("*.py")):
        stamp.update(str(path).encode() + path.read_bytes())
    return stamp.hexdigest()


def _archive_both(say: Callable[[str], None], stopping: Callable[[], bool]) -> bool:
    """Of Kafka and Spark, since the job archives its classes at work, with a broker."""
    if not any(folder_of(KAFKA).glob("*.jar")):
        say("no archive of Spark's classes, which takes a broker (--kafka): the job starts half as fast")
        return False
    say("archiving the classes of Kafka and Spark (half a minute)")
    wait = Wait("the classes of Kafka and Spark", say, stopping, "archiving")
    if said := _run(["-m", "weir.stack.archive"], wait, _ARCHIVE_LIMIT_S):
        say(f"going on without an archive, starts take longer: {said}")
    return True


def _run(words: Sequence[str], wait: Wait, limit_s: float) -> str:
    """Run Python; what it said last if it failed. A process of its own: it sets variables and loads a JVM."""
    said = wait.run([sys.executable, *words], limit_s, _LAST_LINES)
    return "" if said is None else " | ".join(said) or "no reason"
