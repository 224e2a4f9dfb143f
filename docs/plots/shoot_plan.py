"""The picture of a plan in README and docs/plan.md: a made-up day, `weir replay --against`, Chromium.

    PYTHONPATH=.:tests/kit .venv/bin/python docs/plots/shoot_plan.py
"""

from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from browser_kit import Browser
from PIL import Image

from benchmarks.load.day import write
from weir.cli import main as weir

HERE: Final = Path(__file__).parent
SEED: Final = 1
SIZE: Final = (1180, 900)


def main() -> None:
    """Make the day, plan, look."""
    folder = Path(mkdtemp(prefix="weir-plan-"))
    write(folder, SEED)
    day, today, tomorrow = (str(folder / name) for name in ("day.jsonl.gz", "today.yaml", "tomorrow.yaml"))
    words = ["--policies", today, "--events", day, "--out", str(folder / "out.jsonl"), "--against", tomorrow]
    assert weir(["replay", *words, "--report", str(folder / "plan.html")]) == 0
    with Browser(folder / "profile", folder.as_uri()) as browser:
        browser.size(*SIZE)
        browser.open("plan.html")
        file = HERE / "plan.png"
        browser.driver.save_screenshot(str(file))
        Image.open(file).convert("RGB").save(file, optimize=True)


if __name__ == "__main__":
    main()
