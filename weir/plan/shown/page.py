"""Plans as one page that needs nothing from elsewhere: HTML with its style and pictures in it, bars by hour.

It looks as the console does, light and dark, on a phone and on paper.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from streaming.contract.printable import printable
from streaming.log.writing import write_lines
from weir.logs.times import moment
from weir.plan.comparison import HELPED, HOUR_MS, HURT, SAME, Counts, Row, flips
from weir.plan.delays import PERCENTILES
from weir.plan.run import Planned
from weir.plan.shown import words
from weir.plan.shown.words import duration, entries, overshot
from weir.plan.sides import Plan
from weir.plan.verdicts import ALLOWED, REFUSED, THROTTLED
from weir.plan.waiting.queues import HELD_MAX_MS, TRIES

SHOWN: Final = 100
"""Rows of a table; the JSON has all."""
_HEAD: Final = ("Who, and by what", "Held back", "Refused", "Waits", "If clients wait", "By hour")
_TITLES: Final = {HURT: "Who is hurt", HELPED: "Who is helped"}
_HOW: Final = (
    "Held back is what was refused or had to wait, as a part of all decisions: grey before, coloured after.",
    "As recorded: each event comes when it came. If clients wait: whoever is told to wait sends nothing until"
    f" then and tries again what was refused, {TRIES} times and for {HELD_MAX_MS // 60_000} minutes at most; "
    "what would come later still is given up and counts as refused. The truth lies between the two.",
)
HOURS_MAX: Final = 24 * 31
"""A longer log is drawn up to here."""
_HEIGHT: Final = 40.0
_WIDTHS: Final = ((1.0, 9.0), (2.5, 6.0))
"""Of a bar, from where on and how wide, before and after: of 11 an hour."""
_STEP: Final = 11.0


def write_page(file: str, planned: Planned) -> None:
    """Write the page, whole or not at all.

    Raises:
        WeirError: the file cannot be written.
    """
    html = tostring(page(planned), encoding="unicode", method="html")
    write_lines(file, [b"<!DOCTYPE html>", html.encode()])


def page(planned: Planned) -> Element:
    """The page as elements."""
    html = Element("html", lang="en")
    head = SubElement(html, "head")
    SubElement(head, "meta", charset="utf-8")
    SubElement(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    _text(head, "title", f"Weir: plan of {', '.join(plan.name for plan in planned.plans)}")
    SubElement(head, "style").text = _style()
    main = SubElement(SubElement(html, "body"), "main")
    for plan in planned.plans:
        _add_plan(main, plan, planned.proven)
    for sentence in _HOW:
        _text(main, "p", sentence, "hint")
    return html


def _style() -> str:
    console = files("enforcer.control.console") / "static" / "style.css"
    return console.read_text() + (files("weir.plan.shown") / "page.css").read_text()


def _add_plan(main: Element, plan: Plan, proven: int | None) -> None:
    _text(main, "h1", f"What {plan.name} would change")
    for sentence in words.remarks(plan, proven):
        _text(main, "p", sentence, "hint")
    _add_facts(main, plan)
    _add_hours(main, plan)
    for fate, title in _TITLES.items():
        rows = [row for row in plan.rows if row.fate == fate]
        _add_table(main, plan, rows if fate == HURT else rows[::-1], fate, title)
    same = [row for row in plan.rows if row.fate == SAME]
    _text(main, "h2", f"As before: {len(same)}")
    names = ", ".join(row.whose or "(not limited)" for row in same[:SHOWN])
    _text(main, "p", names + (f" and {len(same) - SHOWN} more" if len(same) > SHOWN else ""), "hint")


def _add_facts(main: Element, plan: Plan) -> None:
    recorded, waiting = flips(plan.rows), flips(plan.waiting_rows.values())
    fates = [row.fate for row in plan.rows]
    delays = [plan.recorded.delay_ms(side) for side in range(2)]
    facts = [
        (HURT, "hurt", f"{fates.count(HURT):,}"), (HELPED, "helped", f"{fates.count(HELPED):,}"),
        ("", "as before", f"{fates.count(SAME):,}"), ("", "newly refused", f"{recorded[0]:,}"),
        ("", "newly refused if clients wait", f"{waiting[0]:,}"),
        ("", "newly let through", f"{recorded[1]:,}"),
        *(("", f"delay {name}", _delay(delays, name)) for name in ("p99", "max")),
    ]  # fmt: skip
    listed = SubElement(main, "dl", {"class": "plan-facts"})
    for name, what, number in facts:
        fact = SubElement(listed, "div", {"class": name} if name else {})
        _text(fact, "dt", what)
        _text(fact, "dd", number)


def _add_hours(main: Element, plan: Plan) -> None:
    """What was held back in each hour, of all together."""
    total = plan.recorded.hours()
    if not total:
        return
    _text(main, "h2", "Held back by hour, all together")
    key = SubElement(main, "p", {"class": "hint key"})
    for name, word in (("before", "before"), ("after", "after")):
        SubElement(key, "span", {"class": name}).tail = word
    between = hours(total)
    main.append(strip(bars(total, between), "tall"))
    times = SubElement(main, "div", {"class": "times"})
    for hour in (between.start, between.stop):
        _text(times, "span", moment(hour * HOUR_MS, "m"))


def _add_table(main: Element, plan: Plan, rows: Sequence[Row], fate: str, title: str) -> None:
    if not rows:
        return
    _text(main, "h2", f"{title}: {len(rows)}")
    table = SubElement(main, "table", {"class": "list plan"})
    head = SubElement(SubElement(table, "thead"), "tr")
    for name in _HEAD:
        _text(head, "th", name)
    body = SubElement(table, "tbody")
    between = hours(plan.recorded.hours())
    for row in rows[:SHOWN]:
        _add_row(SubElement(body, "tr", {"class": fate}), plan, row, between)
    if len(rows) > SHOWN:
        _text(main, "p", f"and {len(rows) - SHOWN} more, in --summary", "hint")


def _add_row(line: Element, plan: Plan, row: Row, between: range) -> None:
    waiting = plan.waiting_rows.get((row.law, row.whose), row)
    who = _text(line, "th", f"{row.whose or '(not limited)'} ")
    who.set("scope", "row")
    _text(who, "span", row.law, "tag")
    for sentence in (entries(row), overshot(row)):
        if sentence:
            _text(_text(who, "span", "", "entry"), "code" if sentence != overshot(row) else "span", sentence)
    cell = _cell(line, _HEAD[1], "whole")
    parts = [held(row.counts, side) for side in range(2)]
    cell.append(_bars(parts))
    _text(cell, "span", _changed((round(100 * part) for part in parts), "{:,} %".format), "beside")
    _cell(line, _HEAD[2]).text = _changed(row.counts.outcomes[:, REFUSED].tolist())
    _add_lines(_cell(line, _HEAD[3]), _waits(row))
    _add_lines(_cell(line, _HEAD[4]), [
        f"refused {_changed(waiting.counts.outcomes[:, REFUSED].tolist())}",
        f"p99 {_delay(waiting.delay_ms, 'p99')}",
    ])  # fmt: skip
    _cell(line, _HEAD[5], "whole").append(strip(bars(row.hours, between)))


def _waits(row: Row) -> list[str]:
    throttled = row.counts.outcomes[:, THROTTLED].tolist()
    lines = [f"{name} {_delay(row.delay_ms, name)}" for name in PERCENTILES] if any(row.waited_ms) else []
    return [*lines, *([f"{_changed(throttled)} waited"] if any(throttled) else [])] or ["none"]


def _delay(sides: Iterable[Mapping[str, int]], name: str) -> str:
    return _changed((side[name] for side in sides), duration)


def _changed(sides: Iterable[int], form: Callable[[int], str] = "{:,}".format) -> str:
    return words.changed(sides, form).replace(words.ARROW, "\N{RIGHTWARDS ARROW}")


def _bars(parts: Sequence[float]) -> Element:
    found = Element("span", {"class": "held", "aria-hidden": "true"})
    for name, part in zip(("before", "after"), parts, strict=True):
        SubElement(found, "span", {"class": name, "style": f"width:{100 * part:.1f}%"})
    return found


def _cell(line: Element, name: str, kind: str = "") -> Element:
    return SubElement(line, "td", {"data-name": name} | ({"class": kind} if kind else {}))


def _add_lines(cell: Element, lines: Sequence[str]) -> None:
    for text in lines:
        _text(cell, "div", text)


def _text(parent: Element, tag: str, text: str, kind: str = "") -> Element:
    """A new element with a text; what a name holds forges nothing."""
    element = SubElement(parent, tag, {"class": kind} if kind else {})
    element.text = printable(text)
    return element


def held(counts: Counts, side: int) -> float:
    """The part of all decisions that was refused or had to wait."""
    total = int(counts.outcomes[side].sum())
    return (total - int(counts.outcomes[side, ALLOWED])) / total if total else 0.0


def hours(known: Iterable[int]) -> range:
    """All hours from the first to the last of some."""
    listed = sorted(known)
    return range(listed[0], min(listed[-1] + 1, listed[0] + HOURS_MAX))


def bars(counted: Mapping[int, Counts], between: range) -> list[tuple[int, int]]:
    """How many decisions were held back in each of the hours, before and after."""
    none = Counts()
    found = [counted.get(hour, none).outcomes for hour in between]
    return [tuple(int(side.sum() - side[ALLOWED]) for side in each) for each in found]  # type: ignore[misc]


def strip(counts: list[tuple[int, int]], kind: str = "") -> Element:
    """Bars side by side; as wide as there is room."""
    most = max((max(each) for each in counts), default=0) or 1
    before, after = (max(each[side] for each in counts) for side in range(2))
    told = f"Held back by hour: at most {before:,} before, {after:,} after."
    svg = Element("svg", {
        "class": f"strip {kind}".strip(), "viewBox": f"0 0 {_STEP * len(counts):g} {_HEIGHT:g}",
        "preserveAspectRatio": "none", "role": "img", "aria-label": told,
    })  # fmt: skip
    for side, name in enumerate(("before", "after")):
        left, width = _WIDTHS[side]
        for place, each in enumerate(counts):
            height = _HEIGHT * each[side] / most
            if height:
                SubElement(svg, "rect", {
                    "class": name, "x": f"{_STEP * place + left:g}", "y": f"{_HEIGHT - height:.2f}",
                    "width": f"{width:g}", "height": f"{height:.2f}",
                })  # fmt: skip
    return svg
