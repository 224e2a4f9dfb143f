"""The tables and plots of README.md and docs/performance.md are those of the kept results."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.kit import pages
from benchmarks.kit.result import read, table
from benchmarks.kit.runner import known
from streaming.contract.errors import WeirError

ROOT = Path(__file__).resolve().parents[4]
RESULTS = ROOT / "benchmarks" / "results"
SVG = "{http://www.w3.org/2000/svg}"
BYTES_MAX = 30_000
LINE: dict[str, Any] = {
    "name": "latency",
    "title": "Latency",
    "date": "2026-11-21 19:45 UTC",
    "seconds": 9.0,
    "machine": {"cpu": "Some CPU", "cores": 2, "memory_gib": 16.0, "kernel": "6.1.0"},
    "versions": {"weir": "0123456789"},
    "rows": [
        {
            "what": "p50", "value": 90.0, "unit": "ms", "baseline": 45.0, "baseline_what": "direct",
            "ratio": 2.0, "target": "<= 100 ms", "met": True,
        },
        {
            "what": "p90", "value": 1.0, "unit": "ms", "baseline": None, "baseline_what": "", "ratio": None,
            "target": "", "met": None,
        },
    ],
    "notes": ["A note."],
    "skipped": [],
    "percentiles": {},
    "quantiles": {},
}  # fmt: skip


@pytest.fixture
def plots(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, which lives beside its pictures."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "plots"))
    import plot_benchmarks

    return plot_benchmarks


@pytest.mark.parametrize("page", [pages.README, pages.PERFORMANCE])
def test_a_page_quotes_the_kept_results(page: str) -> None:
    """Filled again it is the same; `python -m benchmarks --readme` mends it."""
    text = (ROOT / page).read_text()
    assert pages.filled(text, pages.blocks(ROOT)) == text


def test_every_benchmark_has_its_block() -> None:
    """docs/performance.md shows each of them and how many targets were met, README three figures."""
    names = re.findall(r"<!-- bench ([a-z_]+) -->", (ROOT / pages.PERFORMANCE).read_text())
    assert {*known(), "all"} <= set(names) and len(set(names)) == len(names)
    assert "<!-- bench first -->" in (ROOT / pages.README).read_text()


def test_kept_results_are_measured_ones() -> None:
    """Each has its table, and none comes from a smoke run."""
    for name, line in read(RESULTS).items():
        assert line["name"] == name and line["smoke"] is False
        assert (RESULTS / f"{name}.md").read_text() == table(line)


def test_plots_are_drawn_from_the_kept_results(plots: ModuleType) -> None:
    """Drawn again they are the same files, and no old one is left."""
    drawn = dict(plots.pictures(RESULTS))
    kept = {file.name: file.read_text() for file in (ROOT / "docs" / "plots").glob("bench-*.svg")}
    assert kept == drawn
    assert all(len(text) < BYTES_MAX for text in drawn.values())


def test_single_samples_far_out_are_left_to_the_table(plots: ModuleType) -> None:
    """A plot ends where nearly all of the slowest series is in."""
    slow = plots.Curve(name="slow", points=[(1.0, 0.0), (480.0, 99.5), (9000.0, 100.0)])
    fast = plots.Curve(name="fast", points=[(0.5, 0.0), (2.0, 50.0), (700.0, 100.0)])
    cut = plots.within([slow, fast])
    assert [curve.points for curve in cut] == [slow.points[:2], fast.points[:2]]


@pytest.mark.parametrize(
    ("ours", "theirs", "logarithmic"),
    [
        ((0.5, 1.0), (100.0, 1000.0), True),
        ((0.5, 1.0), (1.0, 20.0), False),
        ((0.0, 1.0), (9.0, 1000.0), False),
    ],
)
def test_series_far_apart_get_a_logarithmic_axis(
    plots: ModuleType, ours: tuple[float, float], theirs: tuple[float, float], logarithmic: bool
) -> None:
    """By least and median; from 0 there is none."""
    curves = [plots.Curve(name="", points=[(least, 0.0), (middle, 50.0)]) for least, middle in (ours, theirs)]
    assert plots.far_apart(curves) is logarithmic


def test_bars_show_each_part(plots: ModuleType) -> None:
    """With its number; a part that came out negative has none."""
    rows = [
        {"what": f"{plots.WHERE}{name}", "value": value, "unit": "us/event"}
        for name, value in (("Kafka in", 0.5), ("law & state", 2.0), ("overlap", -0.1))
    ]
    drawn = ElementTree.fromstring(plots.where_it_goes(rows))
    words = [text.text for text in drawn.iter(f"{SVG}text")]
    title = "Where the time of an event goes, us/event"
    assert words == ["Kafka in", "law & state", "overlap", "0.5", "2", "0", title]


def test_what_grows_is_drawn_one_below_the_other(plots: ModuleType) -> None:
    """Each with its curves, logarithmic both ways; the title stands above them all."""
    points = [[10, 0.5], [1_000, 40.0]]
    curves = {"groups": {"a round, s": points, "reports, MB": points}, "proxies": {"a round, s": points}}
    drawn = ElementTree.fromstring(plots.growth("Growth", curves))
    words = [text.text for text in drawn.iter(f"{SVG}text")]
    assert [word for word in words if word in (*curves, "a round, s", "reports, MB", "Growth")] == [
        "groups", "Growth", "a round, s", "reports, MB", "proxies", "a round, s"
    ]  # fmt: skip


def test_blocks_are_replaced_and_the_rest_is_left() -> None:
    """What has no results says so; the text between the blocks stays."""
    page = "a\n<!-- bench all -->\nold\n<!-- end all -->\nb\n<!-- bench x --><!-- end x -->\nc\n"
    assert pages.filled(page, {"all": "new"}) == (
        "a\n<!-- bench all -->\nnew\n<!-- end all -->\nb\n"
        f"<!-- bench x -->\n{pages._NOTHING}\n<!-- end x -->\nc\n"
    )
    with pytest.raises(WeirError, match="lost its end"):
        pages.filled("<!-- bench all -->\nold\n", {})


def test_summary_counts_what_was_aimed_at_and_what_was_reached() -> None:
    """Which ones stands in the benchmark's own table; a row without a target is no aim."""
    missed = {**LINE["rows"][0], "what": "p99", "met": False}
    text = pages.summary({"latency": {**LINE, "rows": [*LINE["rows"], missed]}, "laws": {**LINE, "rows": []}})
    assert text == "Met are 1 of 2 targets: `latency` 1 of 2."
    assert pages.summary({}) == pages._NOTHING


def test_a_case_is_one_row_with_its_figures_and_what_they_are_compared_with() -> None:
    """In order, each target behind what it is about; `TLS: fetch` stands below fetch."""
    none = LINE["rows"][1]
    rows = [
        {**none, "what": f"{case}{figure}", "value": value, "baseline": base, "baseline_what": name,
         "unit": "s CPU" if value == 5.0 else "ms", "ratio": base and value / base, "target": target,
         "met": target != "ahead"}
        for case in ("fetch", "produce", "TLS: fetch")
        for figure, value, base, name, target in (
            ("", 1.0, 2.0, "direct", ">= 0.9 x"), ("", 1.0, 7.0, "best", "ahead"),
            (": p99", 3.0, 4.0, "a peer", ""), (": p99", 3.0, None, "", "< 9"), (": CPU", 5.0, None, "", ""),
        )
    ]  # fmt: skip
    rare = {**LINE["rows"][0], "what": "start", "baseline_what": "by hand"}
    absent = {**none, "what": "stop", "target": "< 2", "met": True}
    told = "1 ms; 3 ms (< 9: met); 5 s CPU | 2 | 7, missed | -; 4 |"
    assert pages.compact([*rows, none, rare, absent]).splitlines() == [
        "| What | Value | direct (aim: >= 0.9 x) | best (aim: ahead) | a peer |",
        "| --- | --- | --- | --- | --- |",
        f"| fetch; p99 | {told}",
        f"| TLS | {told}",
        f"| produce; p99 | {told}",
        "| start | 90 ms, 2 x 45: by hand (<= 100 ms: met) |  |  |  |",
        "| stop | 1 ms (< 2: met) |  |  |  |",
    ]
    mixed = [{**row, "target": ""} if row["what"] == "fetch" else row for row in rows]
    assert " | 2 (>= 0.9 x: met) | 7 (ahead: missed) | -; 4 |" in pages.compact(mixed)


def test_readme_shows_three_figures() -> None:
    """In words of its own, each with a link to a section; a row that is not there is an error."""
    lines = read(RESULTS)
    shown = pages.first(lines).splitlines()
    assert len(pages.FIRST) == 3
    assert [row.split("](")[0] for row in shown[:3]] == [f"- [{what}" for what in pages.FIRST]
    headings = re.findall(r"^##+ (.+)$", (ROOT / pages.PERFORMANCE).read_text(), re.MULTILINE)
    sections = {heading.lower().replace(" ", "-") for heading in headings}
    assert {section for *_, section in pages.FIRST.values()} <= sections
    assert shown[-1].startswith("Measured on ")
    del lines["latency"]
    with pytest.raises(WeirError, match="CreateTopics at 8/s, creation, through the proxy, p50"):
        pages.first(lines)
