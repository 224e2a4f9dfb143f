"""How a session is configured, without starting one."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming.contract.errors import ConfigError, WeirError
from streaming.job.checkpoint_name import LAYOUT, checkpoint_path
from streaming.job.spark import session
from streaming.job.spark.session import build_session, reason_of
from streaming.job.spark.settings import JobSettings, Profile
from streaming.policy.settings import read_settings


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    """A folder that looks like that of `make setup`."""
    (tmp_path / "spark-sql-kafka-0-10_2.13.jar").touch()
    (tmp_path / "other.jar").touch()
    return tmp_path


@pytest.fixture
def conf(jars: Path, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Spark properties for given settings."""

    def make(checkpoint: str = "/data/checkpoint", **settings: object) -> dict[str, str]:
        given = JobSettings(**settings)  # type: ignore[arg-type]
        return session._conf(given, jars=jars, log_config=tmp_path / "l.properties", checkpoint=checkpoint)

    return make


def test_missing_jars_are_named_with_the_remedy(tmp_path: Path) -> None:
    """Before anything is started."""
    with pytest.raises(WeirError, match="weir setup"):
        build_session(JobSettings(), jars=tmp_path, work_dir=tmp_path, checkpoint=str(tmp_path))


@pytest.mark.parametrize(
    ("master", "expected"),
    [("local", "local[1,4]"), ("local[*]", "local[*,4]"), ("local[2,7]", "local[2,7]"), ("yarn", "yarn")],
)
def test_local_masters_try_a_task_again(master: str, expected: str) -> None:
    """Unless the user said how often."""
    assert session._with_retries(master) == expected


def test_the_latency_profile_generates_no_code(conf: Callable[..., dict[str, str]]) -> None:
    """The throughput profile leaves Spark's defaults."""
    names = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode", "spark.sql.adaptive.enabled")
    assert [conf()[name] for name in names] == ["false", "NO_CODEGEN", "false"]
    assert not set(names) & set(conf(profile=Profile.THROUGHPUT))


def test_each_profile_has_its_jvm_and_its_shuffle(conf: Callable[..., dict[str, str]]) -> None:
    """A small heap is collected by one thread; what one machine keeps to itself is not compressed."""
    latency, throughput = conf(), conf(profile=Profile.THROUGHPUT)
    remote = conf(profile=Profile.THROUGHPUT, master="spark://h:7077")
    for where in ("driver", "executor"):
        assert "UseSerialGC" in latency[f"spark.{where}.extraJavaOptions"]
        assert "UseParallelGC" in throughput[f"spark.{where}.extraJavaOptions"]
    assert "log4j2.configurationFile" in throughput["spark.driver.extraJavaOptions"]
    assert throughput["spark.shuffle.compress"] == "false"
    assert not {"spark.shuffle.compress"} & (set(latency) | set(remote))


def test_what_only_suits_this_machine_stays_on_it(conf: Callable[..., dict[str, str]]) -> None:
    """Loopback and bare jars for local masters; the local file system for local checkpoints."""
    local, remote = conf(), conf(master="spark://h:7077", checkpoint="hdfs://h/c")
    assert local["spark.driver.host"] == "127.0.0.1"
    assert "BareLocalFileSystem" in local["spark.hadoop.fs.file.impl"]
    assert "spark.jars" not in local
    assert not {"spark.driver.host", "spark.hadoop.fs.file.impl"} & set(remote)
    assert remote["spark.jars"].count(".jar") == 2


def test_executors_of_a_cluster_have_our_sizes_unless_they_are_given(
    conf: Callable[..., dict[str, str]],
) -> None:
    """Where nothing is said of how many, the cluster manager decides; a process of one machine has none."""
    ours = {
        "spark.driver.memory": "1024m", "spark.executor.memory": "1024m",
        "spark.executor.memoryOverhead": "1536m", "spark.executor.cores": "1", "spark.locality.wait": "0s",
    }  # fmt: skip
    every = conf(master="spark://h:7077")
    assert ours.items() <= every.items()
    assert not {"spark.executor.instances", "spark.cores.max", "spark.driver.host"} & set(every)
    assert conf()["spark.driver.memory"] == "1024m"
    assert not [name for name in conf() if name.startswith("spark.executor.") and "Java" not in name]
    given = dict.fromkeys(ours, "2g") | {"spark.driver.host": "driver.svc"}
    assert given.items() <= conf(master="k8s://h", spark_conf=given).items()
    assert given.items() <= conf(spark_conf=given).items()


@pytest.mark.parametrize(
    ("given", "cores"),
    [
        ({"instances": "3"}, "3"), ({"instances": "3", "cores": "2"}, "6"), ({"cores": "2"}, None),
        ({"instances": "0"}, "0"), ({"instances": "three"}, None), ({"instances": "3", "cores": "2.5"}, None),
    ],
)  # fmt: skip
def test_a_standalone_master_which_counts_cores_gets_so_many_executors(
    given: dict[str, str], cores: str | None, conf: Callable[..., dict[str, str]]
) -> None:
    """Unless the number of cores is given, too; what is no number is left to Spark, which refuses it."""
    spark_conf = {f"spark.executor.{name}": value for name, value in given.items()}
    made = conf(master="spark://h:7077", spark_conf=spark_conf)
    assert made.get("spark.cores.max") == cores and spark_conf.items() <= made.items()
    bound = {"spark.cores.max": "5"}
    assert conf(master="spark://h:7077", spark_conf=spark_conf | bound)["spark.cores.max"] == "5"


def test_the_users_own_environment_does_not_choose_python_or_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another installation's variables would start its jars or its interpreter."""
    monkeypatch.setenv("SPARK_HOME", os.sep)
    local = session._environment(JobSettings(master="local[*]"))
    assert local["SPARK_HOME"].endswith("pyspark") and local["PYSPARK_PYTHON"] == sys.executable
    assert local["SPARK_LOCAL_IP"] == "127.0.0.1"
    archive = {"spark.pyspark.python": "./env/bin/python"}
    remote = session._environment(JobSettings(master="yarn", spark_conf=archive))
    assert "SPARK_LOCAL_IP" not in remote
    assert (remote["PYSPARK_PYTHON"], remote["PYSPARK_DRIVER_PYTHON"]) == ("./env/bin/python", sys.executable)


def test_a_reason_is_one_line() -> None:
    """The last error of a Python traceback, else Java's, else the first line, cut to a bearable length."""
    trace = 'Job aborted.\nTraceback (most recent call last):\n  File "x"\nValueError: wrong\n\tat java'
    assert reason_of(RuntimeError(trace)) == "ValueError: wrong"
    assert reason_of(RuntimeError("\n first\nsecond")) == "first"
    called = "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
    small = "java.lang.IllegalArgumentException: System memory 1 must be at least 2. Please increase it"
    assert reason_of(RuntimeError(f"{called}: {small}\n\tat java")) == small
    plan = "failed: Multiple\n=== Streaming Query ===\nPlan\n:  +- ~Scan"
    assert reason_of(RuntimeError(plan)) == "failed: Multiple"
    assert reason_of(RuntimeError()) == "RuntimeError"
    assert len(reason_of("x" * 10_000)) == 600


def test_numbers_that_spark_would_take_from_an_old_checkpoint_are_in_its_path() -> None:
    """So that another setting is never silently ignored."""
    settings = JobSettings(checkpoint_dir="/c/", shards=16, shuffle_partitions=2)
    assert checkpoint_path(settings) == f"/c/v{LAYOUT}-shards16-partitions2"
    for profile, shards in ((Profile.LATENCY, 2), (Profile.THROUGHPUT, 2)):
        chosen = checkpoint_path(JobSettings(profile=profile, shuffle_partitions=2))
        assert chosen.endswith(f"/v{LAYOUT}-shards{shards}-partitions2")


def test_a_misspelt_or_unbounded_setting_is_refused(tmp_path: Path) -> None:
    """Each with its line."""
    file = tmp_path / "weir.yaml"
    file.write_text("job:\n  shards: -1\n  profile: fast\n  sharts: 3\n")
    with pytest.raises(ConfigError) as refused:
        read_settings(JobSettings, "job", str(file))
    assert [problem.line for problem in refused.value.problems] == [2, 3, 4]


def test_the_jvm_of_spark_submit_is_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was there first; whoever takes the checkpoint next waits for it."""
    monkeypatch.setattr(session.SparkContext, "_gateway", None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert session._jvm_pid() == 0
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert session._jvm_pid() == os.getppid()
