"""Debian's Chromium, driven as a person would, and what axe-core has to say of a page."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

AXE: Final = Path(__file__).resolve().parents[2] / ".weir/tools/axe/node_modules/axe-core/axe.min.js"
WAIT_S: Final = 20.0
WIDE: Final = (1280, 860)
PHONE: Final = (390, 844)
_FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip
_RUN_AXE: Final = """
const done = arguments[0];
axe.run().then(({violations}) => done(violations.map(
  ({id, nodes}) => `${id}: ${nodes.map((node) => node.html.slice(0, 200)).join(" | ")}`)));
"""

class Browser:
    """One browser with nothing in it; a context manager.

    Args:
        profile: a new folder for what it keeps.
        url: of the admin API.
    """

    def __init__(self, profile: Path, url: str) -> None:
        self._profile, self.url = profile, url

    def __enter__(self) -> Self:
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for flag in (*_FLAGS, f"--user-data-dir={self._profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        self.size(*WIDE)
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    def open(self, state: str) -> None:
        """Open a state of the console anew, as from a link that somebody sent."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/{state}")

    def size(self, width: int, height: int) -> None:
        """The window's, in pixels of CSS; a narrow one is a phone's."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def theme(self, name: str) -> None:
        """What the system prefers: light or dark."""
        wanted = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})

    def run(self, script: str, *given: Any) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *given)

    def text(self, selector: str = "body") -> str:
        """What a person reads at a place; empty where there is none."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def find(self, selector: str) -> WebElement:
        """The first that fits, once it is there."""
        self.until(lambda: self.driver.find_elements(By.CSS_SELECTOR, selector), selector)
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def press(self, *keys: str) -> None:
        """Keys, wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def until(self, condition: Callable[[], Any], what: str, limit_s: float = WAIT_S) -> Any:
        """Wait for a true value and return it; fails with what the page shows."""
        deadline = time.monotonic() + limit_s
        while not (value := condition()):
            assert time.monotonic() < deadline, f"{what} did not come; the page shows:\n{self.text()}"
            time.sleep(0.05)
        return value

    def reads(self, words: str, selector: str = "body", limit_s: float = WAIT_S) -> None:
        """Wait until a place says so."""
        self.until(lambda: words in self.text(selector), f"{words!r} in {selector}", limit_s)

    def violations(self) -> list[str]:
        """What axe-core finds wrong with the page as it is, with the elements."""
        self.run(AXE.read_text())
        found: list[str] = self.driver.execute_async_script(_RUN_AXE)
        return found

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.run("return document.documentElement.scrollWidth - window.innerWidth"))

    def errors(self, allowed: tuple[str, ...] = ()) -> list[str]:
        """Errors in its console since the last call, but those with one of these words."""
        entries = [entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        return [
            entry["message"] for entry in entries if not any(word in entry["message"] for word in allowed)
        ]
