"""What `make matrix` tries with what, and docs/compatibility.md as its kept results say it."""

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import orjson
from confluent_kafka import libversion
from four_clients import CLIENTS, PINS
from matrix_clients import OTHERS, SOURCES

from weir.jars import folders
from weir.jars.folders import KAFKA, ROOT, folder_of

KEPT: Final = SOURCES / "results.json"
PAGE: Final = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- matrix -->", "<!-- end matrix -->"
KAFKAS: Final = {"3.9": "kafka39", "4.0": "kafka40", "4.1": "kafka41", "4.3": KAFKA, "4.4": "kafka44"}
"""Brokers, and their jars."""
FEW: Final = ("c", "java")
"""Who is tried with brokers that are neither the local one nor the newest."""
PULSAR: Final = "pulsar"
LAWS: Final = {
    "Partition mutations": ("test_mutations[{}]",),
    "Byte rates": ("test_byte_rates[{}-user]",),
    "Resource groups": ("test_byte_rates[{}-group]",),
    "Dispatch": ("test_dispatch[{}]",),
    "Backlog": ("test_backlog_exception[{}]", "test_backlog_hold[{}]"),
    "Concurrency": ("test_slots[{}]",),
}
"""The tests of a client in tests/secure/test_clients.py, by law."""
PULSAR_LAWS: Final = {
    "Partition mutations": ("test_creating.py::test_over_the_quota_it_fails_at_once_and_is_not_there",),
    "Byte rates": ("test_publishing.py::test_a_limited_producer_waits_and_its_neighbour_does_not[tls]",),
    "Resource groups": ("test_publishing.py::test_a_group_over_two_namespaces_has_one_limit",),
    "Dispatch": ("test_dispatch.py::test_a_subscription_gets_its_rate_from_the_first_message_on",),
    "Backlog": (
        "test_producer_blocks.py::test_an_exception_fails_what_waits_at_once[tls]",
        "test_producer_blocks.py::test_a_held_topic_goes_on_when_it_is_inside_and_loses_none[tls]",
    ),
    "Concurrency": ("test_publishing.py::test_sends_of_a_limited_broker_share_its_slots[tls]",),
}
"""Those of Pulsar's Python client, which is its C++ one, in tests/pulsar."""
Outcomes = Mapping[str, str]
"""Of tests, by their ids as pytest takes them."""


def nodes(server: str) -> dict[str, dict[str, list[str]]]:
    """Tests before a server: client, law -> ids."""
    if server == PULSAR:
        laws = {law: [f"tests/pulsar/{test}" for test in tests] for law, tests in PULSAR_LAWS.items()}
        return {PULSAR: laws}
    every = (*CLIENTS, *OTHERS) if server in list(KAFKAS)[-2:] else FEW
    file = "tests/secure/test_clients.py"
    return {
        client: {law: [f"{file}::{each.format(client)}" for each in tests] for law, tests in LAWS.items()}
        for client in every
    }


def rows(server: str, outcomes: Outcomes) -> list[dict[str, Any]]:
    """What is kept of a run before a server."""
    own = (folders.PULSAR, "pulsar-broker") if server == PULSAR else (KAFKAS[server], "kafka-clients")
    what = f"{'Pulsar' if server == PULSAR else 'Kafka'} {_jar(*own)}"
    today = datetime.now(UTC).date().isoformat()
    made = []
    for client, laws in nodes(server).items():
        told = by_law(laws, outcomes)
        made.append({"server": what, "client": _client(client), "date": today, **told})
    return made


def by_law(laws: Mapping[str, Collection[str]], outcomes: Outcomes) -> dict[str, str]:
    """What came of each law's tests, in one word if of all the same."""
    found = {law: {outcomes.get(test, "not run") for test in tests} for law, tests in laws.items()}
    return {law: ", ".join(sorted(each)) for law, each in found.items()}


def keep(made: list[dict[str, Any]]) -> None:
    """Put rows in the place of those of the same server, and write the page anew."""
    servers = {row["server"].rpartition(".")[0] for row in made}
    left = [row for row in kept() if row["server"].rpartition(".")[0] not in servers]
    lines = sorted([*left, *made], key=lambda row: row["server"])
    KEPT.write_bytes(b"[\n" + b",\n".join(orjson.dumps(row) for row in lines) + b"\n]\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(lines)}\n{END}{rest.partition(END)[2]}")


def kept() -> list[dict[str, Any]]:
    """The kept rows."""
    found: list[dict[str, Any]] = orjson.loads(KEPT.read_bytes()) if KEPT.exists() else []
    return found


def table(lines: list[dict[str, Any]]) -> str:
    """The rows as Markdown; clients before a server of which the same came stand in one."""
    clients: dict[tuple[str, ...], list[str]] = {}
    for row in lines:
        came = (row["server"], *(row[law] for law in LAWS), row["date"])
        clients.setdefault(came, []).append(row["client"])
    heads = ["Server", "Clients", *LAWS, "Tried"]
    cells = [[server, ", ".join(whose), *came] for (server, *came), whose in clients.items()]
    return "\n".join(f"| {' | '.join(each)} |" for each in (heads, ["---"] * len(heads), *cells))


def _client(name: str) -> str:
    jars = {"java": KAFKA, "java-3.9": "kafka39", "java-2.8": "clients28"}
    if name in jars:
        return f"Java {_jar(jars[name], 'kafka-clients')}"
    return {
        "c": lambda: f"librdkafka {libversion()[0]}",
        "python": lambda: f"kafka-python {version('kafka-python')}",
        "go": lambda: f"franz-go {_go(PINS, 'twmb/franz-go')}",
        "sarama": lambda: f"Sarama {_go(SOURCES / 'sarama', 'IBM/sarama')}",
        "kafkajs": lambda: f"KafkaJS {_npm('kafkajs')}",
        PULSAR: lambda: f"C++ {version('pulsar-client')}",
    }[name]()


def _jar(kind: str, artifact: str) -> str:
    (path,) = folder_of(kind).glob(f"{artifact}-[0-9]*.jar")
    return path.stem.removeprefix(f"{artifact}-")


def _go(module: Path, name: str) -> str:
    found = re.search(rf"github.com/{name} v(\S+)", (module / "go.mod").read_text())
    assert found is not None
    return found[1]


def _npm(name: str) -> str:
    return str(orjson.loads((SOURCES / name / "package.json").read_bytes())["dependencies"][name])
