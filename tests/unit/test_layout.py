"""The rooms of the project: who may import whom, and how large things may get."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("streaming", "enforcer", "weir")
"""What is installed."""
ROOMS = (*PACKAGES, "benchmarks")
PURE = ("streaming/contract/", "streaming/laws/")
IMPURE = {
    "pyspark", "kafka", "confluent_kafka", "time", "random", "socket", "asyncio", "datetime", "threading",
}  # fmt: skip
LINES_MAX = 400
CODE_LINES_MAX = 50


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the product and its benchmarks: path from the root, and its tree."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def imported(tree: ast.Module) -> Iterator[str]:
    """Dotted names of all imports, those inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the direction"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def forbidden(path: str, name: str) -> bool:
    """Whether this module must not import this name."""
    parts = name.split(".")
    if parts[0] == "benchmarks":
        return not path.startswith("benchmarks/")
    if path.startswith(PURE) and parts[0] in IMPURE:
        return True
    if path.startswith("streaming/"):
        if path.startswith("streaming/contract/") and parts[0] == "streaming" and parts[1] != "contract":
            return True
        if path.startswith("streaming/laws/") and parts[0] == "streaming":
            return parts[1] not in ("contract", "laws")
        return parts[0] in ("enforcer", "weir")
    if path.startswith("enforcer/"):
        foreign = parts[0] == "streaming" and parts[1] not in ("contract", "laws")
        return foreign or parts[0] in ("weir", "pyspark")
    return False


def test_imports_go_one_way() -> None:
    """streaming knows no enforcer, the enforcer only contract and laws, the pure rooms no outside world.

    Nothing that is installed knows the benchmarks.
    """
    wrong = [
        f"{path} imports {name}"
        for path, tree in sources()
        for name in imported(tree)
        if forbidden(path, name)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("streaming/job/query.py", "enforcer.core.gate"),
        ("streaming/laws/mutation/rates.py", "time"),
        ("streaming/policy/policy_set.py", "streaming.laws.mutation.law.rates"),
        ("enforcer/core/gate.py", "streaming.job.query"),
        ("enforcer/core/gate.py", "pyspark"),
        ("weir/cli.py", "benchmarks.kit.stack"),
    ],
)
def test_a_wrong_direction_would_be_seen(path: str, name: str) -> None:
    """The check itself refuses what it is there to refuse."""
    assert forbidden(path, name)


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
    """No file beyond 400 lines, no function with more than 50 lines of code, no third folder level."""
    large = []
    for path, tree in sources():
        lines = (ROOT / path).read_text().count("\n")
        large += [f"{path}: {lines} lines"] if lines > LINES_MAX else []
        large += [f"{path}: too deep"] if path.count("/") > 2 else []
        large += [
            f"{path}:{node.lineno} {node.name}: {code_lines(node)}"
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and code_lines(node) > CODE_LINES_MAX
        ]
    assert large == []


def test_lock_names_no_registry() -> None:
    """The lock pins by hash alone: where packages come from is the user's own setting."""
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    assert lock.count("==") > 20 and "--hash=sha256:" in lock
