"""The examples in the docstrings of all modules hold."""

import doctest
from importlib import import_module
from pathlib import Path

from each_kit import each

ROOT = Path(__file__).parents[2]
PROMPT = " >>> "
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("streaming", "enforcer", "weir")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if PROMPT in path.read_text()
] + ["rounds_kit"]


@each("name", MODULES)
def test_the_examples_in_the_docstrings_are_true(name: str) -> None:
    """They are run, not only read."""
    results = doctest.testmod(import_module(name))
    assert results.failed == 0 < results.attempted
