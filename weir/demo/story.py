"""A short real workload on the running stack, and what it shows: `weir demo`."""

import queue
import shlex
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import load_object
from streaming.contract.printable import printable
from streaming.contract.times import clock
from weir.demo.clients import CLIENTS, CONFLUENT, JAVA, KAFKA_PYTHON, Scene
from weir.foreground import StopSignal
from weir.jars.folders import is_clone
from weir.logs.tail_lines import describe, subject_of
from weir.logs.topic_reader import TopicReader
from weir.stack.local import POLL_S, Stack
from weir.stack.serve import reached

WORKLOAD_LIMIT_S = 120.0
LINES_MAX = 10_000
# The decisions of the last requests are still on their way when the clients have their answers.
_LAST_DECISIONS_S = 2.0
_WHO_WIDTH = 16


class Screen:
    """Collects lines from all threads; only the main thread prints them."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str] = queue.Queue(LINES_MAX)

    def say(self, who: str, what: str) -> None:
        """Add a client's line."""
        self._put(f"{clock(int(time.time() * 1000))}  {who:<{_WHO_WIDTH}}  {what}")

    def decision(self, decision: dict[str, Any]) -> None:
        """Add a decision's line."""
        when, _, rest = describe(decision).partition("  ")
        self._put(f"{when}  {'job decides':<{_WHO_WIDTH}}  {rest}")

    def show(self) -> None:
        """Print what has come in."""
        while not self._lines.empty():
            print(self._lines.get_nowait(), flush=True)

    def _put(self, line: str) -> None:
        # A full screen buffer drops lines rather than hold up a client.
        if not self._lines.full():
            self._lines.put_nowait(printable(line))


def play(stack: Stack, stop: StopSignal, data: Path, policies: str) -> list[str]:
    """Let the clients act and show what happens.

    Args:
        stack: all is ready.
        stop: asked for an end.
        data: folder of the stack.
        policies: the file that limits the clients.

    Returns:
        What went wrong with the clients, empty if nothing.

    Raises:
        WeirError: a part of the stack failed.
    """
    screen, failures = Screen(), list[str]()
    over = threading.Event()
    proxy = str(stack.addresses()["proxy"])
    scene = Scene(
        proxy=proxy,
        prefix=f"demo-{int(time.time())}",
        work_dir=data / "logs",
        say=screen.say,
        stopping=lambda: stop.asked or over.is_set(),
    )

    def act(client: Any) -> None:
        try:
            client(scene)
        except Exception as failure:  # noqa: BLE001  # of a library too: nobody else hears of it
            failures.append(str(failure) if isinstance(failure, WeirError) else repr(failure))
            screen.say(client.__name__.removeprefix("run_"), f"FAILED: {failures[-1]}")

    file = Path(policies).name
    print(f"\nThree clients, each allowed 1 partition a second and a burst of 11 (see {file}):")
    print(f"{'TIME (UTC)':<12}  {'WHO':<{_WHO_WIDTH}}  WHAT", flush=True)
    actors = [threading.Thread(target=act, args=(client,), daemon=True) for client in CLIENTS]
    watcher = threading.Thread(target=_watch_decisions, args=(stack, screen, over), daemon=True)
    watcher.start()
    for actor in actors:
        actor.start()
    end = time.monotonic() + WORKLOAD_LIMIT_S
    while any(actor.is_alive() for actor in actors) and not stop.wait(POLL_S):
        stack.look()
        screen.show()
        if time.monotonic() > end:
            failures.append(f"the workload took longer than {WORKLOAD_LIMIT_S:.0f} s")
            break
    stop.wait(_LAST_DECISIONS_S)
    over.set()
    watcher.join(_LAST_DECISIONS_S)
    screen.show()
    return failures


def _watch_decisions(stack: Stack, screen: Screen, over: threading.Event) -> None:
    cluster = stack.cluster
    reader = TopicReader(cluster.bootstrap, cluster.client)
    mine = {f"user=ANONYMOUS,client-id={name}" for name in (JAVA, KAFKA_PYTHON, CONFLUENT)}
    try:
        spans = [span.at_end() for span in reader.spans(cluster.topics.decisions, 0, None)]
        for batch in reader.follow(spans):
            for record in batch:
                # Anybody may write there: what is no decision is not of these clients.
                with suppress(BadEvent):
                    decision = load_object(record.value)
                    if subject_of(decision) in mine:
                        screen.decision(decision)
            if over.is_set():
                return
    except WeirError as failure:
        screen.say("weir tail", str(failure))
    finally:
        reader.close()


def how_to_go_on(stack: Stack, policies: str, settings: str | None) -> None:
    """Say what to do with the stack that runs on, by the policies of this file."""
    weir = ".venv/bin/weir" if is_clone() else "weir"
    file = shlex.quote(policies.removeprefix(f"{Path.cwd()}/"))
    addresses = stack.addresses()
    proxy, there = addresses["proxy"], reached(addresses["kafka"], settings)
    print("\nEverything runs on. Point a client of your own at the proxy, and watch in a second terminal:")
    print(f"  your client             bootstrap.servers={proxy}")
    print(f"  who waits, and why      {addresses['admin']}/ in a browser, or {weir} top {there}")
    print(f"  the decisions           {weir} tail {there}")
    print(f"  other limits            edit {file}, or a copy of it, then")
    print(f"                          {weir} policy apply {file} {there}")
    print(f"  what was decided        {weir} dump {there} --out events.jsonl")
    print(f"  decide it again         {weir} replay --policies {file} \\")
    print("                            --events events.jsonl --out decisions.jsonl")
    print("  stop                    Ctrl-C", flush=True)
