"""Which Java runs the job, and what else of Java's runs beside it."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from streaming.contract.errors import WeirError

# Spark 4.1 runs on 17 and 21; Hadoop's client calls Subject.getSubject, which 24 removed.
JAVA_OLDEST, JAVA_NEWEST = 17, 23


def find_java() -> Path:
    """Home of a Java that all can use: $JAVA_HOME, then the path, then the usual folders.

    Raises:
        WeirError: there is none.
    """
    seen: list[str] = []
    for home in _java_homes():
        version = _java_version(home)
        if JAVA_OLDEST <= version <= JAVA_NEWEST:
            return home
        if version:
            seen.append(f"{home} is Java {version}")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise WeirError(
        f"no Java {JAVA_OLDEST} to {JAVA_NEWEST} found{found}; install a JDK {JAVA_OLDEST} and set JAVA_HOME"
    )


def _java_homes() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    program = shutil.which("java")
    if program:
        yield Path(program).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("*"))
    yield from sorted(Path("/Library/Java/JavaVirtualMachines").glob("*/Contents/Home"))


def _java_version(home: Path) -> int:
    """Major version from the `release` file that every JDK since 8 has; 0 if this is none."""
    try:
        text = (home / "release").read_text()
    except OSError:
        return 0
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(match.group(1)) if match and (home / "bin" / "java").exists() else 0
