"""The exam of resource groups: a stack with several proxies, and clients that each want a part of a group."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from live_backlogs import series
from load_kit import Worker, peak_of
from stack_kit import decisions, read_all, until

from benchmarks.kit.stack import Stack
from weir.stack.kafka import HOST, free_port
from weir.stack.parts import Change, Part

LIMIT = 300.0
"""Of each group, records per second."""
DEMAND = {"small": 50.0, "one": 500.0, "two": 500.0}
"""What the client at each proxy wants of each group."""
KINDS = ("msgs", "bytes", "reads")
START_LIMIT_S = 150.0
Say = Callable[[str], None]


@dataclass
class Exam:
    """The stack, its proxies, and the clients of each group by name; `say` prints a line."""

    stack: Stack
    running: ExitStack
    say: Say
    proxies: dict[str, Part] = field(default_factory=dict)
    listen: dict[str, str] = field(default_factory=dict)
    clients: dict[str, dict[str, Worker]] = field(default_factory=lambda: {kind: {} for kind in KINDS})

    def launch(self, name: str) -> None:
        """Start `weir proxy`."""
        listen = self.listen[name] = f"{HOST}:{free_port()}"
        folder = self.stack.folder
        words = ["--kafka", self.stack.bootstrap, "--listen", listen, "--id", name, "--metrics", f"{HOST}:0"]
        log, own = folder / "logs" / f"{name}.log", folder / name
        part = Part("proxy", words, log=log, run_dir=own, start_s=START_LIMIT_S)
        self.proxies[name] = part
        self.running.callback(part.kill)
        part.start()

    def await_ready(self, name: str) -> str:
        """Wait until the job has decided a proxy's probe; returns where it listens."""
        part = self.proxies[name]
        until(lambda: part.look() is Change.READY, what=f"proxy {name}", limit_s=START_LIMIT_S)
        return self.listen[name]

    def metric(self, proxy: str, name: str, **labels: str) -> float | None:
        """A metric of a proxy now; None: it is not there."""
        own = (f'{label}="{value}"' for label, value in labels.items())
        return series((self.proxies[proxy].ready or {})["metrics"], name, *own)

    def state(self, proxy: str, state: str, group: str = "msgs") -> bool:
        """Whether a proxy stands so towards its share of a group."""
        return self.metric(proxy, "weir_group_state", group=group, state=state) == 1.0

    def counted(self, proxy: str, group: str) -> float:
        """Records published through a proxy that counted in a group so far."""
        name = "pulsar_resource_group_messages_used_total"
        return self.metric(proxy, name, ResourceGroup=group, MonitoringClass="Publish") or 0.0

    def decided(self, group: str) -> list[dict[str, Any]]:
        """All that was decided of a group so far, repeats aside."""
        made = decisions(read_all(self.stack.bootstrap, self.stack.topics.decisions)).values()
        return [decision for decision in made if decision.get("group") == group]

    def begin(self, kind: str, name: str, worker: Worker) -> None:
        """Start a client and count it."""
        self.clients[kind][name] = self.running.enter_context(worker)

    def rates(self, kind: str, from_s: float, to_s: float) -> dict[str, float]:
        """What each client of a group got through, per second."""
        return {name: worker.rate(from_s, to_s) for name, worker in self.clients[kind].items()}

    def total(self, kind: str, from_s: float, to_s: float) -> float:
        """What all clients of a group got through together, per second."""
        return sum(self.rates(kind, from_s, to_s).values())

    def peak(self, kind: str, from_s: float, to_s: float) -> float:
        """The most that they got through in any 5 s, per second."""
        return peak_of(list(self.clients[kind].values()), from_s, to_s)

    def show(self, what: str, from_s: float, to_s: float, kinds: tuple[str, ...] = KINDS) -> None:
        """Print what was measured."""
        for kind in kinds:
            told = ", ".join(f"{name} {rate:.1f}" for name, rate in self.rates(kind, from_s, to_s).items())
            most = f", most in 5 s {self.peak(kind, from_s, to_s):.1f}" if to_s - from_s >= 5 else ""
            self.say(f"{what}, {kind}: total {self.total(kind, from_s, to_s):.1f} ({told}){most} per second")
