"""One whole stack, started as a user would, for all tests that do not break it for good."""

from collections.abc import Iterator
from pathlib import Path

import pytest
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
collect:
  quotas_from_kafka: true
  interval_ms: 1000
"""


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that name a policy file and a settings file."""
    folder = tmp_path_factory.mktemp("config")
    (folder / "policies.yaml").write_text(POLICIES)
    (folder / "weir.yaml").write_text(SETTINGS)
    return ["--policies", str(folder / "policies.yaml"), "--settings", str(folder / "weir.yaml")]


@pytest.fixture(scope="package")
def up(tmp_path_factory: pytest.TempPathFactory, config: list[str]) -> Iterator[Up]:
    """`weir up --restart`, ready."""
    folder: Path = tmp_path_factory.mktemp("up")
    with Up(folder, "--restart", *config) as stack:
        yield stack
