"""The line that says how far a replay is."""

import time
from io import StringIO

import pytest
from rich.console import Console

from weir.plan import progress


@pytest.mark.parametrize(("quiet_s", "shown"), [(0.05, True), (60.0, False)])
def test_it_is_there_before_there_is_anything_to_tell(
    quiet_s: float, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first replay compiles for seconds; a short one says nothing."""
    said = StringIO()
    console = Console(file=said, force_terminal=True, force_interactive=True, width=80)
    monkeypatch.setattr(progress, "QUIET_S", quiet_s)
    monkeypatch.setattr(progress, "Console", lambda stderr: console)
    with progress.Progress() as line:
        time.sleep(0.5)
        before = said.getvalue()
        line.tell(5, 0.5)
    assert ("left" in before) is shown
