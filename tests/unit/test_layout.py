"""The rooms of the project: who may import whom, and how large things may get."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from each_kit import each

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("streaming", "enforcer", "weir")
"""What is installed."""
ROOMS = (*PACKAGES, "benchmarks")
PURE = ("streaming.contract", "streaming.policy", "streaming.columns", "streaming.state", "streaming.laws")
IMPURE = {
    "pyspark", "kafka", "confluent_kafka", "time", "random", "secrets", "socket", "asyncio", "datetime",
    "threading",
}  # fmt: skip
LAWS = ("mutation", "shares", "dispatch", "concurrency", "backlog")
LAW_FOLDERS = tuple(f"streaming.laws.{law}" for law in LAWS)
BELOW_LAWS = ("streaming.contract", "streaming.policy", "streaming.columns", "streaming.state")
EVENTS_IN_COLUMNS = ("streaming.laws.row_fields", "streaming.laws.sheet", "streaming.laws.column_intake")
"""What laws share of reading their events in bulk."""
METRICS = "streaming.metrics"
"""Every part declares its metrics, and shows them, in one way."""
METRICS_SERVER = "streaming.metrics_server"
STREAMING_BELOW_JOB = (
    *BELOW_LAWS, METRICS, METRICS_SERVER, "streaming.laws", "streaming.kafka_io", "streaming.log",
    "streaming.replay",
)  # fmt: skip
KAFKA_IO = tuple(f"streaming.kafka_io.{name}" for name in ("brokers_clock", "tail", "topic_watch", "writer"))
"""How everybody reads and writes Weir's topics, looks after them, and learns their brokers' time."""
PACKED = "streaming.columns.packed"
"""How many events stand in one record: who reads and writes those needs no more of columns."""
SENT = "streaming.columns.sent"
"""Whose a record is, and which: who writes events says it."""
PATHS = "enforcer.wire.http"
"""How a path is read: what stands in front of another admin API reads it as that one's proxy does."""
SCALAR_LAWS = (
    *(f"{folder}.law" for folder in LAW_FOLDERS), "streaming.laws.mutation.rates",
    "streaming.laws.concurrency.algorithms", "streaming.laws.concurrency.settings",
)
"""The arithmetic of each law, which is all that enforcers take of them."""
WATCH = "streaming.kafka_io.topic_watch"
"""How a cluster is looked at again and again."""
PROTOCOL = ("enforcer.core", "enforcer.laws", "enforcer.host", "streaming.contract")
"""What each protocol stands on."""
PART = (
    "enforcer.core", "enforcer.wire.kafka", "streaming.contract",
    "enforcer.kafka.part", "enforcer.kafka.names", "enforcer.kafka.produce", "enforcer.kafka.share_sessions",
)  # fmt: skip
"""What a part of a Kafka connection stands on, whatever it does."""
KAFKA_ROOMS: dict[str, tuple[str, ...]] = {
    "login": (), "guard": (), "addresses": ("enforcer.host",),
    "mutations": ("enforcer.laws.mutation",),
    "shares": ("enforcer.laws.shares", "enforcer.kafka.dispatch.fetch_responses"), "groups": (),
    "dispatch": ("enforcer.laws.dispatch", "enforcer.kafka.groups", "enforcer.kafka.addresses"),
    "slots": ("enforcer.laws.concurrency",),
    "backlog": ("enforcer.laws.backlog",),
}
"""Its rooms, and what each may import beside that: one law at most, and no other part but for its layouts."""
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "streaming.contract": (),
    "streaming.policy": ("streaming.contract",),
    "streaming.columns": ("streaming.contract",),
    "streaming.state": ("streaming.contract", "streaming.columns"),
    **dict.fromkeys(LAW_FOLDERS, (*BELOW_LAWS, "streaming.laws.law", *EVENTS_IN_COLUMNS)),
    **dict.fromkeys(EVENTS_IN_COLUMNS, (*BELOW_LAWS, *EVENTS_IN_COLUMNS)),
    "streaming.laws.law": BELOW_LAWS,
    "streaming.laws.row_fields": BELOW_LAWS,
    "streaming.laws": (*BELOW_LAWS, *LAW_FOLDERS),
    "streaming.kafka_io": STREAMING_BELOW_JOB,
    "streaming.log": STREAMING_BELOW_JOB,
    "streaming.replay": STREAMING_BELOW_JOB,
    METRICS: ("streaming.contract",),
    METRICS_SERVER: ("streaming.contract", METRICS),
    "streaming.collect": STREAMING_BELOW_JOB,
    "streaming.job.spark": STREAMING_BELOW_JOB,
    "streaming.job.process": (*STREAMING_BELOW_JOB, "streaming.job"),
    "streaming.job.blobs": (*STREAMING_BELOW_JOB, "streaming.job.spark"),
    "streaming.job": (*STREAMING_BELOW_JOB, "streaming.job.spark", "streaming.job.blobs"),
    "enforcer.wire": ("streaming.contract.errors",),
    "enforcer.host": ("enforcer.core", "streaming.contract", METRICS_SERVER),
    "enforcer.core": (
        "streaming.contract", "streaming.policy", PACKED, SENT, METRICS, *KAFKA_IO, *SCALAR_LAWS,
    ),
    **{
        f"enforcer.laws.{law}": (
            "enforcer.core", "streaming.contract", "streaming.policy", PACKED, METRICS,
            *(scalar for scalar in SCALAR_LAWS if scalar.startswith(f"streaming.laws.{law}.")),
        )
        for law in LAWS
    },
    "enforcer.laws": ("enforcer.core", "streaming.contract", *(f"enforcer.laws.{law}" for law in LAWS)),
    "enforcer.kafka": (*PROTOCOL, "enforcer.wire.kafka", WATCH),
    **{f"enforcer.kafka.{room}": (*PART, *also) for room, also in KAFKA_ROOMS.items()},
    "enforcer.pulsar": (*PROTOCOL, "enforcer.wire.pulsar", "streaming.policy.settings", METRICS),
    "enforcer.http": (*PROTOCOL, PATHS, "streaming.policy", METRICS),
    "enforcer.control": (
        "enforcer.core", "enforcer.host", METRICS, METRICS_SERVER, PATHS, "streaming.contract",
        "streaming.policy", "streaming.kafka_io", "streaming.laws.dispatch.law", "streaming.laws.backlog.law",
    ),
    "weir.commands": ("weir", "enforcer", "streaming"),
    "weir": ("weir", "enforcer", "streaming"),
    "benchmarks": ("benchmarks", "weir", "enforcer", "streaming"),
}
"""What the modules of a room may import of ours beside the room itself; the longest name that fits counts."""
ENDING = "enforcer/kafka/connection_end.py"
"""It takes over what a connection writes once that ends."""
LINES_MAX = 400
CODE_LINES_MAX = 50
FILES_MAX = 12


@cache
def sources() -> list[tuple[str, list[ast.AST]]]:
    """Every module of the product and its benchmarks: path from the root, and the nodes of its tree."""
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    trees = ((path, ast.parse(path.read_text())) for path in paths)
    return [(path.relative_to(ROOT).as_posix(), list(ast.walk(tree))) for path, tree in trees]


def imported(nodes: list[ast.AST]) -> Iterator[str]:
    """Dotted names of all imports, those inside functions too."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the direction"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name: str, rooms: tuple[str, ...]) -> bool:
    """Whether a dotted name is one of these or stands below one."""
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


@cache
def room_of(name: str) -> str:
    """The room of a module: the longest of MAY_IMPORT that it is or stands in."""
    return max((room for room in MAY_IMPORT if within(name, (room,))), key=len)


def forbidden(path: str, name: str) -> bool:
    """Whether this module must not import this name."""
    module = path.removesuffix(".py").replace("/", ".")
    if within(module, PURE) and name.split(".")[0] in IMPURE:
        return True
    if name.split(".")[0] == "pyspark" and not within(module, ("streaming.job", "benchmarks")):
        # The command asks it where its own Python is, and nothing else.
        return not within(module, ("weir",))
    if name.split(".")[0] not in ROOMS:
        return False
    if within(name, ("weir.commands",)):
        # The parser finds them by name.
        return not within(module, ("weir.commands", "benchmarks"))
    if within(module, ("streaming.laws.law",)) and within(name, LAW_FOLDERS):
        return True
    room = room_of(module)
    if room == "streaming.job" and within(name, ("streaming.job.process",)):
        return True
    return not within(name, (room, *MAY_IMPORT[room]))


def test_imports_go_one_way() -> None:
    """Each room imports what MAY_IMPORT lets it, the pure ones nothing of the outside world."""
    wrong = [
        f"{path} imports {name}"
        for path, nodes in sources()
        for name in imported(nodes)
        if forbidden(path, name)
    ]
    assert wrong == []


@each(
    ("path", "name"),
    [
        ("streaming/job/query.py", "enforcer.laws.mutation.request"),
        ("streaming/laws/mutation/rates.py", "time"),
        ("streaming/contract/names.py", "streaming.policy.schema"),
        ("streaming/columns/outputs.py", "streaming.policy.schema"),
        ("streaming/laws/law.py", "streaming.laws.mutation.law"),
        ("streaming/laws/shares/law.py", "streaming.laws.mutation.law"),
        ("streaming/laws/shares/law.py", "streaming.laws.registry"),
        ("streaming/job/query.py", "streaming.job.process.service"),
        ("streaming/job/spark/session.py", "streaming.job.query"),
        ("streaming/collect/pulsar/rest.py", "enforcer.laws.mutation.request"),
        ("streaming/collect/pulsar/plan.py", "streaming.job.query"),
        ("enforcer/laws/mutation/request.py", "streaming.job.query"),
        ("enforcer/laws/mutation/request.py", "streaming.laws.mutation.table"),
        ("enforcer/laws/mutation/request.py", "pyspark"),
        ("enforcer/laws/mutation/request.py", "enforcer.kafka.connection"),
        ("enforcer/laws/dispatch/dispatch.py", "enforcer.laws.shares.meter"),
        ("enforcer/laws/dispatch/counter.py", "streaming.laws.shares.law"),
        ("enforcer/core/control.py", "enforcer.laws.enforcement"),
        ("enforcer/core/control.py", "enforcer.host.turns"),
        ("enforcer/laws/shares/meter.py", "enforcer.wire.kafka.frames"),
        ("enforcer/laws/shares/meter.py", "enforcer.host.turns"),
        ("enforcer/kafka/connection.py", "enforcer.control.api"),
        ("enforcer/kafka/shares/part.py", "enforcer.laws.dispatch.counter_table"),
        ("enforcer/kafka/shares/part.py", "enforcer.kafka.dispatch.context"),
        ("enforcer/control/api.py", "enforcer.kafka.connection"),
        ("enforcer/control/api.py", "enforcer.http.proxy"),
        ("enforcer/http/proxy.py", "enforcer.wire.kafka.frames"),
        ("weir/stack/local.py", "weir.commands.up"),
        ("weir/cli.py", "benchmarks.kit.stack"),
    ],
)
def test_a_wrong_direction_would_be_seen(path: str, name: str) -> None:
    """The check itself refuses what it is there to refuse."""
    assert forbidden(path, name)


def test_only_the_host_makes_sockets() -> None:
    """Of an enforcer: whoever listens or dials asks enforcer/host, so that TLS can stand there alone."""
    making = {"create_server", "create_connection", "open_connection", "start_server", "socket", "fromfd"}
    wrong = [
        f"{path}:{node.lineno} {node.func.attr}"
        for path, nodes in sources()
        if path.startswith("enforcer/") and not path.startswith("enforcer/host/")
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in making
    ]
    assert wrong == []
    once = Counter(
        node.attr
        for path, nodes in sources()
        if path.startswith("enforcer/host/")
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr in {"create_server", "create_connection"}
    )
    assert once == {"create_server": 1, "create_connection": 1}


def callbacks_set(nodes: list[ast.AST]) -> Iterator[str]:
    """Where a module gives another object a function to call, and where one waits for that."""
    methods = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    for node in nodes:
        if isinstance(node, ast.Assign):
            value = node.value
            method = isinstance(value, ast.Attribute) and value.attr in methods
            called = method or isinstance(value, ast.Lambda)
            others = (one for one in node.targets if isinstance(one, ast.Attribute))
            if called and any(ast.unparse(one.value) not in ("self", "made") for one in others):
                yield ast.unparse(node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Lambda):
            yield ast.unparse(node)


def test_owners_are_constructor_arguments() -> None:
    """Nobody sets a callback of another object, and no object waits for somebody to do so."""
    found = [
        f"{path}: {line}"
        for path, nodes in sources()
        if path.startswith("enforcer/") and path != ENDING
        for line in callbacks_set(nodes)
    ]
    assert found == []


def test_packages_are_listed() -> None:
    """pyproject.toml names every package, since a package left out is missing in an installation only."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {
        path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    assert sorted(listed) == sorted(there)


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function beside its signature and docstring, which grow with what it says of itself."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_files_and_functions_stay_readable() -> None:
    """No file beyond 400 lines, no test either, no function with over 50 of code, no fourth folder level."""
    large = []
    for path, nodes in sources():
        lines = (ROOT / path).read_text().count("\n")
        large += [f"{path}: {lines} lines"] if lines > LINES_MAX else []
        large += [f"{path}: too deep"] if path.count("/") > 3 else []
        large += [
            f"{path}:{node.lineno} {node.name}: {code_lines(node)}"
            for node in nodes
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and code_lines(node) > CODE_LINES_MAX
        ]
    for path in sorted((ROOT / "tests").rglob("*.py")):
        lines = path.read_text().count("\n")
        large += [f"{path.relative_to(ROOT)}: {lines} lines"] if lines > LINES_MAX else []
    assert large == []


def test_a_folder_fits_on_a_page() -> None:
    """At most twelve modules side by side."""
    folders = Counter(path.rpartition("/")[0] for path, _ in sources() if not path.endswith("__init__.py"))
    assert [f"{folder}: {count} files" for folder, count in folders.items() if count > FILES_MAX] == []


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-run.lock"])
def test_lock_names_no_registry(name: str) -> None:
    """The lock pins by hash alone: where packages come from is the user's own setting."""
    lock = (ROOT / name).read_text()
    assert "://" not in lock
    assert lock.count("==") > 20 and "--hash=sha256:" in lock


def test_what_runs_is_what_was_tested() -> None:
    """The lock without development's packages has the versions, and the hashes, of the one with them."""
    whole, run = (
        set(re.findall(r"^([a-z][^ ]*==.*(?:\n    --hash=.*)+)", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.lock", "requirements-run.lock")
    )
    assert run and run < whole
