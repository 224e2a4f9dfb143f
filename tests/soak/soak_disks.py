"""Disks that are full, may be read only, or take no file of one process."""

import os
import resource
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from weir.stack.process import running

SMALL_BYTES = 32 << 20
_NAME = "soak-of-"
"""A disk's name goes on with the process that mounted it."""


def small_disk(folder: Path) -> bool:
    """Mount one of memory there; whether that may be done here."""
    return _mount("-t", "tmpfs", "-o", f"size={SMALL_BYTES}", f"{_NAME}{os.getpid()}", folder)


def fill(folder: Path) -> Callable[[], object]:
    """Leave no byte of a disk; returns what frees it."""
    filling = folder / "filling"
    with suppress(OSError), filling.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
    return lambda: filling.unlink(missing_ok=True)


def make_read_only(folder: Path) -> Callable[[], object]:
    """Let nobody write to a disk; returns what ends that.

    Raises:
        OSError: it cannot be done.
    """
    # A disk on which the job's lease is open for writing cannot be made read-only: a view of it can.
    if not _mount("--bind", folder, folder):
        raise OSError("the disk cannot be mounted once more")
    if not _mount("-o", "remount,bind,ro", folder):
        _unmount(folder)
        raise OSError("the disk cannot be made read-only")
    return lambda: _unmount(folder)


def forbid_files(pid: int) -> Callable[[], object]:
    """Let a process write no file, which Kafka takes as it takes a full disk; returns what ends that."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def end() -> None:
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)

    return end


def let_go(folder: Path) -> None:
    """Unmount all that is mounted there."""
    while _unmount(folder):
        pass


def let_go_of_dead(folder: Path) -> None:
    """Unmount the disks that runs which were killed have left below a folder."""
    with suppress(OSError):
        for source, where, *_ in map(str.split, Path("/proc/mounts").read_text().splitlines()):
            pid = source.removeprefix(_NAME)
            if pid != source and where.startswith(f"{folder}/") and not running(int(pid)):
                let_go(Path(where))


def _mount(*words: Any) -> bool:
    return subprocess.run(["mount", *map(str, words)], capture_output=True, check=False).returncode == 0


def _unmount(folder: Path) -> bool:
    return subprocess.run(["umount", "-l", folder], capture_output=True, check=False).returncode == 0
