"""A checkpoint in a folder whose last files a power cut has torn goes back to its last whole batch.

Spark renames its files into place and does not sync them, so after a power cut the last of them may be there
without their content. Spark ends at the first one that it cannot read, at each start anew. Going back loses
nothing: what later batches read stands on the topics, and a decision that is written twice changes nothing.
"""

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Final

import orjson

from streaming.contract.errors import StateError
from streaming.job.checkpoint_name import NAME
from streaming.job.process.checkpoint_read import offsets_of
from streaming.job.spark.state_files import SUFFIXES, is_whole, loadable, why_not

YOUNG_S: Final = 60.0
"""Files that are older, by the newest one, are on the disk: Linux writes them after half a minute."""
_ONCE: Final = ("metadata", "sources/*/*", "state/*/_metadata/*", "state/*/*/_metadata/*")
"""What Spark writes before the first batch."""


def go_back(checkpoint: Path) -> str:
    """Leave only what follows from whole batches; a checkpoint without any is set aside as NAME-torn.

    Args:
        checkpoint: a folder that nobody uses; it may not be there.

    Returns:
        What was torn and what was done, for people; empty: nothing was.

    Raises:
        StateError: a file cannot be read or deleted.
    """
    try:
        return _gone_back(checkpoint)
    except OSError as error:
        raise StateError(f"the checkpoint {checkpoint} cannot be looked through: {error}") from error


def _gone_back(checkpoint: Path) -> str:
    found = [path for name in ("offsets/*", "commits/*", "state/0/*/*") for path in checkpoint.glob(name)]
    logs = [path for path in found if path.name.isdecimal()]
    state = [path for path in found if path.suffix in SUFFIXES and path.stem.isdecimal()]
    once = [
        path for name in _ONCE for path in checkpoint.glob(name)
        if path.suffix != ".crc" and path.is_file()
    ]
    torn = _torn(logs, state, once)
    last = _last_whole(checkpoint, logs, state, torn)
    beyond = {path for path in (*logs, *state) if _follows(path) > last}
    # A batch that was stopped leaves a state that the next try writes over.
    if not torn - beyond and beyond.isdisjoint(logs) and (logs or not state):
        return ""
    if last < 0 or not torn.isdisjoint(once):
        aside = checkpoint.with_name(f"{checkpoint.name}-torn")
        shutil.rmtree(aside, ignore_errors=True)
        checkpoint.rename(aside)
        return f"TORN: {checkpoint} has no whole batch (a power cut?): it is now {aside}, the job begins anew"
    for path in torn | beyond:
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return (
        f"TORN: of the last files in {checkpoint} {len(torn)} are not whole (a power cut?): the job goes back"
        f" to batch {last} and decides once more what came since"
    )


def _torn(logs: list[Path], state: list[Path], once: list[Path]) -> set[Path]:
    """The files that Spark could not read, of those that were written last."""
    times = {path: path.stat().st_mtime for path in (*logs, *state, *once)}
    since = max(times.values(), default=0.0) - YOUNG_S
    young = {path for path, time in times.items() if time >= since}
    return {
        *(path for path in young.intersection(logs) if not _is_whole_log(path)),
        *(path for path in young.intersection(state) if not is_whole(path)),
        *(path for path in young.intersection(once) if not path.stat().st_size),
    }


def _is_whole_log(path: Path) -> bool:
    # What the disk does not give is not torn.
    data = path.read_bytes()
    try:
        if path.parent.name == "offsets":
            offsets_of(path)
            return True
        version, told = data.splitlines()
        return version == b"v1" and isinstance(orjson.loads(told), dict)
    except (StateError, ValueError):
        return False


def _last_whole(checkpoint: Path, logs: list[Path], state: list[Path], torn: Collection[Path]) -> int:
    """The last batch that is complete and whose state can be read; -1: there is none."""
    match = NAME.fullmatch(checkpoint.name)
    assert match is not None
    whole = {*logs, *state}.difference(torn)
    tasks = [checkpoint / "state" / "0" / str(task) for task in range(int(match[3]))]
    versions = set.intersection(*(loadable(path for path in whole if path.parent == task) for task in tasks))
    batches = {int(path.name) for path in whole if path.parent.name == "commits"}
    for batch in sorted(batches, reverse=True):
        offsets = checkpoint / "offsets" / str(batch)
        if offsets in whole and (batch + 1 in versions or why_not(offsets_of(offsets)[0]["conf"])):
            return batch
    return -1


def _follows(path: Path) -> int:
    """The last batch that has to be complete for a file to be of use."""
    return int(path.stem) - (path.parent.name != "commits")
