"""schemathesis over the admin API's own description: whatever is sent, no 500."""

import json
from functools import cache

import pytest
import schemathesis
from admin_api_kit import parts
from hypothesis import HealthCheck, settings
from property_kit import tries
from schemathesis.checks import not_a_server_error
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from enforcer.control.access.tokens import Grant, Role, digest_of
from enforcer.control.api import create_app

ADMIN = {"Authorization": "Bearer secret"}
METHODS = ("GET", "PUT", "POST", "DELETE")


@cache
def described() -> schemathesis.BaseSchema:
    """Of an application made when it is tested: where tests are collected, each worker would make it."""
    made = parts(Grant(name="fuzz", role=Role.OPERATOR, digest=digest_of("secret")))
    made.streams.stopping.set()  # or they would not end
    return schemathesis.openapi.from_asgi("/openapi.json", create_app(made), headers=ADMIN)


@pytest.mark.parametrize("method", METHODS)
def test_whatever_is_sent_is_answered_as_described(method: str) -> None:
    """No 500, only statuses, types and bodies that the description names, and a reason with each error."""
    hard = settings(tries(40), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    own = described().include(method=method)
    tests = list(get_all_tests(schema=own, test_func=check, settings=hard, given_kwargs={}))
    assert len(tests) > 3
    for found in tests:
        found.ok()[1]()


def test_every_method_is_tried() -> None:
    """Of those that the description has."""
    assert {operation.ok().method.upper() for operation in described().get_all_operations()} == {*METHODS}


def check(case: schemathesis.Case) -> None:
    """One answer."""
    response = case.call_and_validate(
        headers=ADMIN,
        checks=[
            not_a_server_error, status_code_conformance, content_type_conformance,
            response_schema_conformance,
        ],
    )
    assert response.status_code < 400 or list(json.loads(response.content)) == ["reason"]
