"""Pictures of a plan as SVG: bars by hour, before in grey and after before it."""

from collections.abc import Iterable, Mapping
from typing import Final
from xml.etree.ElementTree import Element, SubElement

from weir.plan.comparison import Counts
from weir.plan.verdicts import ALLOWED

HOURS_MAX: Final = 24 * 31
"""A longer log is drawn up to here."""
_HEIGHT: Final = 40.0
_WIDTHS: Final = ((1.0, 9.0), (2.5, 6.0))
"""Of a bar, from where on and how wide, before and after: of 11 an hour."""
_STEP: Final = 11.0


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
