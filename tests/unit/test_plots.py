"""The plots of docs/laws.md are what the laws say now."""

import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
NAMES = ("backlog", "concurrency", "concurrency-others", "dispatch", "mutation", "shares")
BYTES_MAX = 20_000


@pytest.fixture
def plots(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, which lives beside its pictures."""
    monkeypatch.syspath_prepend(str(DOCS / "plots"))
    import plot_laws

    return plot_laws


@pytest.mark.parametrize("name", NAMES)
def test_a_plot_is_what_its_law_draws(plots: ModuleType, name: str) -> None:
    """Drawn again it is the same file; small, well-formed, and every curve stays within its axes."""
    text = plots.draw(plots.PLOTS[name]())
    assert (DOCS / "plots" / f"{name}.svg").read_text() == text
    assert len(text) < BYTES_MAX
    for line in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}polyline"):
        for corner in line.attrib["points"].split():
            x, y = map(float, corner.split(","))
            assert 56 <= x <= 624 and 40 <= y <= 276


def test_every_plot_is_shown(plots: ModuleType) -> None:
    """The page names each picture that there is, and each file that it links to is there."""
    page = (DOCS / "laws.md").read_text()
    assert set(re.findall(r"\(plots/([a-z0-9-]+)\.svg\)", page)) == set(plots.PLOTS) == set(NAMES)
    for link in re.findall(r"\]\(([^)#]+)\)", page):
        assert (DOCS / link).exists(), link


def test_the_numbers_of_the_page_are_those_of_the_plot(plots: ModuleType) -> None:
    """What the draft lets through in the time of the plot."""
    bucket, samples = (line.points[-1] for line in plots.mutation().lines[:2])
    assert (bucket, samples) == ((397, 2485), (397, 4285))
