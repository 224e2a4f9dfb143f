"""One whole stack, started as a user would, for all tests that do not break it for good; and parts of one."""

from collections.abc import Iterator

import pytest
from company_kit import Company
from stack_kit import Up

POLICIES = """\
version: 1
quotas:
  - entity: {user: null, client-id: null}
    controller_mutation_rate: 1
  - entity: {user: null, client-id: load}
    controller_mutation_rate: 20
broker:
  resourceUsagePublishIntervalInSecs: 1
  backlogQuotaCheckIntervalInSeconds: 1
  preciseBacklogSize: true
"""
# Slow machines: a decision that is late by the default two seconds is no failure of what is tested here.
SETTINGS = """\
proxy:
  decision_timeout_ms: 10000
local:
  kafka_port: 0  # any, since stacks of other tests run at the same time
"""


@pytest.fixture(scope="package")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """`weir up --restart`, ready."""
    with Up(tmp_path_factory.mktemp("up"), "--restart", settings=SETTINGS, policies=POLICIES) as stack:
        yield stack


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """Kafka and the job; each test starts the proxies that it wants."""
    with Company(tmp_path_factory.mktemp("company")) as running:
        yield running
