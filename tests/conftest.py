"""What holds for every test."""

import asyncio
import gc
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from property_kit import register_profiles

from weir.jars.folders import KAFKA

# Java's second compiler pays in a run of minutes, and no test is that long: without it Spark's tests take a
# quarter of the processor time. Users have both.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

register_profiles()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `make matrix` varies."""
    parser.addoption("--kafka", default=KAFKA, metavar="KIND", help="whose jars the shared broker is run by")


def pytest_collectstart() -> None:
    """What is imported stays: looking for garbage meanwhile took a quarter of the time of collecting."""
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish() -> None:
    """Thousands of tests, and what they import, stay: collecting garbage took a quarter of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The largest files first: where files are handed out, a long one at the end leaves the others idle."""
    items.sort(key=lambda item: (-item.path.stat().st_size, item.path))


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Print a line, whether the test fails or not."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def print_it(line: str) -> None:
        with capture.global_and_fixture_disabled():
            sys.stdout.write(f"\n{line}")

    return print_it


# Of two conftests that import a fixture each makes its own, and these are dear: once for all folders.
@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Any]:
    """A real broker with Weir's topics and the law (broker_fixtures, which is loaded by who needs it)."""
    from broker_fixtures import running

    with running(tmp_path_factory.mktemp("kafka"), pytestconfig.getoption("--kafka")) as found:
        yield found


@pytest.fixture(scope="session")
def proxy(cluster: Any) -> Iterator[Any]:
    """A proxy before it, with the default settings."""
    from broker_fixtures import serving

    with serving(cluster, id="shared") as shared:
        yield shared


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own: asyncio's, or its module's LOOP."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    with asyncio.Runner(loop_factory=getattr(pyfuncitem.module, "LOOP", None)) as runner:
        runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True
