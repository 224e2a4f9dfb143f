"""Puts what was measured into README.md and docs/performance.md, between marks, and has the plots drawn."""

import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from benchmarks.kit.result import beside, markdown, number, read
from benchmarks.kit.runner import known
from streaming.contract.errors import WeirError
from weir.jars.folders import ROOT

README: Final = "README.md"
PERFORMANCE: Final = "docs/performance.md"
PLOTS: Final = "docs/plots"
_DRAW: Final = f"{PLOTS}/plot_benchmarks.py"
_DRAW_LIMIT_S: Final = 60.0
_FIRST, _SUMMARY, _LIST = "first", "all", "list"
_NOTHING: Final = "Not measured yet; `make bench` does it."

FIRST: Final = {
    "Creating a topic through the proxy, p50": (
        "latency", "CreateTopics at 8/s, creation, through the proxy, p50", "straight to Kafka",
        "strict-latency",
    ),
    "The job, catching up on packed requests of 100,000 principals": (
        "throughput", "job, packed, beside one group a principal", "applyInPandasWithState by principal",
        "throughput",
    ),
    "Consuming records of 1 kB through the proxy": (
        "proxy", "kafka-consumer-perf-test, 1 kB", "straight to Kafka", "the-proxy",
    ),
}  # fmt: skip
"""README's three figures: its words to (benchmark, row, beside what, section of docs/performance.md)."""

Line = Mapping[str, Any]


def update(root: Path = ROOT) -> None:
    """Draw the plots and rewrite both pages from the results that are kept.

    Raises:
        WeirError: a page has lost a mark, or the plots cannot be drawn.
    """
    command = [sys.executable, str(root / _DRAW)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DRAW_LIMIT_S, check=False)
    if done.returncode:
        raise WeirError(f"the plots were not drawn: {done.stderr.strip().splitlines()[-1:]}")
    for page in (README, PERFORMANCE):
        file = root / page
        file.write_text(filled(file.read_text(), blocks(root)))


def blocks(root: Path = ROOT) -> dict[str, str]:
    """What stands between the marks, by the name in them: `first`, `all`, `list`, and the measured ones."""
    lines = read(root / "benchmarks" / "results")
    plots = {path.stem for path in (root / PLOTS).glob("*.svg")}
    own = {name: _block(line, f"bench-{name}" in plots) for name, line in lines.items()}
    return {_FIRST: first(lines), _SUMMARY: summary(lines), _LIST: contents(), **own}


def filled(page: str, contents: Mapping[str, str]) -> str:
    """A page with the text between its marks replaced.

    A block is `<!-- bench NAME -->`, text, `<!-- end NAME -->`; one of a benchmark without results says so.

    Raises:
        WeirError: a beginning without an end.
    """
    parts = page.split("<!-- bench ")
    done = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition(" -->")
        end = f"<!-- end {name} -->"
        if end not in rest:
            raise WeirError(f"the block {name} has lost its end, {end}")
        after = rest.partition(end)[2]
        done.append(f"<!-- bench {name} -->\n{contents.get(name, _NOTHING)}\n{end}{after}")
    return "".join(done)


def contents() -> str:
    """Every benchmark there is with its stated duration."""
    durations = {name: importlib.import_module(f"benchmarks.{name}").DURATION_S for name in known()}
    told = ", ".join(f"`{name}` {duration_s} s" for name, duration_s in durations.items())
    return f"They take about {sum(durations.values()) / 60:.0f} minutes: {told}."


def first(lines: Mapping[str, Line]) -> str:
    """README's figures with a link each, and where they were measured.

    Raises:
        WeirError: the kept results have no row of that name any more.
    """
    if not lines:
        return _NOTHING
    told = []
    for what, (name, row_name, against, section) in FIRST.items():
        row = _found(lines, name, row_name, against)
        aim = f"; aim {row['target']}, {'met' if row['met'] else 'missed'}" if row["target"] else ""
        told.append(f"- [{what}]({PERFORMANCE}#{section}): {_measured(row)}{aim}.")
    shown = {name for name, *_ in FIRST.values()}
    return "\n".join(told) + f"\n\n{_whence(line for name, line in lines.items() if name in shown)}"


def summary(lines: Mapping[str, Line]) -> str:
    """How many of each benchmark's targets were reached; which ones stands in its own table."""
    met = {
        name: [row["met"] for row in line["rows"] if row["target"]]
        for name, line in lines.items()
        if any(row["target"] for row in line["rows"])
    }
    if not met:
        return _NOTHING
    told = ", ".join(f"`{name}` {_of(each)}" for name, each in met.items())
    return f"Met are {_of([each for own in met.values() for each in own])} targets: {told}."


def compact(rows: Sequence[Line]) -> str:
    """Rows as a Markdown table of one row a case; what it is compared with three times or more is a column.

    Rows `CASE: FIGURE` are one case where other cases have that figure too; `TLS: CASE` stands below CASE, as
    `TLS` alone. A target stands in brackets behind what it is about, in the head if all of a column have it.
    The page of the result has every ratio, and cases that have neither target nor comparison.
    """
    whats = {row["what"] for row in rows}
    suffixes = Counter(what.rpartition(": ")[2] for what in whats if ": " in what)
    figures = {suffix for suffix, count in suffixes.items() if count > 1}
    besides = Counter(row["baseline_what"] for row in rows if row["baseline"] is not None)
    columns = [name for name, count in besides.items() if count > 2]
    common = {name: _common(rows, name) for name in columns}
    table: dict[str, list[str]] = {name: [] for name in ("What", "Value", *columns)}
    for label, case in _labelled(_cases(rows, figures)):
        table["What"].append(label)
        table["Value"].append("; ".join(_own(same, columns) for same in case.values()))
        for name in columns:
            own = [
                [_against(row, common[name]) for row in same if _is_beside(row, name)]
                for same in case.values()
            ]
            table[name].append(_cell([", ".join(each) for each in own]))
    heads = [f"{name} (aim: {common[name]})" if common.get(name) else name for name in table]
    return markdown(dict(zip(heads, table.values(), strict=True)))


def _cases(rows: Sequence[Line], figures: Container[str]) -> dict[str, dict[str, list[Line]]]:
    """The rows of each case that has a target or a comparison by their figure, in the order of the rows."""
    cases: dict[str, dict[str, list[Line]]] = {}
    for row in rows:
        case, _, figure = row["what"].rpartition(": ")
        own = cases.setdefault(case if case and figure in figures else row["what"], {})
        own.setdefault(row["what"], []).append(row)
    return {name: own for name, own in cases.items() if any(map(_is_told, chain(*own.values())))}


def _labelled(cases: Mapping[str, dict[str, list[Line]]]) -> Iterator[tuple[str, dict[str, list[Line]]]]:
    """Each case with its label, and behind it the same case in another way."""
    others = {name: name.partition(": ") for name in cases}
    for name, case in cases.items():
        if others[name][2] not in cases:
            yield "; ".join([next(iter(case)), *_further(case)]), case
            yield from ((way, cases[other]) for other, (way, _, of) in others.items() if of == name)


def _further(case: Mapping[str, Sequence[Line]]) -> list[str]:
    """Names of a case's figures behind the first, but for those whose unit says it, as that of `...CPU`."""
    named = ((what.rpartition(": ")[2], same[0]["unit"]) for what, same in list(case.items())[1:])
    return [figure for figure, unit in named if figure.split()[-1] not in unit]


def _own(same: Sequence[Line], columns: Container[str]) -> str:
    """A figure with the target of it alone, and what of its comparisons has no column."""
    told = f"{number(same[0]['value'])} {same[0]['unit']}".strip()
    alone = [_aim(row) for row in same if row["baseline"] is None]
    rare = [
        f", {beside(row)}{_aim(row)}"
        for row in same
        if row["baseline"] is not None and row["baseline_what"] not in columns
    ]
    return "".join([told, *alone, *rare])


def _cell(parts: Sequence[str]) -> str:
    """What stands beside the figures of a case, in their order, up to the last that has something."""
    end = max((index for index, part in enumerate(parts, 1) if part), default=0)
    return "; ".join(part or "-" for part in parts[:end])


def _common(rows: Sequence[Line], name: str) -> str:
    """The target of all rows that are compared with this, empty if they have several or one has none."""
    targets = {row["target"] for row in rows if _is_beside(row, name)}
    return str(targets.pop()) if len(targets) == 1 else ""


def _is_beside(row: Line, name: str) -> bool:
    return row["baseline"] is not None and row["baseline_what"] == name


def _is_told(row: Line) -> bool:
    return bool(row["target"]) or row["baseline"] is not None


def _against(row: Line, common: str) -> str:
    if common:
        return number(row["baseline"]) + ("" if row["met"] else ", missed")
    return f"{number(row['baseline'])}{_aim(row)}"


def _aim(row: Line) -> str:
    return f" ({row['target']}: {'met' if row['met'] else 'missed'})" if row["target"] else ""


def _of(met: Sequence[bool | None]) -> str:
    return f"{sum(map(bool, met))} of {len(met)}"


def _found(lines: Mapping[str, Line], name: str, what: str, beside: str) -> Line:
    rows: Sequence[Line] = lines[name]["rows"] if name in lines else ()
    for row in rows:
        if row["what"] == what and row["baseline_what"] == beside:
            return row
    raise WeirError(f"README shows {what!r} of {name}, beside {beside!r}, which is not among its rows")


def _whence(lines: Iterable[Line]) -> str:
    """On what and on which days benchmarks were run: seldom all at once, nor on one machine."""
    places: dict[str, set[str]] = {}
    for line in lines:
        where = f"on {line['machine']['cpu']}, {line['machine']['cores']} cores"
        places.setdefault(where, set()).add(line["date"].split()[0])
    told = "; ".join(f"{where}, {' and '.join(sorted(days))}" for where, days in places.items())
    return f"Measured {told}."


def _measured(row: Line) -> str:
    own = f"{number(row['value'])} {row['unit']}".strip()
    if row["ratio"] is None:
        return own
    beside = number(row["baseline"])
    return f"{own}, {number(row['ratio'])} x {beside} ({row['baseline_what']})"


def _block(line: Line, has_plot: bool) -> str:
    """Rows and plot; how they were measured, percentiles and ratios stand in the page of the result."""
    own = line["machine"]
    link = f"[`{line['name']}`](../benchmarks/results/{line['name']}.md)"
    parts = [f"{link}, {line['date']}, {own['cpu']}, {own['cores']} cores:", compact(line["rows"])]
    if has_plot:
        parts.append(f"![{line['title']}](plots/bench-{line['name']}.svg)")
    return "\n\n".join(parts)
