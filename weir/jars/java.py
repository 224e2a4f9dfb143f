"""With what command line Java runs them."""

import os

from streaming.job.spark.class_archive import shared_classes
from streaming.job.spark.java import find_java
from weir.jars.folders import jars_dir


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

    Raises:
        WeirError: there is no Java that can run it.
    """
    jars = jars_dir(kind)
    # Serial collector and first-tier compiler: small and quick to start, which is what a local
    # broker and one-shot tools need on two cores.
    return [
        str(find_java() / "bin" / "java"),
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *shared_classes(jars),
        *options,
        *(f"-D{entry}" for entry in properties),
        "-cp",
        # By name, and not `jars/*`: Java takes that as the file system lists it, which differs from one
        # machine to the next, and an archive of classes holds for one order only.
        os.pathsep.join(str(path) for path in sorted(jars.glob("*.jar"))),
        main_class,
        *args,
    ]
