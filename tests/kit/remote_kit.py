"""File systems of checkpoints under test, each as the real servers that people run: HDFS and an S3 store."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import httpx2
import pyspark
from pyarrow import fs

from streaming.job.spark.java import find_java
from weir.jars.folders import ROOT, folder_of
from weir.stack.kafka import HOST, free_port
from weir.stack.process import Child

START_S: Final = 60.0
MINIO: Final = ROOT / ".weir" / "tools" / "minio"
BUCKET: Final = "weir"
SECRET: Final = "secret-of-the-test"


class Hdfs:
    """A namenode and a datanode, each a process.

    Args:
        folder: for their data, configuration and logs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = [free_port() for _ in range(5)]
        rpc, self._http = self._ports[:2]
        self._url = f"http://{HOST}:{self._http}"
        self.checkpoint = f"hdfs://{HOST}:{rpc}/weir/checkpoint"
        self.settings = {"webhdfs": self._url}
        self._nodes = [self._node("namenode.NameNode"), self._node("datanode.DataNode")]

    def __enter__(self) -> Self:
        self._configure()
        formatting = self._node("namenode.NameNode", "-format", "-force", "-nonInteractive")
        formatting.start()
        assert formatting.wait(START_S) and formatting.poll() == 0, formatting.last_lines()
        for node in self._nodes:
            node.start()
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._nodes:
            node.kill()

    def away(self, seconds: float) -> None:
        """The namenode is; without it nobody finds a block."""
        self._nodes[0].kill()
        time.sleep(seconds)
        self._nodes[0].start()
        self._wait()

    def segments(self) -> dict[str, int]:
        """Of the checkpoint, whatever its layout."""
        return {
            f"{path}/{entry['pathSuffix']}": entry["length"]
            for path, entry in self._walk("/weir")
            if "/segments/" in path and entry["type"] == "FILE"
        }

    def damage(self, path: str) -> None:
        """By its own client: a file that is whole and holds what it should not."""
        words = {"op": "CREATE", "overwrite": "true", "user.name": _user()}
        asked = httpx2.put(f"{self._url}/webhdfs/v1{path}", params=words, timeout=START_S)
        content = b"\0" * self.segments().get(path, 8)
        assert httpx2.put(asked.headers["location"], content=content, timeout=START_S).is_success

    def _walk(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        words = {"op": "LISTSTATUS", "user.name": _user()}
        answer = httpx2.get(f"{self._url}/webhdfs/v1{path}", params=words, timeout=START_S).json()
        for entry in answer.get("FileStatuses", {}).get("FileStatus", ()):
            yield path, entry
            if entry["type"] == "DIRECTORY":
                yield from self._walk(f"{path}/{entry['pathSuffix']}")

    def _wait(self) -> None:
        """Until it is out of its safe mode: a file can be made."""
        words = {"op": "CREATE", "overwrite": "true", "user.name": _user(), "noredirect": "true"}
        deadline = time.monotonic() + START_S
        while True:
            try:
                asked = httpx2.put(f"{self._url}/webhdfs/v1/weir/up", params=words, timeout=5)
                if (
                    asked.is_success
                    and httpx2.put(asked.json()["Location"], content=b"up", timeout=5).is_success
                ):
                    return
            except httpx2.HTTPError:
                pass
            assert time.monotonic() < deadline, [node.last_lines() for node in self._nodes]
            time.sleep(0.2)

    def _node(self, name: str, *words: str) -> Child:
        jars = Path(pyspark.__file__).parent / "jars"
        own = [
            *folder_of("hdfs").glob("*.jar"),
            *(path for kind in ("hadoop-client", "slf4j", "log4j", "jcl") for path in jars.glob(f"{kind}*")),
        ]
        path = os.pathsep.join(map(str, (self._folder / "conf", *own)))
        java = str(find_java() / "bin" / "java")
        command = [java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path]
        command += [f"org.apache.hadoop.hdfs.server.{name}", *words]
        return Child(name, command, log=self._folder / f"{name}.log")

    def _configure(self) -> None:
        rpc, http, data, data_http, data_ipc = (f"{HOST}:{port}" for port in self._ports)
        files = {
            "core": {"fs.defaultFS": f"hdfs://{rpc}", "hadoop.tmp.dir": self._folder / "data"},
            "hdfs": {
                "dfs.replication": 1,
                "dfs.namenode.http-address": http,
                "dfs.datanode.address": data,
                "dfs.datanode.http.address": data_http,
                "dfs.datanode.ipc.address": data_ipc,
                "dfs.datanode.hostname": HOST,
                "dfs.safemode.extension": 0,
                "dfs.heartbeat.interval": 1,
                # docs/operate/checkpoints.md: the client of WebHDFS is in the datanode.
                "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": 20,
            },
        }
        (self._folder / "conf").mkdir(parents=True)
        for name, values in files.items():
            entries = "".join(
                f"<property><name>{key}</name><value>{value}</value></property>"
                for key, value in values.items()
            )
            text = f"<configuration>{entries}</configuration>"
            (self._folder / "conf" / f"{name}-site.xml").write_text(text)


class Minio:
    """An S3 store: MinIO, a process.

    Args:
        folder: for its data and log.
    """

    def __init__(self, folder: Path) -> None:
        assert MINIO.exists(), f"no {MINIO}; `make minio` builds it, in a quarter of an hour"
        port = free_port()
        self._port = port
        self.checkpoint = f"s3a://{BUCKET}/checkpoint"
        keys = {
            "endpoint": f"http://{HOST}:{port}", "endpoint.region": "us-east-1", "path.style.access": "true",
            "access.key": "weir-test", "secret.key": SECRET,
        }  # fmt: skip
        self.settings = {"spark_conf": {f"spark.hadoop.fs.s3a.{key}": value for key, value in keys.items()}}
        command = [str(MINIO), "server", "--quiet", "--address", f"{HOST}:{port}"]
        command += ["--console-address", f"{HOST}:{free_port()}", str(folder / "data")]
        self._server = Child(
            "minio",
            command,
            log=folder / "minio.log",
            env={"MINIO_ROOT_USER": "weir-test", "MINIO_ROOT_PASSWORD": SECRET},
        )

    def __enter__(self) -> Self:
        self._start()
        self._files().create_dir(BUCKET)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()

    def away(self, seconds: float) -> None:
        """The only server is."""
        self._server.kill()
        time.sleep(seconds)
        self._start()

    def segments(self) -> dict[str, int]:
        """Of the checkpoint, whatever its layout."""
        found = self._files().get_file_info(fs.FileSelector(f"{BUCKET}/checkpoint", recursive=True))
        return {each.path: each.size for each in found if each.path.endswith(".arrow")}

    def damage(self, path: str) -> None:
        """An object that is whole and holds what it should not."""
        with self._files().open_output_stream(path) as stream:
            stream.write(b"\0" * 800)

    def _start(self) -> None:
        self._server.start()
        deadline = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection((HOST, self._port), timeout=1).close()
                if httpx2.get(f"http://{HOST}:{self._port}/minio/health/ready", timeout=5).is_success:
                    return
            except (OSError, httpx2.HTTPError):
                assert time.monotonic() < deadline and self._server.alive(), self._server.last_lines()
            time.sleep(0.1)

    def _files(self) -> fs.S3FileSystem:
        return fs.S3FileSystem(
            endpoint_override=f"{HOST}:{self._port}", scheme="http", region="us-east-1",
            access_key="weir-test", secret_key=SECRET, allow_bucket_creation=True,
        )  # fmt: skip


Remote = Hdfs | Minio
"""A file system for checkpoints, a context manager that starts and stops it: `checkpoint` is a URI for a job,
`settings` are of its section `job:`. `away` so long by SIGKILL, it comes back with all that was there;
`segments` are paths with their sizes, and to `damage` one is to have other bytes in it.
"""
REMOTES: Final[dict[str, type[Remote]]] = {"hdfs": Hdfs, "s3a": Minio}


def _user() -> str:
    return os.environ.get("HADOOP_USER_NAME") or os.environ.get("USER") or Path.home().owner()
