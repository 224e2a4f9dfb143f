"""The admin API as a process: its server, its policies, and what it reads of use and shares."""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from enforcer.control.access.tokens import Tokens
from enforcer.control.answers.shown import pressed
from enforcer.control.api import create_app
from enforcer.control.backlog.stats import kept_since
from enforcer.control.backlog.table import BacklogReport, report_of
from enforcer.control.connections import CONNECTIONS_MAX, REQUEST_MS, Connections, GuardedProtocol
from enforcer.control.dispatch.table import DispatchDecision
from enforcer.control.entities.feed import DECISIONS, REPORTS, REQUESTS, Told, decisions_of, reports_of, told
from enforcer.control.entities.view import EntityView
from enforcer.control.groups import Unavailable
from enforcer.control.metrics import AdminMetrics
from enforcer.control.parts import Parts
from enforcer.control.settings import AdminSettings
from enforcer.control.store import PolicyStore
from enforcer.core.law import DecisionReader
from enforcer.core.security.doors import ProxyProtocol
from enforcer.host.doors.certificates import WatchedContext
from enforcer.host.doors.entrance import Entrance
from enforcer.host.doors.listening import listen_at
from enforcer.host.sockets import Address
from enforcer.host.tasks import Tasks
from streaming.contract.backlog.actions import TYPE as BACKLOG_ACTION
from streaming.contract.backlog.actions import BacklogAction, backlog_action
from streaming.contract.backlog.decisions import TTL_MS, BacklogDecision
from streaming.contract.decisions import CANDIDATE, Share
from streaming.contract.errors import WeirError
from streaming.contract.events import MAX_AHEAD_MS
from streaming.contract.topics import Cluster, address_text
from streaming.contract.usage_events import DispatchUsage, GroupUsage, dispatch_usage
from streaming.kafka_io.tail import Tail
from streaming.kafka_io.threads import use_threads
from streaming.kafka_io.topic_watch import TopicWatch
from streaming.metrics_server import serve_metrics
from streaming.policy.policy_set import PolicySet, next_end

_STOP_S: Final = 2
"""Limit for answering what is under way at a stop."""
_IDLE_S: Final = 15
"""An idle connection is closed after it."""
logger = logging.getLogger("weir.admin")

_TAIL_STOP_S = 1.0
_TELL_S = 5.0
_HEAD_MAX_BYTES = 16_384
_BACK_MS: Final = TTL_MS
"""Read back at the start: what was decided on backlogs and not repeated since does not stand any more."""
_REPORTS: Final = {**REPORTS, "dispatch_usage": dispatch_usage, "backlog": report_of}
_ACTIONS: Final = told(DecisionReader(type=BACKLOG_ACTION, parse=backlog_action))
_DECISIONS: Final = {**DECISIONS, _ACTIONS.type: _ACTIONS}


class AdminService:
    """One running admin API.

    Args:
        cluster: where Weir's topics are.
        settings: section `admin`.
        tokens: none: this machine only.
        listen: address of the API.
        metrics: address of /metrics, None: nowhere.
        beyond: makes what gets all that is not Weir's own, in front of another admin API; None: nothing does.
        request_ms: limit from the head of a request until its answer is taken.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: AdminSettings,
        tokens: Tokens,
        listen: Address,
        metrics: Address | None,
        beyond: Callable[[Parts], ASGIApp] | None,
        request_ms: int,
    ) -> None:
        self._listen, self._metrics_address, self._settings = listen, metrics, settings
        self.has_tokens = bool(tokens)
        counts = AdminMetrics()
        self._topics = topics = cluster.topics
        self._watch = TopicWatch(cluster, metrics=counts.topics, logger=logger, on_replaced=self._begin_anew)
        self._in_force, self._until = PolicySet(), 0.0
        wrong = partial(self._watch.wrong, topics.policies)
        self._parts = parts = Parts(
            store=PolicyStore(cluster, metrics=counts, wrong=wrong),
            view=EntityView(self._policies),
            metrics=counts,
            settings=settings,
            tokens=tokens,
            topic_faults=lambda: self._watch.faults,
        )
        counts.parts = parts
        self._tails = {
            topic: Tail[Told](cluster.properties, topic, back_ms=_BACK_MS, parse=parse, deliver=take)
            for topic, parse, take in (
                (topics.decisions, partial(decisions_of, readers=_DECISIONS), self._take_decisions),
                (topics.usage, partial(reports_of, readers=_REPORTS), self._take_reports),
                (topics.requests, partial(reports_of, readers=REQUESTS), self._take_reports),
            )
        }
        parts.view.signs.readers = self._tails
        app = create_app(parts if beyond is None else replace(parts, beyond=beyond(parts)))
        self._server = _server(app, settings, counts, request_ms)
        self._serving: asyncio.Task[None] | None = None
        self._reading: Tasks | None = None
        self._telling: asyncio.TimerHandle | None = None
        self.url = ""
        self.metrics_url: str | None = None

    @property
    def read(self) -> asyncio.Event:
        """Set once the policies are known."""
        return self._parts.store.tail.caught_up

    async def start(self) -> None:
        """Listen, and begin to read; raises WeirError: a port is taken, or who comes cannot be known."""
        if not self.has_tokens and self._settings.proxy_protocol is ProxyProtocol.REQUIRED:
            # A header may name any address, also of this machine.
            raise WeirError("admin.proxy_protocol: required needs tokens (weir admin --tokens)")
        use_threads()
        if self._metrics_address is not None:
            tls = None if self._settings.tls is None else WatchedContext.of_metrics(self._settings.tls)
            self.metrics_url = serve_metrics(self._parts.metrics.registry, *self._metrics_address, tls)
        listener = listen_at(self._listen, both=False)
        scheme = "http" if self._settings.tls is None else "https"
        self.url = f"{scheme}://{address_text(*listener.getsockname()[:2])}"
        if not self.has_tokens:
            logger.warning("no tokens are configured: only clients on this machine are answered")
        self._watch.start()
        self._parts.store.tail.start(asyncio.get_running_loop())
        self._reading = Tasks()
        self._reading.spawn(self._read())
        self._serving = asyncio.create_task(self._server.serve(sockets=[]))
        self._tell()
        await self._server.open(listener)

    async def ended(self) -> None:
        """Wait until the server has ended by itself, which it should not."""
        if self._serving is not None:
            await asyncio.shield(self._serving)

    async def stop(self) -> None:
        """Answer what is under way and end."""
        self._parts.streams.stopping.set()
        self._server.end()
        self._watch.stop()
        if self._telling is not None:
            self._telling.cancel()
        if self._serving is not None:
            await self._serving
        if self._reading is not None:
            self._reading.cancel()
        tails: tuple[Tail[Any], ...] = (self._parts.store.tail, *self._tails.values())
        await asyncio.gather(*(tail.stop(_TAIL_STOP_S) for tail in tails))

    async def _read(self) -> None:
        """Read what was decided once the policies are known: without its limit no use says anything."""
        await self.read.wait()
        for tail in self._tails.values():
            tail.start(asyncio.get_running_loop())

    def _tell(self) -> None:
        """Tell Prometheus who is pressed, again and again; it asks in a thread of its own."""
        self._parts.metrics.tell(*pressed(self._parts.view, time.time_ns() // 1_000_000))
        self._telling = asyncio.get_running_loop().call_later(_TELL_S, self._tell)

    def _begin_anew(self, topic: str) -> None:
        """A topic was made again: its new records count from the first on (called by the watch's thread)."""
        policies = topic == self._topics.policies
        tail: Tail[Any] | None = self._parts.store.tail if policies else self._tails.get(topic)
        if tail is not None:
            tail.begin_anew()

    def _policies(self) -> PolicySet:
        """Those in force; none before they are read."""
        with contextlib.suppress(Unavailable):
            entries, now_ms = self._parts.store.entries, time.time_ns() // 1_000_000
            if self._in_force.written is not entries or now_ms >= self._until:
                self._in_force = PolicySet(entries, at=now_ms)
                self._until = next_end(entries, now_ms)
        return self._in_force

    def _take_decisions(self, decisions: list[Told]) -> None:
        for decision, fields, ts in decisions:
            if CANDIDATE in fields:
                continue
            if isinstance(decision, Share):
                self._parts.usage.take_share(decision, ts)
            elif isinstance(decision, DispatchDecision):
                self._parts.deliveries.take_decision(decision)
            elif isinstance(decision, BacklogDecision):
                self._parts.backlogs.take_decision(decision)
            elif isinstance(decision, BacklogAction):
                self._parts.backlogs.take_action(decision)
        self._parts.view.take_decisions(decisions)
        self._forget()

    def _take_reports(self, reports: list[Told]) -> None:
        for report, _, ts in reports:
            latest = ts + MAX_AHEAD_MS
            if isinstance(report, GroupUsage) and report.ts <= latest:
                self._parts.usage.take_report(report)
            elif isinstance(report, DispatchUsage):
                self._parts.deliveries.take_usage(report, ts)
            elif isinstance(report, BacklogReport) and report.ts <= latest:
                self._parts.backlogs.take_report(report)
        self._parts.view.take_reports(reports)
        self._forget()

    def _forget(self) -> None:
        """Let go of topics that are there no more; the policies, which are read first, say how soon."""
        self._parts.backlogs.forget(kept_since(self._policies(), time.time_ns() // 1_000_000))


def _server(app: FastAPI, settings: AdminSettings, metrics: AdminMetrics, request_ms: int) -> "_Server":
    # Connections makes room for a new one of an address, rather than turning it away.
    doors = settings.model_copy(update={"connections_per_address": 0})
    entrance = Entrance(
        doors, lambda: CONNECTIONS_MAX, metrics.tls_failures, metrics.refused_connections,
        goodbye_s=REQUEST_MS / 1000,
    )  # fmt: skip
    protocol = partial(GuardedProtocol, Connections(settings, metrics, request_ms), entrance.greet)
    config = uvicorn.Config(
        app,
        http=protocol,  # type: ignore[arg-type]  # all that is done with the class is to call it
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # Whoever is on the other end counts, not what a header says about it.
        proxy_headers=False,
        h11_max_incomplete_event_size=_HEAD_MAX_BYTES,
        # Its warnings are one for each request that is no HTTP: counted, since anybody may send them.
        log_level=logging.ERROR,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=_STOP_S,
    )
    return _Server(config, entrance)


class _Server(uvicorn.Server):
    """Leaves signals to the command, which stops more than the server, and gets its clients as proxies do."""

    def __init__(self, config: uvicorn.Config, entrance: Entrance) -> None:
        super().__init__(config)
        self._entrance = entrance

    async def open(self, listener: socket.socket) -> None:
        """Let clients in; it serves already."""
        await self._entrance.open(listener, self._connection)

    def end(self) -> None:
        """Let nobody in any more, and answer what is under way."""
        self._entrance.close()
        self.should_exit = True

    def _connection(self) -> asyncio.Protocol:
        """The protocol of a client that has come."""
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
