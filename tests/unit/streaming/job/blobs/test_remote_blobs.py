"""Segments that are far away, here in a folder of this machine, and their cache."""

import errno
import fcntl
import os
import pickle
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pyarrow as pa
import pytest

from streaming.contract.errors import StateError, WeirError
from streaming.job.blobs import cache as caches
from streaming.job.blobs import local, object_store
from streaming.job.blobs import webhdfs as webhdfs_module
from streaming.job.blobs.cache import SegmentCache
from streaming.job.blobs.places import object_store as object_store_of
from streaming.job.blobs.places import remote_stores, webhdfs
from streaming.job.blobs.remote import RemoteBlobStore
from streaming.job.spark.settings import JobSettings
from streaming.state.body import packed

SECRET = "nobody-may-read-this"
SETTINGS = JobSettings()


def rows_of(number: int, size: int = 1000) -> pa.RecordBatch:
    """Rows of about so many bytes."""
    return pa.RecordBatch.from_pydict({"subject": [f"u{number}" + "x" * size]})


@dataclass(frozen=True)
class Folder:
    """A folder of this machine as files that are far away; the first calls may fail."""

    root: Path
    failures: list[OSError]

    def _at(self, path: str) -> Path:
        if self.failures:
            raise self.failures.pop(0)
        return self.root / path[1:]

    def write(self, path: str, content: bytes) -> None:
        """Write a file."""
        self._at(path).write_bytes(content)

    def read(self, path: str) -> pa.Buffer:
        """Read a file."""
        return pa.py_buffer(self._at(path).read_bytes())

    def delete(self, path: str) -> None:
        """Delete a file."""
        self._at(path).unlink()


@pytest.fixture
def stores(tmp_path: Path) -> RemoteBlobStore:
    """A checkpoint's, and an empty cache."""
    (tmp_path / "far" / "segments" / "mutation-0").mkdir(parents=True)
    caches.MAPPED.clear()
    caches.CHECKED.clear()
    return RemoteBlobStore(
        files=Folder(tmp_path / "far", []),
        root="/segments", uri="hdfs://n/c/segments", batches_kept=3, limit_s=1.0,
        cache=SegmentCache(folder=tmp_path / "cache", limit_bytes=5000),
    )  # fmt: skip


def cached(stores: RemoteBlobStore) -> set[str]:
    """Names that are in the cache."""
    assert stores.cache.folder is not None
    return {path.stem for path in stores.cache.folder.glob("*.arrow")}


def test_a_segment_is_fetched_once(stores: RemoteBlobStore) -> None:
    """Who wrote it has it; another machine fetches it, then has it too."""
    name = stores.of("mutation", 0).put(packed(rows_of(1)))
    elsewhere = replace(stores, cache=replace(stores.cache, folder=stores.cache.folder.with_name("other")))
    blobs = pickle.loads(pickle.dumps(elsewhere.cache)) and elsewhere.of("mutation", 0)
    assert blobs.get(name).equals(rows_of(1))
    caches.MAPPED.clear()
    assert blobs.get(name).equals(rows_of(1)) and blobs.get(name, remember=False).equals(rows_of(1))
    assert (blobs.traffic["segments", "fetched"], blobs.traffic["segments", "cached"]) == (1, 2)
    mine = stores.of("mutation", 0)
    assert mine.get(name).equals(rows_of(1)) and not mine.traffic["segments", "fetched"]


def test_a_cache_has_its_bound(stores: RemoteBlobStore) -> None:
    """What was not used for longest goes first; what is larger than the bound is never there."""
    blobs = stores.of("mutation", 0)
    names = []
    for number in range(9):
        names.append(blobs.put(packed(rows_of(number))))
        blobs.get(names[0])
        os.utime(stores.cache.folder / f"{names[0]}.arrow", (2e9, 2e9))
    assert {names[0], names[-1]} <= cached(stores) and len(cached(stores)) == 3
    large = blobs.put(packed(rows_of(0, 6000)))
    assert large not in cached(stores) and blobs.get(large).equals(rows_of(0, 6000))
    assert [blobs.get(name).equals(rows_of(number)) for number, name in enumerate(names)] == [True] * 9


def test_what_was_just_written_is_not_digested_again(
    stores: RemoteBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The large part of a body, of a megabyte and more, is written in one batch and read in the next."""
    blobs, read = stores.of("mutation", 0), list[object]()
    name = blobs.put(packed(rows_of(1)))
    monkeypatch.setattr(local, "digest", read.append)
    assert blobs.get(name, remember=False).equals(rows_of(1)) and not read


def test_a_damaged_file_of_the_cache_is_fetched_again(stores: RemoteBlobStore) -> None:
    """It is only a copy."""
    blobs = stores.of("mutation", 0)
    name = blobs.put(packed(rows_of(1)))
    for content in (b"", b"\0" * 900):
        (stores.cache.folder / f"{name}.arrow").write_bytes(content)
        caches.MAPPED.clear()
        assert blobs.get(name).equals(rows_of(1))
    assert blobs.traffic["segments", "fetched"] == 2


def test_a_damaged_or_missing_segment_is_named(stores: RemoteBlobStore, tmp_path: Path) -> None:
    """With its URI; deciding without its rows would forget debts."""
    blobs = stores.of("mutation", 0)
    name = blobs.put(packed(rows_of(1)))
    (tmp_path / "far" / "segments" / "mutation-0" / f"{name}.arrow").write_bytes(b"\0" * 900)
    (stores.cache.folder / f"{name}.arrow").unlink()
    with pytest.raises(StateError, match=f"hdfs://n/c/segments/mutation-0/{name}.arrow does not hold"):
        blobs.get(name)
    blobs.drop(name)
    with pytest.raises(StateError, match=f"{name}.arrow is missing .* the checkpoint is damaged"):
        blobs.get(name, remember=False)


def test_half_of_a_file_does_not_stay_on_hdfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt that failed left one, and nobody looks for them."""
    made, there = list[str](), set[str]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        path, op = request.url.path, request.url.params.get("op")
        if op == "CREATE":
            return httpx2.Response(200, json={"Location": f"http://data:9864{path}"})
        if op == "RENAME":
            return httpx2.Response(503)
        if op == "DELETE":
            there.discard(path)
        else:
            made.append(path)
            there.add(path)
        return httpx2.Response(200, json={"boolean": True})

    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    monkeypatch.setattr(webhdfs_module, "_client", lambda _limit_s: client)
    files = webhdfs_module.WebHdfs(addresses=("http://name:9870",), user="u", attempt_s=1.0)
    with pytest.raises(OSError, match="name:9870: 503"):
        files.write("/c/x.arrow", b"rows")
    assert len(made) == 1 and not there


def test_what_fails_is_asked_again_within_the_limit(stores: RemoteBlobStore) -> None:
    """Refusals are final; all else may be another time."""
    assert isinstance(stores.files, Folder)
    blobs = stores.of("mutation", 0)
    stores.files.failures.extend([OSError("connection refused")] * 2)
    name = blobs.put(packed(rows_of(1)))
    stores.files.failures.append(PermissionError("403"))
    with pytest.raises(StateError, match=r"may not be deleted: 403; give the job's user the right"):
        blobs.drop(name)
    stores.files.failures.extend([OSError("connection refused")] * 100)
    with pytest.raises(StateError, match=r"hdfs://n/c.* could not be written within 1 s: connection refused"):
        blobs.put(packed(rows_of(2)))


def test_a_held_lock_or_a_foreign_folder(stores: RemoteBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever cannot add to the cache goes on without; what others may write to is never mapped."""
    monkeypatch.setattr(caches, "_LOCK_LIMIT_S", 0.05)
    blobs, folder = stores.of("mutation", 0), stores.cache.folder
    folder.mkdir(mode=0o700)
    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        name = blobs.put(packed(rows_of(1)))
        assert not cached(stores) and blobs.get(name).equals(rows_of(1))
    (folder / "left.part").touch()
    blobs.get(name)
    assert cached(stores) == {name} and not (folder / "left.part").exists()
    folder.chmod(0o777)
    with pytest.raises(StateError, match=r"job\.segment_cache_dir"):
        blobs.put(packed(rows_of(2)))


def test_a_full_disk_costs_the_cache_and_not_the_job(
    stores: RemoteBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may have filled it, and nobody be there: the segment lies far away all the same."""
    blobs = stores.of("mutation", 0)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as filled:
        filled.setattr(caches.os, "replace", full)
        name = blobs.put(packed(rows_of(1)))
        assert [blobs.get(name).equals(rows_of(1)) for _ in range(2)] == [True] * 2 and not cached(stores)
    blobs.get(name)
    assert cached(stores) == {name} and not list(stores.cache.folder.glob("*.part"))


def test_paths_are_those_of_spark() -> None:
    """Segments lie in the checkpoint; a bucket is part of an object's path."""
    hdfs = webhdfs(urlsplit("hdfs://name:8020/a%20b/c"), SETTINGS, "weir")
    found = remote_stores("hdfs://name:8020/a%20b/c", 3, SETTINGS, hdfs)
    assert (found.root, hdfs.addresses) == ("/a b/c/segments", ("http://name:9870",))
    assert found.uri == "hdfs://name:8020/a%20b/c/segments" and found.cache.folder is None
    both = SETTINGS.model_copy(update={"webhdfs": "http://a:1/, https://b:2"})
    assert webhdfs(urlsplit("hdfs://service/c"), both, "weir").addresses == ("http://a:1", "https://b:2")
    with pytest.raises(WeirError, match=r"names no namenode; set job\.webhdfs"):
        webhdfs(urlsplit("hdfs:///c"), SETTINGS, "weir")


def test_an_object_store_is_reached_as_spark_reaches_it() -> None:
    """The bucket's own keys win; secrets show nowhere."""
    keys = {
        "fs.s3a.endpoint": "store:9000", "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.path.style.access": "true", "fs.s3a.secret.key": "other", "fs.s3a.access.key": SECRET,
        "fs.s3a.bucket.b.secret.key": SECRET, "fs.s3a.session.token": SECRET,
    }  # fmt: skip
    store = object_store_of(urlsplit("s3a://b/c"), lambda key: keys.get(key, ""))
    assert dict(store.options) == {
        "endpoint_override": "store:9000", "scheme": "http", "force_virtual_addressing": False,
        **dict.fromkeys(("access_key", "secret_key", "session_token"), SECRET),
    }  # fmt: skip
    assert remote_stores("s3a://b/c", 3, SETTINGS, store).root == "b/c/segments"
    assert SECRET not in f"{store} {store!r} {remote_stores('s3a://b/c', 3, SETTINGS, store)}"
    assert isinstance(object_store._failure(OSError("AWS Error ACCESS_DENIED during")), PermissionError)


@pytest.mark.parametrize("page", ["<html>log in</html>", "{}"])
def test_an_answer_that_is_none_of_webhdfs_is_asked_for_again(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway's page counted as a defect in the law: the batch became dead letters."""
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(200, text=page)

    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    monkeypatch.setattr("streaming.job.blobs.webhdfs._client", lambda _call_s: client)
    files = webhdfs(urlsplit("hdfs://name/c"), SETTINGS, "weir")
    for ask in (partial(files.read, "/c/x"), partial(files.write, "/c/x", b"")):
        with pytest.raises(OSError, match="an answer of WebHDFS was expected"):
            ask()
    assert len(asked) == 2
