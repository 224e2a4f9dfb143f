"""The plots of docs/laws.md are what the laws say now."""

import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import orjson
import pytest
from matplotlib.figure import Figure

from streaming.laws.registry import LAWS
from weir.simulate.failures.figures import table
from weir.simulate.failures.picture import draw
from weir.simulate.figures import contender, figures
from weir.simulate.scenario import DEMAND, Scenario

DOCS = Path(__file__).resolve().parents[2] / "docs"
BYTES_MAX = 40_000
SHOT = {"top", "failures"}
"""By docs/plots/shoot_console.py, for README, and by docs/plots/plot_failures.py, for docs/plan.md."""
SIMULATED_BYTES_MAX = 30_000
SIMULATED = [f"simulation-{series}-{how}" for how in ("windowed", "each") for series in ("limit", "latency")]


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the scripts live, beside their pictures; they import each other from there."""
    folder = DOCS / "plots"
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def plots(scripts: Path) -> ModuleType:
    """The script that draws the laws."""
    import plot_laws

    return plot_laws


@pytest.fixture
def pictures(scripts: Path) -> ModuleType:
    """How plots are drawn."""
    import pictures

    return pictures


@pytest.fixture
def simulation(scripts: Path) -> ModuleType:
    """What draws the simulation of concurrency limits."""
    import plot_simulation

    return plot_simulation


@pytest.mark.parametrize(
    "name",
    # The simulation of a whole run takes six seconds; make test has short ones (tests/unit/weir/simulate).
    [*LAWS.by_name, *(pytest.param(name, marks=pytest.mark.soak) for name in SIMULATED)],
)
def test_a_plot_is_what_its_law_draws(
    plots: ModuleType, simulation: ModuleType, pictures: ModuleType, name: str
) -> None:
    """Drawn again it is the same file, small and well-formed; plot_laws.py mends it.

    The same of what `weir simulate concurrency` says without options. Every curve can be seen.
    """
    simulated = name in simulation.PLOTS
    plot = (simulation if simulated else plots).PLOTS[name]()
    drawn = pictures.lines(plot, log_y=simulated)
    assert_seen(drawn)
    text = pictures.svg(drawn, plot.title)
    assert (DOCS / "plots" / f"{name}.svg").read_text() == text
    assert len(text) < (SIMULATED_BYTES_MAX if simulated else BYTES_MAX)
    assert ElementTree.fromstring(text).tag.endswith("svg")


@pytest.mark.soak
def test_the_table_of_the_page_is_what_the_simulation_says(simulation: ModuleType) -> None:
    """Each run has its row, rounded to whole numbers."""
    page = (DOCS / "laws.md").read_text()
    for run in simulation.simulated()["runs"]:
        calm, slow, recovery = run["phases"].values()
        how = "-" if run["algorithm"] == "fixed" else "windowed" if run["windowed"] else "each"
        cells = [
            f"{calm['latency_ms']:.0f}", f"{calm['completed_per_s']:.0f}, {calm['rejected_per_s']:.0f}",
            f"{slow['latency_ms']:,.0f}", f"{slow['p99_ms']:,.0f}",
            f"{slow['completed_per_s']:.0f}, {slow['rejected_per_s']:.0f}", f"{recovery['latency_ms']:.0f}",
            f"{recovery['completed_per_s']:.0f}, {recovery['rejected_per_s']:.0f}", f"{run['recovered_s']} s",
        ]
        assert f"| {run['algorithm']} | {how} | {' | '.join(cells)} |" in page


def test_failures_are_drawn_as_their_figures_say() -> None:
    """So is their table, of which the page has one scenario; plot_failures.py mends both."""
    result = orjson.loads((DOCS / "plots" / "failures.json").read_bytes())
    assert (DOCS / "plots" / "failures.svg").read_text() == draw(result)
    head, *rows = table(result)
    assert (DOCS / "plots" / "failures.txt").read_text() == "\n".join([head, *rows]) + "\n"
    shown = "\n".join([head, *(row for row in rows if row.startswith("job away"))])
    page = (DOCS / "plan.md").read_text()
    assert f"```text\n{shown}\n```" in page and "(plots/failures.svg)" in page


@pytest.mark.soak
def test_what_the_page_says_of_several_proxies() -> None:
    """Rejected in a second while all is well."""
    fixed = contender({"algorithm": "fixed"})
    rejected = [
        figures(Scenario(**given), [fixed])["runs"][0]["phases"]["calm"]["rejected_per_s"]
        for given in (
            {"proxies": 4, "first_part": 0.7},
            {"proxies": 4, "first_part": 0.7, "division": DEMAND},
            {},
        )
    ]
    equal, demand, alone = (round(each) for each in rejected)
    assert f"{equal} a second are rejected with equal parts, {demand} with parts by demand" in page()
    assert alone == 0


def page() -> str:
    """docs/laws.md as one line."""
    return " ".join((DOCS / "laws.md").read_text().split())


def assert_seen(drawn: Figure) -> None:
    """Every curve within its axes, its name in a legend outside of them."""
    for axes in drawn.axes:
        frame, legend = axes.get_window_extent(), axes.get_legend()
        box = legend.get_window_extent()
        assert not box.overlaps(frame) and box.x0 >= 0 and box.y0 >= 0 and box.x1 <= drawn.bbox.x1
        assert [text.get_text() for text in legend.get_texts()] == [line.get_label() for line in axes.lines]
        for line in axes.lines:
            for x, y in axes.transData.transform(line.get_xydata()):
                assert frame.x0 - 1 <= x <= frame.x1 + 1 and frame.y0 - 1 <= y <= frame.y1 + 1


def test_plots_below_each_other_stand_in_one_picture(pictures: ModuleType) -> None:
    """Each with its own axes and curves."""
    one, two = (pictures.Curve(name=name, points=[(0, 1), (1, 2)]) for name in ("one", "two"))
    lower = pictures.Plot(title="b", x_label="x", y_label="y", curves=[two])
    upper = pictures.Plot(title="a", x_label="x", y_label="y", curves=[one], below=lower)
    drawn = pictures.lines(upper)
    assert [(axes.get_title(), len(axes.lines)) for axes in drawn.axes] == [("a", 1), ("b", 1)]


def test_an_axis_can_be_logarithmic(pictures: ModuleType) -> None:
    """Each factor of ten is as wide as any other."""
    curve = pictures.Curve(name="one", points=[(0.5, 0), (50, 100)])
    (axes,) = pictures.lines(pictures.Plot(title="", x_label="", y_label="", curves=[curve]), log_x=True).axes
    widths = [axes.transData.transform((ten, 0))[0] for ten in (0.5, 5, 50)]
    assert widths[1] - widths[0] == pytest.approx(widths[2] - widths[1])


def test_every_plot_is_shown(plots: ModuleType, simulation: ModuleType) -> None:
    """The page names each picture that there is, and each file that it links to is there."""
    page = (DOCS / "laws.md").read_text()
    drawn = {file.stem for file in (DOCS / "plots").glob("*.svg") if not file.stem.startswith("bench-")}
    there = drawn - SHOT
    assert list(simulation.PLOTS) == SIMULATED
    assert set(re.findall(r"\(plots/([a-z0-9-]+)\.svg\)", page)) == {*plots.PLOTS, *SIMULATED} == there
    for link in re.findall(r"\]\(([^)#]+)\)", page):
        assert (DOCS / link).exists(), link


def test_the_numbers_of_the_page_are_those_of_the_plot(plots: ModuleType) -> None:
    """What the draft lets through in the time of the plot."""
    bucket, samples = (curve.points[-1] for curve in plots.PLOTS["mutation"]().curves[:2])
    assert (bucket, samples) == ((397, 2485), (397, 4285))
