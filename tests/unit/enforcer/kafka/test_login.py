"""Who a connection is before, in and after a login."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kafka_kit import build, request, response

from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.kafka.login.part import LoginConcern

ILLEGAL_STATE = 34


def exchange(part: Any, asked: Any, answer: Any) -> None:
    """A request goes to the broker, and its answer comes."""
    frame, header = request(asked)
    seen = SimpleNamespace(frame=frame, header=header, readers=[])
    assert part.take(cast(Any, seen))
    slot = SimpleNamespace(api_key=header.api_key, api_version=header.api_version)
    for read in seen.readers:
        read(slot, response(answer))


@pytest.mark.parametrize(("error", "user"), [(0, "bob"), (ILLEGAL_STATE, "alice")])
def test_a_certificate_names_the_user_until_a_login_has_succeeded(error: int, user: str) -> None:
    """A handshake that the broker refuses must not make its client somebody without a quota."""
    link = SimpleNamespace(user="alice")
    part = LoginConcern(ProxySettings(), Metrics(1)).part(cast(Any, link))
    mechanisms = build(SaslHandshakeResponse, 1, error_code=error, mechanisms=["PLAIN"])
    exchange(part, build(SaslHandshakeRequest, 1, mechanism="PLAIN"), mechanisms)
    assert link.user == "alice"
    if not error:
        answer = build(SaslAuthenticateResponse, 1, error_code=0, error_message=None, auth_bytes=b"")
        exchange(part, build(SaslAuthenticateRequest, 1, auth_bytes=b"\0bob\0secret"), answer)
    assert link.user == user
