"""What the admin API takes of what is read of Weir's topics, and how clients come to it."""

import asyncio
import threading
import time
from typing import Any

import pytest
from admin_api_kit import report
from fastapi import FastAPI, Request
from message_kit import Record
from proxy_header_kit import CLIENTS, HEADERS

from enforcer.control import service as module
from enforcer.control.access.tokens import Tokens
from enforcer.control.metrics import AdminMetrics
from enforcer.control.service import AdminService, _server
from enforcer.control.settings import AdminSettings
from enforcer.host.doors.listening import listen_at
from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster, Topics
from streaming.policy.policy_set import PolicySet

LIMIT_S = 10.0
HERE = ("127.0.0.1", 0)
HEAD = b"GET /who HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def service(**settings: Any) -> AdminService:
    """One that is not started."""
    cluster = Cluster(bootstrap="127.0.0.1:1", topics=Topics(), client={})
    return AdminService(cluster, AdminSettings(**settings), Tokens(), HERE, None, None, 1_000)


async def test_a_report_from_far_ahead_is_none() -> None:
    """As to the job; all that comes until then would be older, and a broker's use stand for an hour."""
    made = service()
    now = time.time_ns() // 1_000_000
    made._take_reports([(report("b1", now + 3_600_000, 9), {}, now), (report("b1", now, 2), {}, now)])
    ((_, row),) = made._parts.usage.rows.items()
    assert (row.reported_ts, row.counts[0]) == (now, 2)
    assert made._parts.metrics.registry.get_sample_value("weir_admin_usage_rows") == 1


async def test_policies_are_made_once_for_all_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100,000 entries each time takes longer than what is read."""
    made, count = service(), 0

    def counted(*given: Any, **named: Any) -> PolicySet:
        nonlocal count
        count += 1
        return PolicySet(*given, **named)

    made.read.set()
    monkeypatch.setattr("enforcer.control.service.PolicySet", counted)
    for _ in range(3):
        made._take_reports([])
    assert count == 1


async def test_an_event_on_another_topic_than_its_own_is_none() -> None:
    """As to the job, which makes dead letters of them: use that nobody decided by was shown as used."""
    made, now = service(), time.time_ns() // 1_000_000
    told: dict[str, dict[str, Any]] = {
        "group_usage": {"broker": "b1", "period_ms": 1_000, "usage": {"rg1": {"publishedMsg": 9}}},
        "request": {"subject": "user=alice", "items": [{"name": "t", "mutations": 1}]},
        "tick": {},
    }
    records = {kind: Record({"type": kind, **fields}, ts=now) for kind, fields in told.items()}
    read = {
        topic: [kind for kind, record in records.items() if tail._parse(record)]  # type: ignore[arg-type]
        for topic, tail in made._tails.items()
    }
    assert read == {
        "weir.decisions": [], "weir.usage": ["group_usage", "tick"], "weir.requests": ["request"]
    }  # fmt: skip


async def test_that_traffic_is_not_read_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where no thread is left: nobody was shown to wait, until it was restarted. It ends well."""
    made, begin = service(), threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name in ("tail weir.decisions", "tail weir.usage", "tail weir.requests"):
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(module, "_TAIL_STOP_S", 0.05)
    made.read.set()
    await made.start()
    await made.stop()
    assert [record.levelname for record in caplog.records if "new thread" in record.message] == ["CRITICAL"]


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
    with pytest.raises(WeirError, match="tokens"):
        await service(proxy_protocol="required").start()
