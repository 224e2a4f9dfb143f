"""Which blob store a checkpoint has, and how its file system is reached: as Spark reaches it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from pyspark.sql import SparkSession

from streaming.contract.errors import WeirError
from streaming.job.blobs.cache import SegmentCache
from streaming.job.blobs.local import FileBlobStore, segments_folder
from streaming.job.blobs.object_store import ObjectStore
from streaming.job.blobs.remote import ATTEMPTS_MIN, Files, RemoteBlobStore
from streaming.job.blobs.webhdfs import DEFAULT_PORT, WebHdfs
from streaming.job.spark.settings import JobSettings, local_folder

Configured = Callable[[str], str]
"""Value of a key of Hadoop's configuration; empty: it has none."""
SEGMENT_S: Final = 60.0
"""Limit for a segment to be written or read, with all attempts; then the query fails."""
S3A: Final = "s3a"
HDFS: Final = "hdfs"
_S3_OPTIONS: Final = {
    "access_key": "access.key", "secret_key": "secret.key", "session_token": "session.token",
    "region": "endpoint.region",
}  # fmt: skip


def stores_of(
    checkpoint: str, batches_kept: int, settings: JobSettings, spark: SparkSession
) -> FileBlobStore | RemoteBlobStore | None:
    """Where a checkpoint's segments lie; None: on a file system that Python workers do not know.

    Args:
        checkpoint: folder or URI.
        batches_kept: how many batches back Spark may ask for the state again.
        settings: the section `job:`.
        spark: the session, whose Hadoop configuration says how its file system is reached.

    Raises:
        WeirError: the URI says too little.
    """
    parts = urlsplit(checkpoint)
    context: Any = spark.sparkContext
    if parts.scheme == S3A:
        configured = _configured(context._jsc.hadoopConfiguration())
        return remote_stores(checkpoint, batches_kept, settings, object_store(parts, configured))
    if parts.scheme == HDFS:
        files = webhdfs(parts, settings, context.sparkUser())
        return remote_stores(checkpoint, batches_kept, settings, files)
    if (folder := local_folder(checkpoint)) is None:
        return None
    local = FileBlobStore(segments_folder(folder), batches_kept)
    local.tidy()
    return local


def remote_stores(
    checkpoint: str, batches_kept: int, settings: JobSettings, files: Files
) -> RemoteBlobStore:
    """Segments in `segments` of this URI, as local ones are in the checkpoint's folder."""
    parts, uri = urlsplit(checkpoint), f"{checkpoint.rstrip('/')}/segments"
    path = unquote(parts.path).rstrip("/")
    folder = Path(settings.segment_cache_dir).absolute() if settings.segment_cache_dir else None
    return RemoteBlobStore(
        files=files,
        # A bucket is the first part of an object's path; a namenode is not part of a file's.
        root=f"{parts.netloc if parts.scheme == S3A else ''}{path}/segments",
        uri=uri,
        cache=SegmentCache(folder=folder, limit_bytes=settings.segment_cache_mb * 2**20),
        batches_kept=batches_kept,
        limit_s=SEGMENT_S,
    )


def object_store(parts: SplitResult, configured: Configured) -> ObjectStore:
    """As fs.s3a.* says it ("Hadoop-AWS module", S3A configuration), those of the bucket first."""

    def of(key: str) -> str:
        return configured(f"fs.s3a.bucket.{parts.netloc}.{key}") or configured(f"fs.s3a.{key}")

    options: dict[str, Any] = {name: value for name, key in _S3_OPTIONS.items() if (value := of(key))}
    if endpoint := of("endpoint"):
        if "://" not in endpoint:
            endpoint = f"{'http' if of('connection.ssl.enabled') == 'false' else 'https'}://{endpoint}"
        where = urlsplit(endpoint)
        options |= {
            "endpoint_override": where.netloc, "scheme": where.scheme,
            "force_virtual_addressing": of("path.style.access") != "true",
        }  # fmt: skip
    return ObjectStore(options=tuple(options.items()), attempt_s=SEGMENT_S / ATTEMPTS_MIN)


def webhdfs(parts: SplitResult, settings: JobSettings, user: str) -> WebHdfs:
    """As the setting says it; else the checkpoint's namenode at the usual port.

    Raises:
        WeirError: neither names a namenode.
    """
    addresses = tuple(each.strip().rstrip("/") for each in settings.webhdfs.split(",") if each.strip())
    if not addresses and not parts.hostname:
        raise WeirError(
            f"{parts.geturl()} names no namenode; set job.webhdfs to http://HOST:{DEFAULT_PORT}, or to all "
            "namenodes of the cluster with commas between them"
        )
    return WebHdfs(
        addresses=addresses or (f"http://{parts.hostname}:{DEFAULT_PORT}",),
        user=user,
        attempt_s=SEGMENT_S / ATTEMPTS_MIN,
    )


def _configured(hadoop: Any) -> Configured:
    """Values of the JVM's configuration; keys and secrets also from Hadoop's credential providers."""

    def value(key: str) -> str:
        if key.endswith((".key", ".token")):
            secret = hadoop.getPassword(key)
            return "".join(secret) if secret is not None else ""
        return hadoop.getTrimmed(key) or ""

    return value
