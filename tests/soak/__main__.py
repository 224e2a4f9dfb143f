"""The whole stack under load while its parts are killed, stopped and cut off (docs/reliability.md).

Usage: python tests/soak [--minutes N] [--seed N] [--shrink N]
       python tests/soak --check FOLDER   (a history that was kept, once more)

Exit status 1: a rule was broken; the history and all logs are then kept in .weir/soak/SEED.
"""

import argparse
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from statistics import median

import orjson

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / one) for one in ("kit", "soak/load", "soak/rules"))]

from confluent_kafka.admin import AdminClient  # noqa: E402  # the kits must be found first
from prometheus_kit import Prometheus  # noqa: E402
from soak_alerts import note_alerts, spans  # noqa: E402
from soak_backs import BACK_S, POLL_S, Backs  # noqa: E402
from soak_bounds import most_above  # noqa: E402
from soak_checks import check, got_through, successes  # noqa: E402
from soak_disks import let_go, let_go_of_dead  # noqa: E402
from soak_history import Entry, History, Recorder, now_ms  # noqa: E402
from soak_load import PULSAR_TOPIC, TOPICS, clients, limits  # noqa: E402
from soak_rig import CHECKPOINT, Rig  # noqa: E402
from soak_schedule import KILLS, PROXIES, Fault, kind_of, schedule, smaller  # noqa: E402
from stack_kit import records  # noqa: E402

from weir.logs.topic_reader import Record  # noqa: E402

SETTLE_S, REPLAY_S, SCRAPE_S = 240.0, 900.0, 5
_begun = time.monotonic()


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(description="Kill everything, and look whether anything was lost.")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--check", type=Path, metavar="FOLDER")
    parser.add_argument("--shrink", type=float, metavar="MINUTES", help="look for the faults that it takes")
    args = parser.parse_args()
    if args.check is not None:
        file = args.check / "history.jsonl"
        if not file.is_file():
            parser.error(f"there is no {file}")
        return judge(History.read(file))
    # What is started is stopped by whatever ends it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # A crowd of clients and all relays are here.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    faults = schedule(args.seed, 60 * args.minutes)
    status = once(args.seed, 60 * args.minutes, faults)
    if args.shrink is None or not status:
        return status
    until = time.monotonic() + 60 * args.shrink
    left = smaller(
        faults, lambda some: once(args.seed, 60 * args.minutes, some) == 1, lambda: time.monotonic() > until
    )
    say(f"{len(left)} of {len(faults)} faults break a rule: " + "; ".join(map(str, left)))
    return 1


def once(seed: int, seconds: float, faults: list[Fault]) -> int:
    """One run of a seed with these of its faults; the exit status."""
    folder = ROOT / ".weir" / "soak" / str(seed)
    let_go_of_dead(folder.parent)
    let_go(folder / CHECKPOINT)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    say(f"seed {seed}, {seconds / 60:g} minutes, in {folder}")
    history = folder / "history.jsonl"
    with Recorder(history) as told, Rig(folder, told, say) as rig:
        run(rig, told, folder, seed, seconds, faults)
        settle(rig, told, folder)
    status = judge(History.read(history))
    if status:
        say(f"kept: {folder}; once more with --seed {seed} --minutes {seconds / 60:g}")
    else:
        shutil.rmtree(folder)
    return status


def run(rig: Rig, told: Recorder, folder: Path, seed: int, seconds: float, faults: list[Fault]) -> None:
    """Load and faults, to the last fault's end."""
    if not rig.small_disk:
        say("no small disk can be mounted here: the checkpoint's is not filled, nor made read-only")
        faults = [fault for fault in faults if fault.target != "checkpoint"]
    for what, target, long in sorted({kind_of(asdict(fault)) for fault in faults}):
        told.note("planned", what=what, target=target, long=long)
    limits(rig, told)
    rig.start()
    say(f"all parts are there; {len(faults)} faults, {kills_of(asdict(one) for one in faults)} of them kills")
    with ExitStack() as load:
        watching = load.enter_context(Prometheus(folder, targets(rig), SCRAPE_S))
        every = [load.enter_context(client) for client in clients(rig, told)]
        begun, begun_ms = time.monotonic(), now_ms()
        backs = Backs(rig, told, say)
        for fault in faults:
            backs.wait(begun + fault.at_s)
            backs.befall(fault, random.Random(f"{seed} {fault.at_s}").random())
        backs.wait(begun + seconds)
        # Producers end with what they have: they must reach the proxies for that.
        backs.wait(time.monotonic() + BACK_S, backs.all_back)
        say("load ends")
        for client in every:
            told.note("load", who=client.who, what=client.wants, begun=begun_ms, ended=now_ms())
        parts = {at: name for name, at in rig.metrics.items()}
        try:
            note_alerts(watching, told, parts, begun_ms, now_ms())
        except (OSError, AssertionError) as error:
            # All else of the hour is judged, and this as a broken rule.
            say(f"Prometheus: {error!r}")


def targets(rig: Rig) -> dict[str, str]:
    """What is scraped, by the jobs of compose/prometheus/prometheus.yml."""
    jobs = {f"weir-{name}": at for name, at in rig.metrics.items() if name not in PROXIES}
    return {**jobs, "weir-proxy": ",".join(rig.metrics[name] for name in PROXIES)}


def settle(rig: Rig, told: Recorder, folder: Path) -> None:
    """Wait until all is decided, and read what is there."""

    def settled() -> bool:
        time.sleep(POLL_S)
        asked = {one["id"] for one in objects(rig, rig.topics.requests) if one["type"] == "request"}
        made = {one["id"] for one in objects(rig, rig.topics.decisions) if one["type"] == "admission"}
        return asked <= made

    rig.note_slots()
    rig.quiet()
    say("waiting until all is decided")
    rig.await_that(settled, "all decisions", SETTLE_S)
    for event in objects(rig, rig.topics.requests):
        told.note("event", event=event)
    recorded = []
    for at, decision in decisions_of(records(rig.kafka.bootstrap, rig.topics.decisions)):
        recorded.append(decision)
        told.note("decision", decision=decision, at=at)
    for name in AdminClient({"bootstrap.servers": rig.kafka.bootstrap}).list_topics(timeout=60).topics:
        told.note("topic", name=name)
    for name in TOPICS:
        epochs = rig.kafka.epochs(name)
        for record in records(rig.kafka.bootstrap, name):
            value, epoch = record.value.decode().rstrip(), epochs.get(record.offset)
            told.note("record", topic=name, offset=record.offset, value=value, epoch=epoch)
    for offset, value in rig.pulsar.records(PULSAR_TOPIC):
        told.note("record", topic=PULSAR_TOPIC, offset=offset, value=value)
    status, said = replay(rig, folder, recorded)
    told.note("replay", status=status, said=said)


def decisions_of(said: Iterable[Record]) -> Iterator[tuple[int, Entry]]:
    """Each that was said and when, ms, without those that say again what was said before."""
    seen = set()
    for record in said:
        decision = orjson.loads(record.value)
        decision.pop("repeat", None)
        own = orjson.dumps(decision, option=orjson.OPT_SORT_KEYS)
        if own not in seen:
            seen.add(own)
            yield record.ts, decision


def objects(rig: Rig, name: str) -> Iterator[Entry]:
    """All that stands on a topic of Weir."""
    return (orjson.loads(record.value) for record in records(rig.kafka.bootstrap, name))


def replay(rig: Rig, folder: Path, recorded: list[Entry]) -> tuple[int, str]:
    """Dump all, and decide it again: exit status and the last words."""
    dump, policies, told = folder / "dump.jsonl.gz", folder / "none.yaml", folder / "recorded.jsonl"
    policies.write_text("version: 1\n")
    told.write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in recorded))
    words = ["replay", "--policies", policies, "--events", dump, "--out", folder / "again.jsonl"]
    for command in (["dump", "--kafka", rig.kafka.bootstrap, "--out", dump], [*words, "--decisions", told]):
        done = subprocess.run(
            [sys.executable, "-m", "weir", *map(str, command)], cwd=ROOT, capture_output=True, text=True,
            timeout=REPLAY_S, check=False,
        )  # fmt: skip
        say(f"{command[0]}: {done.stderr.strip()[-300:]}")
        if done.returncode:
            break
    return done.returncode, done.stderr[-2000:]


def judge(history: History) -> int:
    """Print what came of it; the exit status."""
    found = check(history)
    made, sent = (sum(map(got_through, history[kind])) for kind in ("made", "sent"))
    print(f"faults {len(history['fault'])}, kills {kills_of(history['fault'])}")
    print(f"topics made {made} of {len(history['made'])} asked")
    print(f"records acknowledged {sent} of {len(history['sent'])}, read {len(history['read'])}")
    print("\nlongest time in which a client got nothing, s:")
    for load in history["load"]:
        gap_s = max(b - a for a, b in pairwise(successes(history, load))) / 1000
        print(f"  {load['who']:14}{load['what']:8}{gap_s:6.0f}")
    print_counts("not done", ("what", "target"), history["not_done"])
    killed = {one["pid"] for one in history["fault"] if one["what"] in KILLS}
    print_counts("ended by themselves", ("part",), [e for e in history["ended"] if e["pid"] not in killed])
    print("\nabove the limit at most, and its bound:")
    for subject, (most, bound) in most_above(history).items():
        print(f"  {subject:36} {most:10.2f} {bound:10.2f}")
    print("\nback after, s (median, most, times):")
    for what, target in sorted({(one["what"], one["target"]) for one in history["back"]}):
        own = [one for one in history["back"] if (one["what"], one["target"]) == (what, target)]
        took = [one["took_s"] for one in own if one["took_s"] is not None]
        if took:
            print(f"  {what:9}{target:12} {median(took):6.1f} {max(took):6.1f} {len(own):3}")
    print("\nalerts that fired (times, of parts):")
    for name, own in spans(history):
        print(f"  {name:28} {len(own):3}  {', '.join(sorted({one['part'] for one in own}))}")
    print("\nbroken rules:")
    for rule, wrong in found.items():
        print(f"  {rule:12} {len(wrong)}")
        for one in wrong[:5]:
            print(f"      {one[:400]}")
    return int(any(found.values()))


def print_counts(title: str, names: tuple[str, ...], entries: list[Entry]) -> None:
    """How many there are of each."""
    counts = Counter(" ".join(one[name] for name in names) for one in entries)
    print(f"\n{title}: " + (", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"))


def kills_of(faults: Iterable[Entry]) -> int:
    """How many of them are kills."""
    return sum(one["what"] in KILLS for one in faults)


def say(line: str) -> None:
    """One line of progress with its time."""
    print(f"soak {time.monotonic() - _begun:6.0f} s  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
