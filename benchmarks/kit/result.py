"""What a benchmark found, and how it is kept: one JSON line and one table a benchmark."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

PERCENTS: Final = (50.0, 90.0, 99.0, 99.9, 100.0)
"""Percentiles of the tables; 100 is the greatest value."""
QUANTILES: Final = (*(float(percent) for percent in range(100)), 99.5, 99.9, 100.0)
"""Percentiles kept in the JSON line, from which the plots are drawn."""


@dataclass(frozen=True, slots=True)
class Row:
    """One number.

    Attributes:
        what: what was measured, for people.
        value: the number.
        unit: its unit, such as `events/s`.
        baseline: the same of what it is compared with, in the same unit; None: nothing to compare.
        baseline_what: what that is; not kept without one.
        target: what was aimed at, in words; such a row stands in README's table.
        met: whether it was reached; None if nothing was aimed at.
    """

    what: str
    value: float
    unit: str
    _: KW_ONLY
    baseline: float | None = None
    baseline_what: str = ""
    target: str = ""
    met: bool | None = None

    @property
    def ratio(self) -> float | None:
        """Value over baseline, None where there is no baseline."""
        return self.value / self.baseline if self.baseline else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything one run of a benchmark found.

    Attributes:
        name: its module's name.
        title: one line for people.
        rows: the numbers.
        notes: what has to be known to read them: load, window, warm-up, limits.
        series: samples by name, in the unit that the name ends with (`..., ms`), for percentiles and plots.
        skipped: what was not run, each with the reason.
        curves: points (x, y) by what x is and what y is, with its unit (`..., ms`); drawn, both logarithmic.
    """

    name: str
    title: str
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    series: dict[str, list[float]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    curves: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of sorted samples; ValueError if there are none."""
    if not ordered:
        raise ValueError("no samples")
    rank = math.ceil(percent / 100 * len(ordered))
    return ordered[max(0, rank - 1)]


def to_line(result: Result, run: Mapping[str, Any]) -> dict[str, Any]:
    """The object of the JSON line.

    Args:
        result: what was found.
        run: `date`, `seconds`, `machine`, `versions` and the like.
    """
    samples = {name: sorted(values) for name, values in result.series.items() if values}
    return {
        "name": result.name,
        "title": result.title,
        **run,
        "rows": [_kept(row) for row in result.rows],
        "notes": result.notes,
        "skipped": result.skipped,
        "percentiles": {
            name: {
                "count": len(values),
                **{f"p{percent:g}": percentile(values, percent) for percent in PERCENTS},
            }
            for name, values in samples.items()
        },
        "quantiles": {
            name: [[percent, round(percentile(values, percent), 4)] for percent in QUANTILES]
            for name, values in samples.items()
        },
        "curves": result.curves,
    }


def _kept(row: Row) -> dict[str, Any]:
    beside = "" if row.baseline is None else row.baseline_what
    return {**asdict(row), "baseline_what": beside, "ratio": row.ratio}


def table(line: Mapping[str, Any]) -> str:
    """The Markdown page of one JSON line: when and where, rows, percentiles, notes."""
    own, rows, series = line["machine"], line["rows"], line["percentiles"]
    before, after = map(number, own["loop_ms"])
    versions = ", ".join(f"{name} {version}" for name, version in line["versions"].items())
    about = (
        f"{line['date']}, {line['seconds']:.0f} s, on {own['cpu']}, {own['cores']} cores,"
        f" {own['memory_gib']} GiB, Linux {own['kernel']} (a million additions in Python:"
        f" {before} ms before, {after} ms after); {versions}."
    )
    columns = {
        "What": [row["what"] for row in rows],
        "Value": [f"{number(row['value'])} {row['unit']}".strip() for row in rows],
        "Beside": [beside(row) for row in rows],
        "Target": [_aim(row) for row in rows],
    }
    # Columns that would be empty are left out.
    parts = [markdown({name: cells for name, cells in columns.items() if any(cells)})]
    if series:
        columns = {"Samples of": list(series), "Count": [f"{each['count']:,}" for each in series.values()]}
        for percent in PERCENTS:
            name = "greatest" if percent == 100.0 else f"p{percent:g}"
            columns[name] = [number(each[f"p{percent:g}"]) for each in series.values()]
        parts.append(markdown(columns))
    remarks = [*line["notes"], *(f"Not run: {reason}" for reason in line["skipped"])]
    if remarks:
        parts.append("\n".join(f"- {remark}" for remark in remarks))
    return "\n\n".join([f"# {line['title']}", about, *parts]) + "\n"


def beside(row: Mapping[str, Any]) -> str:
    """The baseline in the row's own unit, by the ratio to it."""
    if row["baseline"] is None:
        return ""
    times = "" if row["ratio"] is None else f"{number(row['ratio'])} x "
    return f"{times}{number(row['baseline'])}: {row['baseline_what']}"


def markdown(columns: Mapping[str, Sequence[str]]) -> str:
    """A Markdown table of columns of the same length."""
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(cells) + " |" for cells in zip(*columns.values(), strict=True)]
    return "\n".join(lines)


def number(value: float) -> str:
    """Three digits that count; all of them from a thousand on."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def write(folder: Path, line: Mapping[str, Any]) -> None:
    """Write `<name>.jsonl` and `<name>.md`; the last run's files are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{line['name']}.jsonl").write_bytes(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    (folder / f"{line['name']}.md").write_text(table(line))


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """The kept JSON lines by name, sorted by it."""
    return {file.stem: orjson.loads(file.read_bytes()) for file in sorted(folder.glob("*.jsonl"))}


def _aim(row: Mapping[str, Any]) -> str:
    return row["target"] if row["met"] is None else f"{row['target']}, {'met' if row['met'] else 'missed'}"
