"""Files and folders that users name, looked at before anything is started for them: none shall fail late."""

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from streaming.contract.errors import WeirError


@contextlib.contextmanager
def named(path: Path | str, done: str) -> Iterator[None]:
    """Turn what goes wrong with a path into one line that names it, `PATH: cannot be DONE: why`.

    Raises:
        WeirError: that line.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise WeirError(f"{path}: cannot be {done}: {why}") from error
    except RecursionError as error:
        # Folders above folders are made by functions that call themselves.
        raise WeirError(f"{path}: cannot be {done}: {os.strerror(errno.ENAMETOOLONG)}") from error


def check_readable(path: Path | str) -> None:
    """Return if a file can be opened; pipes and devices are left for their reader to open.

    Raises:
        WeirError: why not.
    """
    with named(path, "read"):
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            with open(path, "rb"):
                return
        if stat.S_ISSOCK(mode):
            raise _error(errno.ENXIO)


def check_writable(path: Path | str) -> None:
    """Return if a file can be written, or is a pipe or a device; nothing is.

    Raises:
        WeirError: why not.
    """
    with named(path, "written"):
        target = os.path.realpath(path)
        try:
            # An empty word is the folder that we are in.
            mode = os.stat(path or os.curdir).st_mode
        except FileNotFoundError:
            mode = stat.S_IFREG
        if stat.S_ISDIR(mode) or stat.S_ISSOCK(mode):
            raise _error(errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO)
        if stat.S_ISREG(mode):
            check_folder(os.path.dirname(target))


def check_files(written: Iterable[Path | str | None], read: Iterable[Path | str | None]) -> None:
    """Return if files can be written, as `check_writable`, each once, and none of them is read, too.

    Args:
        written: None: nothing, as of an option that was not given.
        read: the same; those that are not there are no concern of ours.

    Raises:
        WeirError: why not.
    """
    sources = [each for each in read if each is not None and os.path.isfile(each)]
    places = set[str]()
    for target in written:
        if target is None:
            continue
        check_writable(target)
        place = os.path.realpath(target)
        if place in places and (os.path.isfile(place) or not os.path.exists(place)):
            raise WeirError(f"{target}: cannot be written: two options name it; name another file")
        places.add(place)
        # The draft takes that place, and goes in any case (streaming/log/writing.py).
        for own in (target, f"{place}.partial"):
            if os.path.isfile(own) and any(os.path.samefile(own, source) for source in sources):
                raise WeirError(f"{own}: cannot be written: it is read, too; name another file")


def make_folder(path: Path | str) -> None:
    """Make a folder, with those above it, that files can be made in.

    Raises:
        WeirError: why not.
    """
    with named(path, "used as a folder"):
        os.makedirs(path, exist_ok=True)
        check_folder(path)


def check_folder(folder: Path | str) -> None:
    """Return if files can be made in a folder; raises OSError.

    By trying: what the mode says counts neither for root nor for file systems that hold no files of ours.
    """
    with tempfile.TemporaryFile(dir=folder):
        pass


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
