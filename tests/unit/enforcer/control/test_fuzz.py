"""schemathesis over the admin API's own description: whatever is sent, no 500."""

import json

import schemathesis
from admin_api_kit import parts
from hypothesis import HealthCheck, settings
from property_kit import tries
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from enforcer.control.access.tokens import Grant, Role, digest_of
from enforcer.control.api import create_app

ADMIN = {"Authorization": "Bearer secret"}
made = parts(Grant(name="fuzz", role=Role.OPERATOR, digest=digest_of("secret")))
made.streams.stopping.set()  # or they would not end
app = create_app(made)
schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=ADMIN)


@schema.parametrize()
@settings(tries(40), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_sent_is_answered_as_described(case: schemathesis.Case) -> None:
    """No 500, only statuses, types and bodies that the description names, and a reason with each error."""
    response = case.call_and_validate(
        headers=ADMIN,
        checks=[
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
        ],
    )
    assert response.status_code < 400 or list(json.loads(response.content)) == ["reason"]
