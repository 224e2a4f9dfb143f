"""`weir state show`: what a checkpoint holds (docs/operate/checkpoints.md)."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from streaming.contract.errors import StateError, WeirError
from streaming.contract.printable import printable, printable_array, printable_lines
from streaming.policy.settings import read_settings
from weir.log import aligned
from weir.logs.times import moment
from weir.options import add, add_flag

if TYPE_CHECKING:
    from streaming.job.process.checkpoint_read import CheckpointRead


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its commands."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    show = actions.add_parser(
        "show",
        help="how far it has read, and what the laws remember",
        description="Reads a checkpoint in a folder, beside a job that runs too, without Spark, and changes"
        " nothing. Exit status 1: there is none of this Weir's layout, or one cannot be read.",
    )
    add(show, "checkpoint", "its folder, or the one it lies in (default: job.checkpoint_dir)", nargs="?")
    add(show, "--settings", "settings file, such as conf/weir.yaml", metavar="FILE")
    add_flag(show, "--json", "as an array, an object a checkpoint")
    show.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print it, of what cannot be read why; raises WeirError if there is none."""
    # Imported here: the laws load Numba, which `weir --help` need not wait for.
    from streaming.job.process.checkpoint_read import found, read
    from streaming.job.spark.settings import JobSettings, local_folder

    given = args.checkpoint or read_settings(JobSettings, "job", args.settings).checkpoint_dir
    folder = local_folder(given)
    if folder is None:
        raise WeirError(f"{given}: expected a folder; copy it into one (`hdfs dfs -get`, `aws s3 sync`)")
    paths, whole = found(folder), []
    for path in paths:
        try:
            whole.append(read(path))
        except (StateError, OSError) as error:
            print(printable_lines(f"weir: {error}"), file=sys.stderr)
            continue
        if not args.json:
            print(*([""] if whole[1:] else []), *_lines(whole[-1]), sep="\n", flush=True)
    if args.json:
        # Not orjson, which has neither names that are not UTF-8 nor numbers beyond 64 bits.
        print(printable_array(json.dumps(_fields(one)).encode() for one in whole))
    return 0 if len(whole) == len(paths) else 1


def _fields(one: "CheckpointRead") -> dict[str, Any]:
    note = asdict(one.note)
    last = {name: note[name] for name in ("weir", "pid", "starts", "left")} | {"host": one.note.place.host}
    return {**asdict(one), "path": str(one.path), "note": last}


def _lines(one: "CheckpointRead") -> list[str]:
    note = one.note
    where = f"pid {note.pid} on host {note.place.host}"
    state = "ended" if note.left else "runs, or did not end in order"
    wrote = f"written by Weir {note.weir} ({where}: {state})"
    last = wrote if note.holder else "its job has left no note"
    runs_again = "" if one.next_batch is None else f"; batch {one.next_batch} has begun"
    offsets = [
        (printable(topic), number, str(offset))
        for topic, partitions in one.offsets.items()
        for number, offset in sorted(partitions.items(), key=lambda item: int(item[0]))
    ]
    numbers = ("shard", "subjects", "resting", "state_bytes", "segments", "segment_bytes")
    shards = [
        (f"{shard.law} (candidate {shard.candidate})" if shard.candidate else shard.law,
         *(f"{getattr(shard, name):,}" for name in numbers))
        for shard in one.shards
    ]  # fmt: skip
    return [
        printable(str(one.path)),
        printable(f"layout {one.layout}, {last}"),
        f"batch {one.batch} of {moment(one.batch_ms, 's')} is complete{runs_again}",
        "",
        *aligned([("topic", "partition", "next offset"), *offsets]),
        "",
        *([printable(f"not read: {one.unread}")] if one.unread else aligned([("law", *numbers), *shards])),
    ]
