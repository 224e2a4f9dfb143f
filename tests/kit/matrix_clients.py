"""Clients of the matrix beside the four: Java's older ones, and two more makers'."""

import shutil
import subprocess
from functools import cache, partial
from pathlib import Path

from four_clients import BUILD_LIMIT_S, Make, Program, java
from tls_kit import Way

from weir.jars.folders import ROOT

SOURCES = ROOT / "tests" / "matrix"
BUILT = ROOT / ".weir" / "matrix"


def sarama(way: Way, bootstrap: str, name: str, folder: Path) -> Program:
    """IBM's, in Go."""
    return Program(way, bootstrap, name, [_sarama()], way.rdkafka, folder)


def kafkajs(way: Way, bootstrap: str, name: str, folder: Path) -> Program:
    """JavaScript's, the newest of whose CreateTopics knows no error 89."""
    command = ["env", f"NODE_PATH={_kafkajs()}", "node", str(SOURCES / "kafkajs" / "client.js")]
    made = Program(way, bootstrap, name, command, way.rdkafka, folder)
    made.refused = False
    return made


@cache
def _sarama() -> str:
    command = ["go", "build", "-mod=readonly", "-o", str(BUILT / "sarama"), "."]
    subprocess.run(command, cwd=SOURCES / "sarama", check=True, timeout=BUILD_LIMIT_S)
    return command[4]


@cache
def _kafkajs() -> Path:
    folder = BUILT / "kafkajs"
    folder.mkdir(parents=True, exist_ok=True)
    for pinned in (SOURCES / "kafkajs").glob("package*.json"):
        shutil.copy(pinned, folder)
    command = ["npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=folder, check=True, timeout=BUILD_LIMIT_S)
    return folder / "node_modules"


OTHERS: dict[str, Make] = {
    "java-2.8": partial(java, kind="clients28"), "java-3.9": partial(java, kind="kafka39"), "sarama": sarama,
    "kafkajs": kafkajs,
}  # fmt: skip
