"""The reference traces of the laws that replay files."""

from pathlib import Path

import pytest

TRACES = {
    f"{path.parent.name}/{path.name.partition('.')[0]}": (
        path, path.with_name(path.name.replace("policies.yaml", "events.jsonl.gz"))
    )
    for path in sorted((Path(__file__).parents[1] / "traces").glob("*/*.policies.yaml"))
}  # fmt: skip
"""The files of policies and of events, by law and name."""


def of_traces(*quick: str) -> pytest.MarkDecorator:
    """A test of `policies` and `log` of each trace: these with every change, the others in `make soak`."""
    every = [
        pytest.param(*files, id=name, marks=[pytest.mark.soak] * (name not in quick))
        for name, files in TRACES.items()
    ]
    return pytest.mark.parametrize(("policies", "log"), every)
