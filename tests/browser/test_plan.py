"""The page of `weir replay --report` in a real browser, from a file: no stack, no network."""

from collections.abc import Iterator

import pytest
from browser_kit import PHONE, WIDE, Browser
from plan_kit import file_of

from benchmarks.load.day import HOUR_MS, MIDNIGHT_MS, TODAY, TOMORROW, Day
from weir.cli import main


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Two hours of a made-up day of few teams, the runaway in them, under tomorrow's limits, open."""
    folder = tmp_path_factory.mktemp("plan")
    begin, end = (MIDNIGHT_MS + hour * HOUR_MS for hour in (12, 14))
    events = [one for one in Day(1, tenants=4).events() if begin <= one["ts"] < end]
    day = file_of(folder, "day.jsonl", *events)
    today = file_of(folder, "today.yaml", TODAY.encode())
    tomorrow = file_of(folder, "tomorrow.yaml", TOMORROW.encode())
    words = ["--policies", today, "--events", day, "--out", str(folder / "out.jsonl"), "--against", tomorrow]
    assert main(["replay", *words, "--report", str(folder / "plan.html")]) == 0
    with Browser(folder / "profile", folder.as_uri()) as browser:
        browser.open("plan.html")
        yield browser


def test_it_says_at_one_look_who_is_hurt_and_who_is_helped(page: Browser) -> None:
    """The runaway first, the tenant that grows among those who are helped, teams that behave in neither."""
    page.size(*WIDE)
    assert "user=etl" in page.text("tr.hurt") and "quotas[user=<default>]" in page.text("tr.hurt")
    helped = page.run("return [...document.querySelectorAll('tr.helped')].map((row) => row.innerText).join()")
    assert "user=shop" in helped and "team-" not in page.text("tbody") + helped
    top = page.run("return document.querySelector('tr.hurt').getBoundingClientRect().bottom")
    assert top < WIDE[1]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_it_is_accessible_and_fits(page: Browser, size: tuple[int, int], theme: str) -> None:
    """No violation that axe-core finds, no scrolling sideways, nothing asked for from elsewhere."""
    page.size(*size)
    page.theme(theme)
    page.open("plan.html")
    assert page.violations() == [] and page.overflow() <= 0 and page.errors() == []
    assert page.run("return performance.getEntriesByType('resource').length") == 0


def test_it_prints(page: Browser) -> None:
    """On white, whatever the system prefers, with all of its bars."""
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    scheme = page.run("return getComputedStyle(document.documentElement).colorScheme")
    assert scheme == "light"
    printed = page.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    assert len(printed["data"]) > 10_000
