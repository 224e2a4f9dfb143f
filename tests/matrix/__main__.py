"""`make matrix`: every law felt by many clients before many brokers, by the tests that there are of it.

Usage: python tests/matrix [SERVER ...]   (3.9, 4.0 ... of Kafka, and pulsar; without one all)

What came of it is kept in results.json beside this, and docs/compatibility.md is written from that. Exit
status 1: something has not passed.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "kit")]

from matrix_kit import KAFKAS, LAWS, PULSAR, keep, nodes, rows, table  # noqa: E402  # the kits must be found first

_LIMIT_S = 3_600.0


def main(words: list[str]) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(description="Laws, clients and brokers.")
    servers = [*KAFKAS, PULSAR]
    parser.add_argument("servers", nargs="*", choices=["all", *servers], default="all", metavar="SERVER")
    asked, made = parser.parse_args(words).servers, []
    for server in servers if "all" in asked else asked:
        print(f"== {server}", flush=True)
        found = rows(server, run(server))
        keep(found)
        made += found
    print(table(made))
    return int(any(row[law] != "passed" for row in made for law in LAWS))


def run(server: str) -> dict[str, str]:
    """The outcomes of a server's tests, by their ids."""
    tests = [test for laws in nodes(server).values() for each in laws.values() for test in each]
    kafka = [] if server == PULSAR else ["--kafka", KAFKAS[server]]
    with tempfile.TemporaryDirectory(prefix="weir-matrix-") as folder:
        told = Path(folder) / "told.xml"
        command = [sys.executable, "-m", "pytest", *tests, *kafka, f"--junitxml={told}"]
        subprocess.run(command, cwd=ROOT, timeout=_LIMIT_S, check=False)
        cases = list(ElementTree.parse(told).iter("testcase")) if told.exists() else []
    by_name = {case.get("name"): "passed" if not list(case) else "failed" for case in cases}
    return {test: by_name[name] for test in tests if (name := test.rpartition("::")[2]) in by_name}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
