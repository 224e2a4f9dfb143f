"""Where the jars of `make setup` are, and which java runs them."""

import fcntl
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from streaming.contract.errors import WeirError
from streaming.job.spark.class_archive import shared_classes
from weir.stack.process import Child

# The jars stand beside the sources, not in the wheel: the project is installed editable.
ROOT = Path(__file__).resolve().parents[2]
_MADE_BY: Final = {"pulsar_broker": "make pulsar", "pulsar_tools": "make bench NAME=pulsar"}
"""The targets of the Makefile that fetch what `make setup` does not."""
_FETCH_LIMIT_S: Final = 1_800.0
_STILL_FETCHING_S: Final = 10.0
_POLL_S: Final = 0.1


def jars_dir(kind: str) -> Path:
    """Folder with the jars of `kind`: a folder of `conf` that has a pom.xml.

    $WEIR_JARS names the folder that holds them, default `.weir/jars` of the project.

    Raises:
        WeirError: there are none; says how to get them.
    """
    folder = _folder(kind)
    if not any(folder.glob("*.jar")):
        target = _MADE_BY.get(kind, "make setup")
        raise WeirError(f"no {kind} jars in {folder}; run `{target}` or set WEIR_JARS")
    return folder


def fetch_jars(kind: str, say: Callable[[str], None], stopping: Callable[[], bool] = lambda: False) -> None:
    """Fetch the jars of `kind` as `make` does, if they are not there: only those whose sums are pinned.

    Args:
        kind: as of `jars_dir`.
        say: takes lines for people, one every ten seconds.
        stopping: asked while waiting; True gives up.

    Raises:
        WeirError: they could not be fetched, with the end of what Maven said; or it was stopped.
    """
    folder = _folder(kind)
    if (folder / ".fetched").exists():
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f".{kind}.lock").open("a") as lock:
            _wait_for(lambda: _locked(lock.fileno()), kind, say, stopping)
            if (folder / ".fetched").exists():
                return
            say(f"fetching {kind} jars with Maven, once (about a minute) ...")
            words = (ROOT / "scripts/fetch-jars.sh", ROOT / "conf" / kind / "pom.xml", folder)
            script = Child(f"{kind} jars", [str(word) for word in words], log=folder.parent / f".{kind}.log")
            script.start()
            try:
                _wait_for(lambda: not script.alive(), kind, say, stopping)
            finally:
                script.kill()
            if script.poll():
                raise WeirError(f"no {kind} jars: " + " | ".join(script.last_lines(5)))
    except OSError as error:
        raise WeirError(f"no {kind} jars: {error}") from error


def _wait_for(
    done: Callable[[], bool], kind: str, say: Callable[[str], None], stopping: Callable[[], bool]
) -> None:
    begun = time.monotonic()
    next_word = begun + _STILL_FETCHING_S
    while not done():
        if stopping():
            raise WeirError(f"stopped while {kind} jars were fetched")
        now = time.monotonic()
        if now > begun + _FETCH_LIMIT_S:
            raise WeirError(f"no {kind} jars within {_FETCH_LIMIT_S:.0f} s")
        if now > next_word:
            next_word += _STILL_FETCHING_S
            say(f"still fetching {kind} jars ({now - begun:.0f} s)")
        time.sleep(_POLL_S)


def _locked(descriptor: int) -> bool:
    """Whether we, and no other program, may fetch now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _folder(kind: str) -> Path:
    base = Path(os.environ.get("WEIR_JARS") or ROOT / ".weir" / "jars")
    # Without links: an archive of classes holds for one spelling of its jars' path.
    return base.resolve() / kind


def java() -> str:
    """Path of the java program, from $JAVA_HOME or $PATH.

    Raises:
        WeirError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None) or shutil.which("java")
    if not found:
        raise WeirError("java was not found; install a JDK 17 or later, or set JAVA_HOME")
    return found


def java_command(
    main_class: str,
    *args: str,
    heap_mb: int = 512,
    properties: tuple[str, ...] = (),
    kind: str = "kafka",
    options: tuple[str, ...] = (),
) -> list[str]:
    """Command line of one Java program: the broker, Kafka's own tools, or another kind's.

    Args:
        main_class: for example `kafka.Kafka` or `org.apache.kafka.tools.TopicCommand`.
        args: the program's arguments.
        heap_mb: limit of the heap in MiB.
        properties: `name=value` system properties.
        kind: whose jars, as of `jars_dir`.
        options: further ones of the JVM.
    """
    jars = jars_dir(kind)
    # Serial collector and first-tier compiler: small and quick to start, which is what a local
    # broker and one-shot tools need on two cores.
    return [
        java(),
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *shared_classes(jars),
        *options,
        *(f"-D{entry}" for entry in properties),
        "-cp",
        f"{jars}/*",
        main_class,
        *args,
    ]
