"""Classes that Java has read and checked once, at set-up, and maps at every later start (CDS archives)."""

from pathlib import Path
from typing import Final

_ARCHIVE: Final = "classes.jsa"
# An archive of another Java, or of other jars, is left alone without a word: the start is only slower.
_SILENT: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def shared_classes(jars: Path) -> list[str]:
    """Options with which Java takes the classes of these jars from their archive; none if there is none.

    Args:
        jars: folder with the jars that the program runs with; `make setup` puts the archive there.
    """
    archive = jars / _ARCHIVE
    return [f"-XX:SharedArchiveFile={archive.absolute()}", *_SILENT] if archive.exists() else []


def archiving(jars: Path) -> list[str]:
    """Options with which Java, when it ends, archives the classes that it has loaded; see `keep`."""
    return [f"-XX:ArchiveClassesAtExit={_unfinished(jars).absolute()}", *_SILENT]


def forget(jars: Path) -> None:
    """Remove the archive: Java cannot use one and write one."""
    for path in (jars / _ARCHIVE, _unfinished(jars)):
        path.unlink(missing_ok=True)


def keep(jars: Path) -> bool:
    """Put in place what a program started with `archiving` has left behind; False if it left nothing."""
    if not _unfinished(jars).exists():
        return False
    # Renamed: a program that starts meanwhile must never map half an archive.
    _unfinished(jars).replace(jars / _ARCHIVE)
    return True


def _unfinished(jars: Path) -> Path:
    return jars / f"{_ARCHIVE}.part"
