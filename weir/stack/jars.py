"""Where the jars of `make setup` are, and which java runs them."""

import os
import shutil
from pathlib import Path

from streaming.contract.errors import WeirError
from streaming.job.spark.class_archive import shared_classes

# The jars stand beside the sources, not in the wheel: the project is installed editable.
ROOT = Path(__file__).resolve().parents[2]


def jars_dir(kind: str) -> Path:
    """Folder with the jars of `kind` ("kafka", "spark" or, for tests, "pulsar").

    $WEIR_JARS names the folder that holds them, default `.weir/jars` of the project.

    Raises:
        WeirError: there are none; says how to get them.
    """
    base = Path(os.environ.get("WEIR_JARS") or ROOT / ".weir" / "jars")
    folder = base / kind
    if not any(folder.glob("*.jar")):
        raise WeirError(f"no {kind} jars in {folder}; run `make setup` or set WEIR_JARS")
    return folder


def java() -> str:
    """Path of the java program, from $JAVA_HOME or $PATH.

    Raises:
        WeirError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None) or shutil.which("java")
    if not found:
        raise WeirError("java was not found; install a JDK 17 or later, or set JAVA_HOME")
    return found


def java_command(
    main_class: str,
    *args: str,
    heap_mb: int = 512,
    properties: tuple[str, ...] = (),
    kind: str = "kafka",
    options: tuple[str, ...] = (),
) -> list[str]:
    """Command line of one Java program: the broker, Kafka's own tools, or another kind's.

    Args:
        main_class: for example `kafka.Kafka` or `org.apache.kafka.tools.TopicCommand`.
        args: the program's arguments.
        heap_mb: limit of the heap in MiB.
        properties: `name=value` system properties.
        kind: whose jars, as of `jars_dir`.
        options: further ones of the JVM.
    """
    jars = jars_dir(kind)
    # Serial collector and first-tier compiler: small and quick to start, which is what a local
    # broker and one-shot tools need on two cores.
    return [
        java(),
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *shared_classes(jars),
        *options,
        *(f"-D{entry}" for entry in properties),
        "-cp",
        f"{jars}/*",
        main_class,
        *args,
    ]
