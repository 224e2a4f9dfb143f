"""The one place that builds a Spark session, with every measure that low latency needs.

Why each setting is there: docs/decisions.md, "Job" and "Dependencies".
"""

import logging
import os
import re
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streaming.contract.errors import WeirError
from streaming.job.spark.class_archive import shared_classes
from streaming.job.spark.java import find_java
from streaming.job.spark.remote import further_jars, remote_conf
from streaming.job.spark.settings import JobSettings, Profile, local_folder

TASK_ATTEMPTS = 4
LOOPBACK = "127.0.0.1"
SHUTDOWN_S = 4.0
_REASON_CHARS = 600
_PYTHON_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception)\b")
_CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_JVM_OPTIONS = {
    # One thread collects a small heap with the least effort. Both compilers: the second takes two minutes of
    # load until it has paid for itself, and then a batch takes a fifth less (docs/performance.md, Spark).
    Profile.LATENCY: "-XX:+UseSerialGC",
    Profile.THROUGHPUT: "-XX:+UseParallelGC",
}
_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Kept for the pages of the UI that we do not serve: several plans a second as text and objects.
    "spark.ui.liveUpdate.period": "-1",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.ui.explainMode": "simple",
    # Snapshots are made once a minute, batches several times a second: every batch would warn of that.
    "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag": "false",
    # The Kafka sink of the newer interface runs an SQL execution of its own within each batch, and for
    # every execution Spark plans the batch once more, only to describe it.
    "spark.sql.streaming.disabledV2Writers": "org.apache.spark.sql.kafka010.KafkaSourceProvider",
}
"""What Spark would else do for nobody, in every batch."""
_EXECUTORS = {
    # Tasks at once, each with a Python worker.
    "spark.executor.cores": "1",
    "spark.executor.memory": "1024m",
    # Python workers live there; YARN and Kubernetes grant it beside the heap.
    "spark.executor.memoryOverhead": "1536m",
    "spark.executor.syncLogLevel.enabled": "true",
    "spark.executor.logs.rolling.strategy": "size",
    "spark.executor.logs.rolling.maxSize": str(16 * 2**20),
    "spark.executor.logs.rolling.maxRetainedFiles": "2",
    # A task does not wait for the executor that has its shard's state: a batch is over sooner than the
    # three seconds that Spark would wait, so a worker that is added would never get anything to do.
    "spark.locality.wait": "0s",
}
"""Of executors of a cluster."""
_LOG_CONFIG = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 16MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A running session.

    Attributes:
        spark: the session.
        jvm_pid: process id of the driver's JVM. It outlives a killed Python driver by up to 2 s, so
            whoever starts another one on the same checkpoint waits for this process to be gone.
        log: file with Spark's own log.
    """

    spark: SparkSession
    jvm_pid: int
    log: Path


def build_session(settings: JobSettings, *, jars: Path, work_dir: Path, checkpoint: str) -> Session:
    """Start the JVM and a session in it.

    Args:
        settings: the section `job:`.
        jars: folder with the jars of weir/jars/poms/spark.
        work_dir: existing folder for Spark's log and its configuration.
        checkpoint: where the queries of this session keep their checkpoints.

    Raises:
        WeirError: Java or the jars are missing, or the JVM did not start; says what to do.
    """
    log = (work_dir / "spark.log").absolute()
    log_config = (work_dir / "log4j2.properties").absolute()
    log_config.write_text(_LOG_CONFIG.format(log=log))
    # What py4j logs, with its traceback and by the root's name, is in what it raises.
    logging.getLogger().addFilter(_is_not_py4j)
    os.environ |= _environment(settings)
    builder = SparkSession.builder.appName("weir").master(_with_retries(settings.master))
    conf = _conf(settings, jars=jars, log_config=log_config, checkpoint=checkpoint)
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        # Py4JError, OSError, RuntimeError and others: all mean that the JVM did not start.
        raise WeirError(f"Spark did not start: {reason_of(error)}; see {log}") from error
    log_warnings_only(spark)
    return Session(spark=spark, jvm_pid=_jvm_pid(), log=log)


def log_warnings_only(spark: SparkSession) -> None:
    """Ask executors of a cluster to log no more than that: else some hundred lines a batch, several a second.

    Not every one heeds it (docs/decisions.md, "Job"), so it is asked again once all are there, and their
    files are bounded whatever they say.
    """
    if not is_local_master(spark.sparkContext.master or ""):
        spark.sparkContext.setLogLevel("WARN")


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def stop_session(session: Session, batch_s: float) -> None:
    """Stop the queries, Spark and its JVM.

    Whatever hangs, the JVM is gone `SHUTDOWN_S` after `batch_s`: a checkpoint survives a kill.

    Args:
        session: the session.
        batch_s: how long a running batch may take to end.
    """
    killer = threading.Timer(batch_s + SHUTDOWN_S, _kill, args=(session.jvm_pid,))
    killer.daemon = True
    killer.start()
    gateway = SparkContext._gateway
    with suppress(PySparkException, Py4JError, OSError):
        for query in session.spark.streams.active:
            query.stop()
    with suppress(PySparkException, Py4JError, OSError):
        session.spark.stop()
    process = getattr(gateway, "proc", None)
    if gateway is not None and process is not None:
        # The JVM ends when its standard input does; waiting for it lets a successor start at once.
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        process.stdin.close()
        process.wait()
        SparkContext._gateway = SparkContext._jvm = None
    killer.cancel()


def reason_of(error: object) -> str:
    """One line that says why Spark gave up: a Python traceback's last error, else Java's, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    # Py4J says first what it called; Spark's plans have such lines as well.
    java = [line[2:] for line in lines[1:2] if line.startswith(": ")]
    return [*python[-1:], *java, *lines][0][:_REASON_CHARS]


def is_local_master(master: str) -> bool:
    """True if driver and executors are one process on this machine."""
    return master == "local" or master.startswith("local[")


def _environment(settings: JobSettings) -> dict[str, str]:
    values = {
        "JAVA_HOME": str(find_java()),
        # A SPARK_HOME of another installation would start its jars under this Python.
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        # Of the executors; pyspark looks for it here, never for the property.
        "PYSPARK_PYTHON": settings.spark_conf.get("spark.pyspark.python") or sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if is_local_master(settings.master):
        values["SPARK_LOCAL_IP"] = LOOPBACK
    return values


def _with_retries(master: str) -> str:
    """Local masters try a task once unless told otherwise: one lost Python worker would end the query."""
    match = re.fullmatch(r"local(?:\[([^,\]]+)\])?", master)
    return f"local[{match.group(1) or 1},{TASK_ATTEMPTS}]" if match else master


def _conf(settings: JobSettings, *, jars: Path, log_config: Path, checkpoint: str) -> dict[str, str]:
    paths = sorted(str(path.absolute()) for path in jars.glob("*.jar"))
    if not any("spark-sql-kafka" in path for path in paths):
        raise WeirError(f"no jars for Spark in {jars}; run `weir setup`")
    paths += further_jars(checkpoint, jars)
    jvm = _JVM_OPTIONS[settings.profile]
    options = [f"-Dlog4j2.configurationFile={log_config.as_uri()}", *shared_classes(jars)]
    own = " ".join(f'"{option}"' for option in options)
    conf = _QUIET | remote_conf(checkpoint) | {
        "spark.driver.memory": "1024m",
        "spark.driver.extraClassPath": os.pathsep.join(paths),
        "spark.driver.extraJavaOptions": f"{own} {jvm}",
        "spark.executor.extraJavaOptions": jvm,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        # Larger ones cost the kernel more (docs/performance.md, scale); records and groups may be larger.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(4 * 2**20),
        "spark.sql.streaming.stopTimeout": f"{settings.stop_timeout_s}s",
        "spark.python.daemon.module": "streaming.job.process.worker",
    }
    if is_local_master(settings.master):
        conf |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    else:
        conf |= {"spark.jars": ",".join(paths)} | _cluster_conf(settings.spark_conf)
    if local_folder(checkpoint) is not None:
        # Hadoop's own local file system forks chmod for every checkpoint file: 35 ms a log entry, not 2.
        conf |= {
            "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
            "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_MANAGER,
            "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        }
    if settings.profile is Profile.LATENCY:
        # Generating and compiling code for each batch costs more than it saves on a few hundred rows.
        conf |= {
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
        }
    elif is_local_master(settings.master):
        # What one process writes for itself on its own disk costs more to compress than to write.
        conf |= {"spark.shuffle.compress": "false", "spark.shuffle.spill.compress": "false"}
    return conf | settings.spark_conf


def _cluster_conf(given: dict[str, str]) -> dict[str, str]:
    """Executors that are processes of their own, on other machines."""
    instances = given.get("spark.executor.instances", "")
    cores = (_EXECUTORS | given)["spark.executor.cores"]
    if not (instances.isdecimal() and cores.isdecimal()):
        # As many as the cluster's manager gives; spark-submit refuses what is no number.
        return _EXECUTORS
    # The standalone master counts cores, not executors.
    return _EXECUTORS | {"spark.cores.max": str(int(instances) * int(cores))}


def _jvm_pid() -> int:
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit's JVM was there first, and started this process.
        return os.getppid()
    # spark-submit and spark-class replace themselves by exec, so the child that pyspark knows is the JVM.
    gateway = SparkContext._gateway
    return int(gateway.proc.pid) if gateway is not None and gateway.proc is not None else 0


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
