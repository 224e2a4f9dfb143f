"""One stack, started as a user would, and one browser for all tests of the console."""

from collections.abc import Iterator

import pytest
from browser_kit import Browser
from stack_kit import Up

from weir.stack.kafka import free_port

POLICIES = """\
version: 1
quotas:
  - entity: {user: null, client-id: eager}
    controller_mutation_rate: 1
  - entity: {user: null, client-id: null}
    controller_mutation_rate: 50
broker:
  resourceUsagePublishIntervalInSecs: 1
"""
SETTINGS = """\
proxy:
  decision_timeout_ms: 10000
local:
  kafka_port: 0  # any, since stacks of other tests run at the same time
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """`weir up --restart`, ready."""
    # A page comes back to the address that it had.
    words = ("--restart", "--admin", f"127.0.0.1:{free_port()}")
    with Up(tmp_path_factory.mktemp("up"), *words, settings=SETTINGS, policies=POLICIES) as stack:
        yield stack


@pytest.fixture(scope="module")
def _browser(up: Up, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile"), up.ready["admin"]) as browser:
        yield browser


@pytest.fixture
def browser(_browser: Browser) -> Iterator[Browser]:
    """The browser; a test that leaves errors in its console fails, unless it has looked at them itself."""
    yield _browser
    assert _browser.errors() == []
