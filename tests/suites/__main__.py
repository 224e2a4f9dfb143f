"""`make suites`: other people's tests of their clients, straight to a cluster and through the proxy.

Usage: python tests/suites [--way tls] [NAME ...]   (franz_go, kafka_python, librdkafka; without a name all)

Each suite runs on a new cluster for each way; with `--way tls` clients speak TLS and log in by SCRAM. What
comes to something worse through the proxy is tried again, alone and both ways; what is worse still is a
failure of the proxy: exit status 1, unless the suite says that it is by design. The table is written to
.weir/suites/results.md.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "kit")]

from franz_go import FranzGo  # noqa: E402  # the kits must be found first
from kafka_python import KafkaPython  # noqa: E402
from librdkafka import Librdkafka  # noqa: E402
from outcomes import Difference, Outcome, Outcomes, counts, differences  # noqa: E402
from places import WAYS, Place, Way, place  # noqa: E402
from suite import Suite  # noqa: E402

FOLDER = ROOT / ".weir" / "suites"
SUITES: dict[str, type[Suite]] = {
    "franz_go": FranzGo, "kafka_python": KafkaPython, "librdkafka": Librdkafka,
}  # fmt: skip
TRIES = 2
"""How often a test that differs is tried again."""


@dataclass(slots=True)
class Result:
    """What a suite came to on one way.

    Attributes:
        suite: its name.
        way: how it reached the cluster.
        outcomes: of all tests.
        took_s: how long it ran.
        flaky: tests that were worse at first and not again.
        different: tests that are worse.
        by_design: tests that are worse and are to be, and why.
    """

    suite: str
    way: Way
    outcomes: Outcomes
    took_s: float
    flaky: list[str] = field(default_factory=list)
    different: list[Difference] = field(default_factory=list)
    by_design: dict[str, str] = field(default_factory=dict)


def main(words: list[str]) -> int:
    """Run suites; the exit status."""
    parser = argparse.ArgumentParser("suites")
    parser.add_argument("--way", choices=WAYS, default="plain")
    parser.add_argument("names", nargs="*", choices=["all", *SUITES], default="all", metavar="NAME")
    asked = parser.parse_args(words)
    results = []
    for name in SUITES if "all" in asked.names else asked.names:
        suite = SUITES[name](FOLDER / name)
        suite.fetch()
        results += run(name, suite, WAYS[asked.way])
    text = table(results)
    (FOLDER / "results.md").write_text(text)
    print(text)
    return int(any(result.different for result in results))


def run(name: str, suite: Suite, ways: Sequence[Way]) -> list[Result]:
    """One suite on these ways."""
    results: list[Result] = []
    straight: Outcomes = {}
    for way in ways:
        print(f"== {suite.name}, {way}", flush=True)
        data = Path(tempfile.mkdtemp(prefix="weir-suites-"))
        try:
            with place(way, data, suite.brokers) as where:
                log = FOLDER / f"{name}-{way.name.lower()}.log"
                before = time.monotonic()
                outcomes = suite.run(where.through, log)
                result = Result(suite.name, way, outcomes, time.monotonic() - before)
                if way.straight:
                    straight = outcomes
                else:
                    judge(suite, where, straight, result, log)
        finally:
            shutil.rmtree(data, ignore_errors=True)
        print(f"   {counts(outcomes)} in {result.took_s:.0f} s", flush=True)
        results.append(result)
    return results


def judge(suite: Suite, where: Place, straight: Outcomes, result: Result, log: Path) -> None:
    """Try again what differs: alone, through the proxy and straight to the same cluster."""
    found = differences(straight, result.outcomes)
    result.by_design = {one.test: why for one in found if (why := suite.reason(one.test))}
    left = [one for one in found if one.test not in result.by_design]
    for number in range(1, TRIES + 1):
        if not left:
            return
        names = [one.test for one in left]
        print(f"   again, alone: {', '.join(names)}", flush=True)
        through = suite.run(where.through, log.with_suffix(f".through-{number}.log"), names)
        beside = suite.run(where.straight, log.with_suffix(f".straight-{number}.log"), names)
        left = [one for one in differences(beside, through) if one.test in names]
        still = {one.test for one in left}
        result.flaky += [name for name in names if name not in still]
    result.different = left


def table(results: list[Result]) -> str:
    """All results for people, as Markdown."""
    lines = [
        "| Suite | Way | Outcome | Seconds | Flaky | Different | By design |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in results:
        different = "; ".join(f"{it.test}: {it.straight}, {it.through}" for it in one.different) or "none"
        flaky = ", ".join(one.flaky) or "none"
        meant = "; ".join(f"{test}: {why}" for test, why in one.by_design.items()) or "none"
        cells = (one.suite, one.way, counts(one.outcomes), f"{one.took_s:.0f}", flaky, different, meant)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    failed = sorted(
        {
            f"- {one.suite}: {test}"
            for one in results
            if one.way.straight
            for test, outcome in one.outcomes.items()
            if outcome in (Outcome.FAILED, Outcome.MISSING)
        }
    )
    return "\n".join([*lines, "", "Not passed straight to the cluster either:", "", *failed, ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
