"""`spark-submit`: Spark's JVM is there first, and starts the job."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from job_broker_kit import Broker, load
from replayed_kit import check, crowd, limits, warm
from spark_cluster_kit import WatchedCluster

import weir
from streaming.contract.errors import WeirError
from streaming.job.process.lease import Lease
from weir.jars.folders import jars_dir
from weir.stack.kafka import HOST
from weir.stack.process import Child

pytestmark = pytest.mark.soak
LIMIT_S = 150.0


def test_a_job_is_submitted_with_what_executors_need(
    cluster: WatchedCluster, broker: Broker, bootstrap: str, tmp_path: Path
) -> None:
    """It decides as any; the lease knows the JVM that started it, and an end in order is the Python's."""
    limits(broker)
    settings, ready, checkpoint = (tmp_path / name for name in ("weir.yaml", "ready.json", "checkpoint"))
    conf = {"spark.driver.host": HOST, "spark.pyspark.python": sys.executable}
    settings.write_text(json.dumps({"job": {"shuffle_partitions": 2, "spark_conf": conf}}))
    jars = sorted(map(str, jars_dir("spark").glob("*.jar")))
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", cluster.url]
    command += ["--jars", ",".join(jars), "--driver-class-path", os.pathsep.join(jars)]
    command += [str(Path(str(weir.__file__)).parent / "__main__.py"), "job", "--master", cluster.url]
    command += ["--kafka", bootstrap, "--checkpoint", str(checkpoint), "--settings", str(settings)]
    command += ["--ready-file", str(ready), "--log-dir", str(tmp_path / "log")]
    # The folder of __main__.py comes first on the path there, so Weir itself has to be found elsewhere.
    env = {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": str(Path(str(weir.__file__)).parent.parent)}
    submitted = Child("spark-submit", command, log=tmp_path / "submit.log", env=env)
    submitted.start()
    try:
        deadline = time.monotonic() + LIMIT_S
        while not ready.exists():
            assert submitted.alive() and time.monotonic() < deadline, submitted.last_lines(30)
            time.sleep(0.2)
        warm(broker)
        check(broker, bootstrap, crowd(broker, "first") | load(broker, 0, 2.0), tmp_path)
        said = json.loads(ready.read_text())
        note = next(checkpoint.glob("v*.pid"))
        assert json.loads(note.read_text())["jvm_pid"] == said["jvm_pid"] == submitted.pid
        with pytest.raises(WeirError, match=f"pid {said['pid']}"):
            Lease(note.with_suffix(""), 0.5, 15).__enter__()
        os.kill(said["pid"], signal.SIGTERM)
        assert submitted.wait(30) and submitted.poll() == 0
    finally:
        submitted.kill()
