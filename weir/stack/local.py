"""The local stack of `weir up`: Kafka, job, proxy, admin API, collector, from start to stop."""

import fcntl
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from streaming.contract.errors import WeirError
from streaming.contract.topics import Topics
from weir.foreground import StopSignal, private_folder
from weir.settings import CollectSettings, KafkaSettings, LocalSettings
from weir.stack.kafka import LocalKafka, port_is_free
from weir.stack.parts import Change, Limits, Part

POLL_S = 0.1
_KEPT = ("kafka", "checkpoint", "logs", "run", "up.lock")
"""What stands in the data folder."""
# Shares of the stop limit: the proxy and the job answer what is under way, the others only end.
_STOP_SHARE = {"admin": 0.2, "proxy": 0.35, "job": 0.7, "collect": 0.75, "kafka": 1.0}
_STILL_WAITING_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """What `weir up` was asked for.

    Attributes:
        policies: entries to publish before the parts start, None: leave those on the topic.
        kafka: `HOST:PORT` of an existing cluster, None: start a local one.
        listen: `HOST:PORT` of the proxy.
        admin: `HOST:PORT` of the admin API.
        data: folder for everything that is kept.
        settings_file: passed on to the parts.
        restart: start a part again that ends by itself.
    """

    policies: Mapping[str, Any] | None
    kafka: str | None
    listen: str
    admin: str
    data: Path
    settings_file: str | None
    restart: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """The sections that the stack itself reads."""

    kafka: KafkaSettings
    local: LocalSettings
    collect: CollectSettings


class Stack:
    """All parts of one `weir up`; call its methods from the main thread only (see Child).

    Args:
        options: see StackOptions.
        settings: see StackSettings.
        stop: asked wherever something is waited for.
        say: takes lines for people.
    """

    def __init__(
        self, options: StackOptions, settings: StackSettings, stop: StopSignal, say: Callable[[str], None]
    ) -> None:
        self._options = options
        self._settings = settings
        self._stop = stop
        self._say = say
        self._lock: IO[str] | None = None
        self.kafka: LocalKafka | None = None
        self.bootstrap = options.kafka or ""
        self.parts: list[Part] = []
        self._ready_once: set[str] = set()

    def start(self) -> bool:
        """Start everything and wait until all parts are ready.

        Returns:
            False if a stop was requested meanwhile.

        Raises:
            WeirError: a part failed, or did not get ready in time.
        """
        self._take_data_dir()
        if self.kafka is None and self._options.kafka is None:
            self._start_kafka()
        if not self._stop.requested:
            self._prepare_topics()
        self.parts = self._make_parts()
        for part in self.parts:
            if not self._stop.requested:
                part.start()
        self._say(f"starting {', '.join(part.name for part in self.parts)} ...")
        next_word = time.monotonic() + _STILL_WAITING_S
        while not self._stop.wait(POLL_S):
            self.look()
            waiting = [part.name for part in self.parts if part.ready is None]
            if not waiting:
                return True
            if time.monotonic() > next_word:
                next_word += _STILL_WAITING_S
                self._say(f"still waiting for {', '.join(waiting)} ({self.parts[0].seconds:.0f} s)")
        return False

    def look(self) -> bool:
        """Look after every part once.

        Returns:
            True if process ids have changed.

        Raises:
            WeirError: a part ended and is not to be restarted; names it, with the end of its log.
        """
        changed = self._look_at_kafka()
        for part in self.parts:
            change = part.look()
            if change is Change.READY:
                again = "" if part.name not in self._ready_once else " again"
                self._say(f"{part.name} is ready{again} ({part.seconds:.1f} s)")
                self._ready_once.add(part.name)
                changed = True
            elif change in (Change.DIED, Change.LATE):
                self._handle_failure(part)
                changed = True
        return changed

    def addresses(self) -> dict[str, Any]:
        """What the running parts say: proxy, admin, kafka and the process ids, None where there is none."""
        ready = {part.name: part.ready or {} for part in self.parts}
        pids = {part.name: part.child.pid for part in self.parts}
        return {
            "proxy": ready["proxy"].get("listen"),
            "admin": ready["admin"].get("admin"),
            "kafka": self.bootstrap,
            "pids": {
                "kafka": self.kafka.pids[0] if self.kafka else None,
                "job_jvm": ready["job"].get("jvm_pid"),
                **pids,
            },
        }

    def metrics_sources(self) -> dict[str, str | None]:
        """Part -> URL of its metrics, None while it has none."""
        return {
            part.name: (part.ready or {}).get("metrics")
            for part in self.parts
            if part.ready is None or part.ready.get("metrics")
        }

    def stop(self) -> None:
        """Stop admin API and proxy first, so that nobody asks any more, then the job, the rest, and Kafka."""
        begun = time.monotonic()
        limit_s = self._settings.local.stop_timeout_s

        def left(name: str) -> float:
            return max(0.2, begun + limit_s * _STOP_SHARE[name] - time.monotonic())

        by_name = {part.name: part for part in self.parts}
        for name in ("admin", "proxy", "job", "collect"):
            part = by_name.get(name)
            if part is None or not part.child.pid:
                continue
            if not part.child.stop(left(name)):
                self._say(f"{name} did not stop in time and was killed")
            part.kill()
        if self.kafka is not None:
            self.kafka.stop(left("kafka"))
        if self._lock is not None:
            self._lock.close()

    def kill(self) -> None:
        """SIGKILL to everything at once."""
        for part in self.parts:
            part.child.kill()
        for broker in self.kafka.children if self.kafka else []:
            broker.kill()

    def _take_data_dir(self) -> None:
        warning = private_folder(self._options.data, _KEPT)
        if warning:
            self._say(warning)
        self._lock = (self._options.data / "up.lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            self._lock.seek(0)
            pid = self._lock.read().strip() or "unknown"
            raise WeirError(
                f"another `weir up` (pid {pid}) uses {self._options.data}; stop it or choose another --data"
            ) from held
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def _start_kafka(self) -> None:
        wanted = self._settings.local.kafka_port
        port = wanted if port_is_free(wanted) else 0
        if wanted and not port:
            self._say(f"port {wanted} is taken; Kafka gets another one")
        self.kafka = LocalKafka(self._options.data / "kafka", port=port)
        self.bootstrap = self.kafka.bootstrap
        self._say(f"starting kafka in {self._options.data / 'kafka'} ...")
        self._run_kafka()

    def _run_kafka(self) -> None:
        if self.kafka is None:
            return
        begun = time.monotonic()
        try:
            self.kafka.start(self._settings.local.start_timeout_s, lambda: self._stop.requested)
        except WeirError:
            if self._stop.requested:
                return
            raise
        self._say(f"kafka is ready ({time.monotonic() - begun:.1f} s)")

    def _look_at_kafka(self) -> bool:
        broker = self.kafka.children[0] if self.kafka and self.kafka.children else None
        if broker is None or broker.alive() or self._stop.requested:
            return False
        tail = "".join(f"\n    {line}" for line in broker.last_lines())
        why = f"kafka ended with status {broker.poll()}; the end of {broker.log}:{tail}"
        if not self._options.restart:
            raise WeirError(why)
        self._say(f"{why}\nrestarting kafka")
        self._run_kafka()
        return True

    def _handle_failure(self, part: Part) -> None:
        why = part.why()
        pause = part.plan_restart() if self._options.restart else None
        if pause is None:
            raise WeirError(why)
        self._say(f"{why}\nrestarting {part.name} in {pause:.1f} s")

    def _prepare_topics(self) -> None:
        # Here and not above: `weir --help` must not load a Kafka client.
        from streaming.kafka_io.policy_topic import PolicyLog, Update, differences
        from streaming.kafka_io.policy_turn import change_policies
        from weir.stack.topics import ensure_topics

        topics, client = Topics(self._settings.kafka.topic_prefix), self._settings.kafka.client
        created = ensure_topics(
            self.bootstrap, topics, partitions=self._settings.local.partitions, client=client
        )
        if created:
            self._say(f"created the topics {', '.join(created)}")
        wanted = self._options.policies
        if wanted is None:
            return

        def decide(log: PolicyLog) -> list[Update]:
            # What was changed through the admin API since is newer than the file.
            return differences(log, wanted, ("file", "apply"), override=True, respected=("admin",))

        written = change_policies(self.bootstrap, topics, decide, origin="file", client=client)
        self._say(f"policies: {len(wanted)} entries, {len(written.updates)} of them changed")
        held = written.log.entries
        for path, value in wanted.items():
            if held.get(path) != value and path not in {update.path for update in written.updates}:
                self._say(f"{path} stays as the admin API left it; `weir policy apply` takes the file's")

    def _make_parts(self) -> list[Part]:
        data, local = self._options.data, self._settings.local
        common = ["--kafka", self.bootstrap]
        if self._options.settings_file:
            common += ["--settings", self._options.settings_file]
        metrics = ["--metrics", "127.0.0.1:0"]
        # A checkpoint holds offsets of one cluster: another one under the same data gets its own.
        checkpoint = data / "checkpoint" / self._cluster_id()
        args = {
            "job": [*common, *metrics, "--checkpoint", str(checkpoint), "--log-dir", str(data / "logs")],
            "proxy": [*common, *metrics, "--listen", self._options.listen],
            "admin": [*common, *metrics, "--listen", self._options.admin],
        }
        if self._settings.collect.quotas_from_kafka:
            args["collect"] = common
        limits = Limits(
            start_s=local.start_timeout_s, backoff_s=local.restart_backoff_s, restarts_max=local.restarts_max
        )
        return [
            Part(name, part_args, log=data / "logs" / f"{name}.log", run_dir=data / "run", limits=limits)
            for name, part_args in args.items()
        ]

    def _cluster_id(self) -> str:
        from weir.stack.topics import cluster_id

        return re.sub(r"[^\w-]", "_", cluster_id(self.bootstrap, self._settings.kafka.client))
