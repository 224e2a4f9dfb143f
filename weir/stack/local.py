"""The local stack of `weir up`: brokers, job, proxies, admin API, collector, from start to stop."""

import argparse
import fcntl
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster, Topics, address_text
from streaming.kafka_io.threads import Threads
from weir.foreground import StopSignal, private_folder
from weir.stack.kafka import LocalKafka, port_for
from weir.stack.parts import Broker, Part, look_after, stop_all
from weir.stack.pulsar import LocalPulsar, prepare
from weir.stack.server import LocalServer

POLL_S = 0.1
LOCAL = "local"
"""In the place of an address: a Pulsar of our own."""
_BROKERS = ("kafka", "pulsar")
PULSAR_PROXY = "pulsar_proxy"
"""The part that is a second `weir proxy`."""
PULSAR_COLLECTOR = "collect_pulsar"
"""The part that is a second `weir collect`."""
_COMMANDS = {PULSAR_PROXY: "proxy", PULSAR_COLLECTOR: "collect"}
_WHAT = {"collect": ("kafka",), PULSAR_COLLECTOR: ("pulsar",)}
_KEPT = ("kafka", "pulsar", "checkpoint", "logs", "run", "up.lock")
"""What stands in the data folder."""
# Shares of the stop limit: the proxies and the job answer what is under way, collectors may be evicting. Who
# stands beside each other is asked to stop at the same time.
_STOP_SHARES: tuple[tuple[tuple[str, ...], float], ...] = (
    (("admin", "collect", PULSAR_COLLECTOR), 0.25),
    (("proxy", PULSAR_PROXY), 0.4),
    (("job",), 0.75),
    (_BROKERS, 1.0),
)
_START_S, _STOP_S = 120.0, 18.0
"""Limits for one part to be ready, and for stopping all of them; then they are killed."""
_STILL_WAITING_S = 10.0


class Stack:
    """All parts of one `weir up`; call its methods from the main thread only (see Child).

    Args:
        args: options of `weir.commands.up.add_stack_options`.
        policies: entries to publish before the parts start, None: leave those on the topic.
        settings: by name, the sections of weir.yaml.
        stop: asked while it starts.
        say: takes lines for people.
    """

    def __init__(
        self, args: argparse.Namespace, policies: Mapping[str, Any] | None, settings: Mapping[str, Any],
        stop: StopSignal, say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._args, self._policies, self._settings = args, policies, settings
        self._data: Path = args.data.absolute()
        self._stop, self._say = stop, say
        self._lock: IO[str] | None = None
        self.bootstrap: str = args.kafka or ""
        self._pulsar: str | None = args.pulsar
        self._pulsar_admin: str | None = args.pulsar_admin
        self.parts: list[Part] = []

    def start(self) -> bool:
        """Start everything and wait until all parts are ready.

        Returns:
            False if a stop was requested meanwhile.

        Raises:
            WeirError: a part failed, or did not get ready in time.
        """
        try:
            self._start_brokers()
        except WeirError:
            # What a stop breaks off does not count as failed.
            if not self._stop.asked:
                raise
        if self._stop.asked:
            return False
        # In a thread: Kafka may be away for long, and a stop must not wait for it.
        prepared = Threads().submit(self._make_parts)
        while not prepared.done():
            if self._stop.wait(POLL_S):
                return False
        self.parts += prepared.result()
        waiting = [part for part in self.parts if part.ready is None]
        for part in waiting:
            # The job waits for its broker for a limited time.
            if not self._stop.asked and not part.child.alive():
                part.start()
        self._say(f"starting {', '.join(part.name for part in waiting)} ...")
        return self._until_ready(self.parts)

    def look(self) -> bool:
        """Look after every part once.

        Returns:
            True if process ids have changed.

        Raises:
            WeirError: a part ended and is not to be restarted; names it, with the end of its log.
        """
        return look_after(self.parts, self._say, restart=self._args.restart)

    def addresses(self) -> dict[str, Any]:
        """What the running parts say: addresses and process ids, None where there is none."""
        ready = {part.name: part.ready or {} for part in self.parts}
        content = {
            "proxy": ready["proxy"].get("listen"),
            "admin": ready["admin"].get("admin"),
            "kafka": self.bootstrap,
        }
        if self._pulsar:
            content |= {"pulsar": self._pulsar, "pulsar_proxy": ready[PULSAR_PROXY].get("listen")}
        if self._pulsar or self._pulsar_admin:
            content["pulsar_admin"] = self._pulsar_admin
        content["pids"] = {
            "kafka": None,
            "collect": None,
            "job_jvm": ready["job"].get("jvm_pid"),
            **{part.name: part.child.pid for part in self.parts},
        }
        return content

    def metrics_sources(self) -> dict[str, str | None]:
        """Part -> URL of its metrics, None while it has none; for other threads, too. Brokers have none."""
        # Read once: the main thread forgets meanwhile what a part that ended has said.
        said = [(part.name, part.ready) for part in self.parts if part.name not in _BROKERS]
        return {
            name: (ready or {}).get("metrics")
            for name, ready in said
            if ready is None or ready.get("metrics")
        }

    def stop(self) -> None:
        """Stop who asks first, so that nobody does any more, then the job, brokers last."""
        begun = time.monotonic()

        def left(share: float) -> float:
            return max(0.2, begun + _STOP_S * share - time.monotonic())

        by_name = {part.name: part for part in self.parts if part.child.pid}
        for names, share in _STOP_SHARES:
            stop_all([by_name[name] for name in names if name in by_name], left(share), self._say)
        if self._lock is not None:
            self._lock.close()

    def kill(self) -> None:
        """SIGKILL to everything at once."""
        for part in self.parts:
            part.child.kill()

    def take_data_dir(self) -> None:
        """Hold its folder, before anything else; raises WeirError if another one does."""
        warning = private_folder(self._data, _KEPT)
        if warning:
            self._say(warning)
        self._lock = (self._data / "up.lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            self._lock.seek(0)
            pid = self._lock.read().strip() or "unknown"
            raise WeirError(
                f"another `weir up` (pid {pid}) uses {self._data}; stop it or choose another --data"
            ) from held
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def _start_brokers(self) -> None:
        """Start those that are to be ours, and wait until they are ready."""
        local, data = self._settings["local"], self._data
        if self._args.kafka is None:
            kafka = LocalKafka(data / "kafka", port=port_for(local.kafka_port, "Kafka", self._say))
            self.bootstrap = kafka.bootstrap
            self.parts = [self._make_job(kafka.cluster_id())]
            # Its modules are loaded while the broker starts.
            self.parts[0].start()
            self._run(kafka)
        if self._args.pulsar == LOCAL and not self._stop.asked:
            prepare(self._say, lambda: self._stop.asked)
            pulsar = LocalPulsar(
                data / "pulsar",
                port=port_for(local.pulsar_port, "Pulsar", self._say),
                admin_port=port_for(local.pulsar_admin_port, "Pulsar's admin API", self._say),
                heap_mb=local.pulsar_heap_mb,
            )
            self._pulsar, self._pulsar_admin = pulsar.service, self._pulsar_admin or pulsar.admin
            self._run(pulsar)

    def _run(self, server: LocalServer) -> None:
        broker = Broker(server, start_s=_START_S)
        self._say(f"starting {broker.name} in {server.data_dir} ...")
        self.parts.append(broker)
        broker.start()
        if not self._until_ready([broker]):
            broker.kill()

    def _until_ready(self, parts: Sequence[Part]) -> bool:
        """Look after these until all are ready; False if a stop was requested meanwhile."""
        next_word = time.monotonic() + _STILL_WAITING_S
        while not self._stop.wait(POLL_S):
            look_after(parts, self._say, restart=self._args.restart)
            waiting = [part for part in parts if part.ready is None]
            if not waiting:
                return True
            if time.monotonic() > next_word:
                next_word += _STILL_WAITING_S
                names = ", ".join(part.name for part in waiting)
                self._say(f"still waiting for {names} ({waiting[0].seconds:.0f} s)")
        return False

    def _prepare_topics(self) -> None:
        # Here and not above: `weir --help` must not load a Kafka client.
        from streaming.kafka_io.policy_topic import PolicyLog, Update, differences
        from streaming.kafka_io.policy_turn import change_policies
        from weir.logs.policy_log import actor_here
        from weir.stack.topics import ensure_topics

        created = ensure_topics(self.cluster, partitions=self._settings["local"].partitions)
        if created:
            self._say(f"created the topics {', '.join(created)}")
        wanted = self._policies
        if wanted is None:
            return

        def decide(log: PolicyLog) -> list[Update]:
            # What was changed through the admin API since is newer than the file.
            return differences(log, wanted, ("file", "apply"), override=True, respected=("admin",))

        written = change_policies(self.cluster, decide, origin="file", actor=actor_here("file"))
        self._say(f"policies: {len(wanted)} entries, {len(written.updates)} of them changed")
        held = written.log.entries
        for path, value in wanted.items():
            if held.get(path) != value and path not in {update.path for update in written.updates}:
                self._say(f"{path} stays as the admin API left it; `weir policy apply` takes the file's")

    def _make_job(self, cluster_id: str) -> Part:
        # A checkpoint holds offsets of one cluster: another one under the same data gets its own.
        checkpoint = self._data / "checkpoint" / re.sub(r"[^\w-]", "_", cluster_id)
        log_dir = str(self._data / "logs")
        return self._make_part("job", ["--checkpoint", str(checkpoint), "--log-dir", log_dir])

    def _make_parts(self) -> list[Part]:
        """Those that are not there yet, with Kafka ready for them."""
        from weir.stack.topics import cluster_id

        self._prepare_topics()
        given, settings = self._args, self._settings
        args = {
            "proxy": ["--listen", address_text(*given.listen)],
            "admin": ["--listen", address_text(*given.admin)],
        }
        if self._pulsar_admin:
            args["admin"] += ["--upstream", self._pulsar_admin]
        if self._pulsar:
            (host, port), listen = given.pulsar_listen, address_text(*given.pulsar_listen)
            unknown = not port or host in ("0.0.0.0", "::")
            if not (settings["http"].binary_address or unknown):
                # Lookups over HTTP lead to the proxy as well.
                args["admin"] += ["--binary-address", listen]
            # The settings name one proxy, and this is another.
            name = ["--id", f"{settings['proxy'].id}-pulsar"] if settings["proxy"].id else []
            args[PULSAR_PROXY] = ["--pulsar", self._pulsar, "--listen", listen, *name]
        backlogs = settings["backlog"].enabled
        if settings["collect"].quotas_from_kafka or backlogs:
            args["collect"] = ["--stand-by"]  # another one that takes over must not end all the rest
        if self._pulsar_admin and backlogs:
            args[PULSAR_COLLECTOR] = ["--stand-by", "--no-usage", "--admin", self._pulsar_admin]
        job = [] if given.kafka is None else [self._make_job(cluster_id(self.cluster))]
        return job + [self._make_part(name, words) for name, words in args.items()]

    def _make_part(self, name: str, own: list[str]) -> Part:
        file = self._args.settings
        settings = ["--settings", str(Path(file).absolute())] if file else []
        return Part(
            name,
            [*_WHAT.get(name, ()), "--kafka", self.bootstrap, *settings, "--metrics", "127.0.0.1:0", *own],
            command=_COMMANDS.get(name, name), log=self._data / "logs" / f"{name}.log",
            run_dir=self._data / "run", start_s=_START_S,
        )  # fmt: skip

    @property
    def cluster(self) -> Cluster:
        """Where Weir's topics are, with the login of who looks at them."""
        kafka = self._settings["kafka"]
        return Cluster(
            self.bootstrap, Topics(kafka.topic_prefix), kafka.client, topics_kept_ms=kafka.topics_kept_ms
        )
