"""The picture of a plan in README and docs/plan.md: a made-up day, `weir replay --against`, Chromium.

    PYTHONPATH=.:tests/kit .venv/bin/python docs/plots/shoot_plan.py
"""

from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from browser_kit import PHONE, Browser
from PIL import Image

from benchmarks.load.day import write
from weir.cli import main as weir

HERE: Final = Path(__file__).parent
SEED: Final = 1
VIEWS: Final = {"plan.png": (1180, 900, "light"), "plan-phone.png": (*PHONE, "dark")}
"""Picture -> width and height, and what the system prefers."""


def main() -> None:
    """Make the day, plan, look."""
    folder = Path(mkdtemp(prefix="weir-plan-"))
    write(folder, SEED)
    day, today, tomorrow = (str(folder / name) for name in ("day.jsonl.gz", "today.yaml", "tomorrow.yaml"))
    words = ["--policies", today, "--events", day, "--out", str(folder / "out.jsonl"), "--against", tomorrow]
    assert weir(["replay", *words, "--report", str(folder / "plan.html")]) == 0
    with Browser(folder / "profile", folder.as_uri()) as browser:
        for name, (width, height, theme) in VIEWS.items():
            browser.size(width, height)
            browser.theme(theme)
            browser.open("plan.html")
            browser.driver.save_screenshot(str(HERE / name))
            Image.open(HERE / name).convert("RGB").save(HERE / name, optimize=True)


if __name__ == "__main__":
    main()
