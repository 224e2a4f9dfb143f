"""Files, folders and other things that a path may lead to, none of which a command expects."""

import gzip
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

GOOD_POLICIES: Final = b"version: 1\nquotas:\n- entity: {user: alice}\n  controller_mutation_rate: 5\n"
GOOD_EVENTS: Final = b'{"type":"request","id":"a","ts":1,"items":[{"name":"x","mutations":1}]}\n'
_LETTERS: Final = "abcdefghij"
_BOMB: Final = "a: &a [x]\n" + "".join(
    f"{one}: &{one} [{', '.join([f'*{before}'] * 9)}]\n" for before, one in pairwise(_LETTERS)
)
_PACKED: Final = gzip.compress(bytes(range(256)) * 400)
CONTENTS: Final[Mapping[str, bytes]] = {
    "binary": bytes(range(256)) * 20,
    "nuls": b"\0" * 100,
    "not-utf8": b"a: \xff\xfe\n",
    "utf16": "version: 1\n".encode("utf-16"),
    "half.gz": _PACKED[: len(_PACKED) // 2],
    "damaged.gz": _PACKED[:20] + b"\xff" * 20 + _PACKED[40:],
    "no.gz": b"hello",
    "no.parquet": b"PAR1hello",
    "a-list": b"[1, 2]\n",
    "a-number": b"5\n",
    "a-text": b'"x"\n',
    "huge-number": b'{"version": 1e999, "pid": 123456789012345678901234567890, "a": %s}\n' % (b"9" * 5000),
    "wrong-types": b"".join(
        b"%s: 5\n" % name
        for name in (b"kafka", b"job", b"proxy", b"pulsar", b"admin", b"http", b"collect", b"backlog", b"pid")
    ),
    "wrong-ready.json": b'{"pid": "abc", "kafka": "x", "metrics": 7, "workers": 5}',
    "wrong-port.json": b'{"metrics": "http://127.0.0.1:99999/m"}',
    "bomb": _BOMB.encode(),
    "deep": b"[" * 100_000,
    "deep-closed": b"[" * 50_000 + b"]" * 50_000,
    "tag": b"!!python/object/apply:os.system ['true']\n",
    "its-own-part": b"a: &a [*a]\n",
    "unknown-alias": b"a: *b\n",
    "two-documents": b"a: 1\n---\nb: 2\n",
    "control": b"a: \x07\n",
    "surrogate": b'version: "\\ud800"\n',
    "no-text-key": b"? [a, b]\n: c\n",
}
"""Name of a file -> what stands there."""


class WrongPaths:
    """Them, in a folder of their own.

    Attributes:
        unreadable: what cannot be read, whatever is expected there.
        contents: files that can be read and hold nonsense.
        unwritable: where no file can be written.
        no_plain_file: where nothing that has to be a plain file may be put; others' devices among it.
        no_folder: what cannot be made a folder to write to.

    Args:
        folder: for them.
        device: a character device.
    """

    def __init__(self, folder: Path, device: str) -> None:
        (folder / "folder").mkdir()
        (folder / "plain").write_bytes(b"5")
        (folder / "dangling").symlink_to(folder / "no-such-folder" / "x")
        (folder / "loop").symlink_to(folder / "loop-back")
        (folder / "loop-back").symlink_to(folder / "loop")
        with socket.socket(socket.AF_UNIX) as there:
            there.bind(str(folder / "socket"))
        os.mkfifo(folder / "pipe")
        # Also root is refused here, whose rights go everywhere else.
        nowhere = {
            "under a device": "/dev/null/x", "in /proc": "/proc/x", "in a process": "/proc/self/x",
            "in /sys": "/sys/x", "under a file": f"{folder}/plain/x",
            "a name too long": str(folder / ("x" * 300)), "a path too long": "/x" * 5_000,
        }  # fmt: skip
        links = {"loop of links": str(folder / "loop"), "socket": str(folder / "socket")}
        self.unreadable = nowhere | links | {
            "missing": str(folder / "missing"), "folder": str(folder / "folder"),
            "dangling link": str(folder / "dangling"), "endless device": "/dev/zero",
            "memory": "/proc/self/mem", "line break": str(folder / "a\nb"),
            "not UTF-8": str(folder / "a\udcffb"),
        }  # fmt: skip
        self.contents: dict[str, str] = {}
        for name, content in CONTENTS.items():
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o600)
            self.contents[name] = str(folder / name)
        self.unwritable = nowhere | links | {
            "folder": str(folder / "folder"),
            "dangling link": str(folder / "dangling"),
            "missing folder": str(folder / "no\nsuch" / "x"),
        }
        plain = {"device": device, "pipe": str(folder / "pipe")}
        self.no_plain_file = nowhere | plain | {key: self.unwritable[key] for key in ("socket", "folder")}
        self.no_folder = nowhere | links | plain | {"file": str(folder / "plain")}
        self.pipe = str(folder / "pipe")

    @contextmanager
    def written(self, path: str) -> Iterator[None]:
        """Each reader of the pipe is written nonsense meanwhile, if that is the path; else it would wait."""
        ended = threading.Event()

        def write() -> None:
            while not ended.wait(0.02):
                with suppress(OSError):
                    # Fails as long as nobody reads.
                    pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                    os.write(pipe, b"\0nonsense\n")
                    os.close(pipe)

        writer = threading.Thread(target=write, daemon=True)
        if path == self.pipe:
            writer.start()
        try:
            yield
        finally:
            ended.set()
            if path == self.pipe:
                writer.join()


@contextmanager
def terminal() -> Iterator[str]:
    """A character device that even root cannot replace: its folder holds nothing else."""
    ours, theirs = os.openpty()
    try:
        yield os.ttyname(theirs)
    finally:
        os.close(ours)
        os.close(theirs)
