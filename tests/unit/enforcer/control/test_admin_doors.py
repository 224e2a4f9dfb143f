"""How clients come to the admin API: behind a load balancer, and how often."""

import asyncio

import pytest
from fastapi import FastAPI, Request
from proxy_header_kit import CLIENTS, HEADERS

from enforcer.control.metrics import AdminMetrics
from enforcer.control.service import AdminService, _server
from enforcer.control.settings import AdminSettings
from enforcer.host.doors.listening import listen_at
from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster, Topics

LIMIT_S = 10.0
HERE = ("127.0.0.1", 0)
HEAD = b"GET /who HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("kind", list(HEADERS))
async def test_a_client_behind_a_load_balancer_is_known_by_its_own_address(kind: str) -> None:
    """Without a header there is no answer."""
    app = FastAPI()

    @app.get("/who")
    def who(request: Request) -> str:
        assert request.client is not None
        return request.client.host

    metrics = AdminMetrics()
    server = _server(app, AdminSettings(proxy_protocol="required"), metrics, 1_000)
    listener = listen_at(HERE)
    address = listener.getsockname()
    serving = asyncio.create_task(server.serve(sockets=[]))
    await server.open(listener)
    reader, writer = await asyncio.open_connection(*address)
    writer.write(HEADERS[kind](*CLIENTS["tcp6"]) + HEAD)
    try:
        answer = await asyncio.wait_for(reader.read(), LIMIT_S)
    except ConnectionError:
        answer = b""
    writer.close()
    server.end()
    await serving
    refused = metrics.refused_connections.labels("no_header")._value.get()
    assert (b'"2001:db8::7"' in answer) == (kind != "none") == (not refused)


async def test_a_header_is_no_proof_that_a_client_is_here() -> None:
    """Without tokens only this machine is answered, which anybody could say of himself."""
    settings = AdminSettings(proxy_protocol="required")
    cluster = Cluster(bootstrap="127.0.0.1:1", topics=Topics(), client={})
    service = AdminService(cluster, settings, (), HERE, None, None, 1_000)
    with pytest.raises(WeirError, match="tokens"):
        await service.start()
