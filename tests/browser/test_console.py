"""The console in a real browser, before a real cluster, job and proxy: what a person sees, and how soon."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from admin_process_kit import Admin
from browser_kit import PHONE, WIDE, Browser
from kafka import KafkaAdminClient
from selenium.webdriver.common.keys import Keys
from stack_kit import Up, create

EAGER = "user=ANONYMOUS,client-id=eager"
ENTITY = "#/entity/mutation/user%3DANONYMOUS%2Cclient-id%3Deager"
ENTRY = "quotas[user=<default>,client-id=eager]"
PAGES = {
    "list": ("#/limits", "eager"),
    "pictures": ("#/limits?law=mutation&by=refused&show=pictures", "eager"),
    "entity": (ENTITY, "Newest decisions"),
    "health": ("#/health", "all is read"),
    "policies": (f"#/policies?entry={ENTRY}", "Who changed quotas"),
}
"""Each page's address, and what it says once it is there."""
AWAY = ("net::ERR_", "503 (Service Unavailable)")
"""What the browser itself says of an admin process that is gone, or has not read the policies yet."""


def overdraw(up: Up, name: str) -> float:
    """Let a client exceed its quota; when it was refused, by this machine's clock."""
    client = KafkaAdminClient(bootstrap_servers=up.ready["proxy"], client_id="eager")
    try:
        codes = create(client, {f"{name}-{number}": 9 for number in range(4)})
        assert 89 in {code for code, _ in codes.values()}
        return time.monotonic()
    finally:
        client.close()


@pytest.fixture(scope="module")
def throttled(up: Up, _browser: Browser) -> float:
    """How long it took from a refusal until an open page showed who is held back, s."""
    _browser.open("#/limits")
    _browser.reads("live")
    assert "eager" not in _browser.text("tbody")
    refused = overdraw(up, "first")
    _browser.find("tbody tr.full a")
    return time.monotonic() - refused


def test_a_throttle_shows_within_two_seconds(throttled: float, browser: Browser) -> None:
    """Who, how much of the limit, and that somebody waits, without a reload."""
    assert throttled < 2
    browser.open("#/limits")
    browser.reads("1 waits now", "#banner")
    assert EAGER in browser.text("tbody tr.full")


@pytest.mark.usefixtures("throttled")
def test_a_name_is_searched_for(browser: Browser) -> None:
    """The address holds it, over what the stream tells; nobody of that name is nobody."""
    browser.open("#/limits")
    browser.find("#name").send_keys("id=eag", Keys.ENTER)
    browser.reads(EAGER, "tbody")
    assert "name=id%3Deag" in browser.driver.current_url
    browser.open("#/limits?name=nobody")
    browser.reads("Nothing is limited here", "main")
    browser.reads("live")
    assert browser.text("tbody") == "" and browser.find("#name").get_property("value") == "nobody"


@pytest.mark.usefixtures("throttled")
def test_an_entity_says_why_and_what_would_help(browser: Browser) -> None:
    """The sentence, the level that won, the proxy's share, decisions, and the limit that would do."""
    browser.open(ENTITY)
    browser.reads(ENTRY, ".ladder .won")
    assert "eager" in browser.text(".why") and "1" in browser.text(".why")
    browser.reads("reject", "main")
    browser.find(".help button").click()
    browser.reads("mutations/s", ".help output")


@pytest.mark.usefixtures("throttled")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_accessible_and_fits_a_phone(browser: Browser, page: str, theme: str) -> None:
    """No violation that axe-core finds, in both themes; no scrolling sideways."""
    address, said = PAGES[page]
    browser.theme(theme)
    browser.open(address)
    browser.reads(said, "main")
    browser.reads("live")
    assert browser.violations() == []
    browser.size(*PHONE)
    try:
        assert browser.overflow() <= 0
    finally:
        browser.size(*WIDE)


@pytest.mark.usefixtures("throttled")
def test_keys_reach_everything(browser: Browser) -> None:
    """Tab goes through all links and buttons of a page; letters open entities and pages."""
    browser.open("#/limits")
    browser.find("tbody a")
    reached = set()
    for _ in range(60):
        browser.press(Keys.TAB)
        reached.add(browser.run("return document.activeElement.innerText || document.activeElement.id"))
    wanted = browser.run(
        "return [...document.querySelectorAll('a, button')].filter((one) => one.checkVisibility())"
        ".map((one) => one.innerText || one.id)"
    )
    assert set(wanted) <= reached
    browser.open("#/limits")
    browser.find("tbody a")
    browser.press("j")
    browser.press(Keys.ENTER)
    browser.reads(EAGER, "h1")
    browser.press("u")
    browser.find("tbody a")
    browser.press("5")
    browser.reads("Health", "h1")
    browser.press("?")
    browser.find("dialog[open]")
    browser.press(Keys.ESCAPE)
    browser.press("t")
    assert browser.run("return document.documentElement.dataset.theme") == "light"
    browser.press("t", "t")


def test_who_skips_to_the_content_stays_on_the_page(browser: Browser) -> None:
    """By the first link of every page: the focus moves, and the address is the same."""
    browser.open("#/health")
    browser.run("document.querySelector('.skip').focus()")
    browser.press(Keys.ENTER)
    assert browser.run("return document.activeElement.id") == "main"
    assert browser.driver.current_url.endswith("#/health")


def test_who_chooses_by_keys_goes_on_from_there(browser: Browser) -> None:
    """The list of one law is written anew, and the link that led to it has the focus."""
    browser.open("#/limits")
    browser.find(".toolbar a[href*='law=mutation']").send_keys(Keys.ENTER)
    browser.until(lambda: "mutation" in browser.driver.title, "the list of one law")
    assert browser.run("return document.activeElement.textContent") == "mutation"


QUIET = """
const [done] = arguments;
let said = 0;
const watch = new MutationObserver((changes) => { said += changes.length; });
watch.observe(document.getElementById("link"), { childList: true });
setTimeout(() => done(said), 2500);
"""


def test_a_screen_reader_is_not_told_each_second_that_all_is_well(browser: Browser) -> None:
    """How the page is connected is read out where its text is written, the same one too."""
    browser.open("#/health")
    browser.reads("live", "#link")
    assert browser.driver.execute_async_script(QUIET) == 0


def test_a_policy_is_checked_changed_and_told(browser: Browser) -> None:
    """What is wrong is said; a change stands in the log with its reason."""
    browser.open("#/policies?entry=new")
    entry, value = browser.find("#entry"), browser.find("#value")
    entry.clear()
    entry.send_keys("quotas[user=bob]")
    value.clear()
    value.send_keys('{"controller_mutation_rte": 7}')
    buttons = {one.text: one for one in browser.driver.find_elements("css selector", ".editor button")}
    buttons["Check"].click()
    browser.reads("controller_mutation_rate", ".editor output")
    value.clear()
    value.send_keys('{"controller_mutation_rate": 7}')
    browser.find("#reason").send_keys("größer, ticket 7")
    buttons["Change"].click()
    browser.reads("Who changed quotas[user=bob]", "main")
    browser.reads("größer, ticket 7", "main")
    assert "loopback" in browser.text("main")


def test_a_number_beyond_what_doubles_tell_apart_keeps_its_digits(browser: Browser) -> None:
    """The page showed another one, and saved that with whatever else was changed."""
    large = str(2**53 + 1)
    browser.open("#/policies?entry=new")
    entry, value = browser.find("#entry"), browser.find("#value")
    entry.clear()
    entry.send_keys("resourcegroups.large")
    value.clear()
    value.send_keys(f'{{"publishRateInBytes": {large}}}')
    browser.find(".editor button.first").click()
    browser.reads("Who changed resourcegroups.large", "main")
    browser.reads(large, "main")
    assert large in str(browser.find("#value").get_attribute("value"))


@pytest.fixture
def guarded(up: Up, tmp_path: Path) -> Iterator[Admin]:
    """An admin process before the same cluster that wants tokens."""
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text("tokens: [{token: watching, role: viewer, name: watch}]\n")
    tokens.chmod(0o600)
    with Admin(up.ready["kafka"], tmp_path / "guarded", "weir.", "--tokens", str(tokens)) as admin:
        yield admin


def test_a_token_is_asked_for(_browser: Browser, guarded: Admin) -> None:
    """In the page, not by the browser; a viewer sees all and may change nothing."""
    here, _browser.url = _browser.url, guarded.url
    try:
        _browser.open("#/policies?entry=new")
        _browser.find("dialog[open] #token").send_keys("watching", Keys.ENTER)
        _browser.reads("live")
        _browser.reads("Only a token with the role operator", ".editor")
        assert not _browser.find(".editor button.first").is_enabled()
        assert _browser.errors(("401",)) == []
    finally:
        _browser.url = here


@pytest.mark.usefixtures("throttled")
@pytest.mark.parametrize("part", ["admin", pytest.param("job", marks=pytest.mark.soak)])
def test_a_restart_is_survived(up: Up, _browser: Browser, part: str) -> None:
    """The page says that something is missing, and goes on by itself once it is back."""
    _browser.open("#/limits")
    _browser.reads("live")
    ready = dict(up.ready)
    os.kill(up.pid(part), signal.SIGKILL)
    _browser.reads({"admin": "not connected", "job": "job, last round: see Health"}[part])
    up.wait_ready(newer_than=ready)
    _browser.until(lambda: "see Health" not in _browser.text("#banner"), "all parts well", 60)
    _browser.reads("live", "#link")
    overdraw(up, f"after-{part}")
    _browser.find("tbody tr.full a")
    assert _browser.errors(AWAY) == []


def turned(page: str) -> str:
    """The links of a list's page and what stands between them, as an expression."""
    what = "one.getAttribute('href') ?? one.textContent"
    return f"asked.turns({page}, (at) => `#${{at}}`).map((one) => one && ({what}))"


ZERO = 'asked.address({ query: new URLSearchParams("offset=50") }, { name: "0", offset: 0 })'
FOCUSED = """(() => {
    const at = document.getElementById("pages");
    const put = () => asked.fill(at, asked.h("a", { href: "#/health" }, "x"));
    put();
    at.firstChild.focus();
    put();
    return document.activeElement.textContent;
})()"""
FULL = """(async () => {
    const own = window.fetch;
    let times = 0;
    window.fetch = (path, given) => {
        if (path !== "/full") return own(path, given);
        times++;
        return Promise.resolve(new Response("full", { status: 503, headers: { "Retry-After": "10" } }));
    };
    const over = new AbortController();
    asked.follow("/full", () => {}, () => {}, over.signal);
    await new Promise((go) => setTimeout(go, 1500));
    over.abort();
    window.fetch = own;
    return times;
})()"""

APART = """(async () => {
    const own = window.fetch;
    let reads = 0;
    window.fetch = (path, given) => {
        if (!path.includes("/entities/mutation/")) return own(path, given);
        reads++;
        return Promise.resolve(new Response("{}"));
    };
    const place = document.createElement("main");
    const pages = ["a", "b"].map((name) =>
        asked.show(place, { names: ["mutation", name] }, new AbortController().signal));
    for (const page of pages) page.take("decision", {});
    await new Promise((go) => setTimeout(go, 600));
    window.fetch = own;
    return reads;
})()"""

ORDERED = """(async () => {
    const own = window.fetch;
    const decisions = ["c", "a", "b"].map((outcome, ts) => ({ id: ts, ts, outcome }));
    const read = JSON.stringify({ decisions });
    window.fetch = (path, given) =>
        path.includes("/entities/mutation/") ? Promise.resolve(new Response(read)) : own(path, given);
    const place = document.createElement("main");
    const page = asked.show(place, { names: ["mutation", "a"] }, new AbortController().signal);
    page.take("decision", { id: 3, ts: 3, outcome: "d" });
    await new Promise((go) => setTimeout(go, 600));
    window.fetch = own;
    return [...place.querySelectorAll("tbody td:nth-child(2)")].map((one) => one.textContent).join("");
})()"""

SHOWN = """(async () => {
    const own = window.fetch;
    let shown = "";
    window.fetch = (path, given) => {
        if (path !== "/shown") return own(path, given);
        shown = given.headers.Authorization;
        return Promise.resolve(new Response("{}"));
    };
    asked.token.set("clé-\u043a");
    await asked.ask("/shown");
    asked.token.set("");
    window.fetch = own;
    return shown;
})()"""


@pytest.mark.parametrize(
    ("module", "asks", "expected"),
    [
        ("words", turned("50, 50, 50, 20050"), ["#", "51 to 100 of 20,050", "#100"]),
        ("words", turned("0, 50, 30, 30"), [False, "1 to 30 of 30", False]),
        # The list has become shorter meanwhile.
        ("words", turned("50, 50, 0, 50"), ["#", "0 to 0 of 50", False]),
        ("words", turned("200, 50, 0, 70"), ["#50", "0 to 0 of 70", False]),
        # A name is searched for, whatever it is; nobody looks for the first page by its number.
        ("limits", ZERO, "#/limits?name=0"),
        # A link that is written anew, as the banner's each second, keeps the focus.
        ("words", FOCUSED, "x"),
        # A backlog's limit may be 0.
        ("limits", "asked.level({ fraction: null, limit: 0, used: 5 })", "full"),
        ("limits", "asked.level({ fraction: null, limit: 0, used: 0 })", "ok"),
        ("limits", "asked.level({ fraction: 0.81, limit: 100, used: 81 })", "high"),
        # Browsers send no letter beyond Latin-1 in a header.
        ("api", SHOWN, "Bearer " + "clé-\u043a".encode().decode("latin-1")),
        # It asked each second, whatever it was told.
        ("api", FULL, 1),
        # Each page of an entity reads it as it opens, and anew once something was decided there.
        ("entity", APART, 4),
        # The newest decision stands first, whichever way it came: those read after it stood above it.
        ("entity", ORDERED, "dbac"),
        # A group of consumers may have what ends a line elsewhere in its name.
        ("api", "asked.eventsIn('data: a\\u2028b\\n\\n')", [[["message", "a\u2028b"]], ""]),
    ],
)
def test_what_modules_answer(browser: Browser, module: str, asks: str, expected: object) -> None:
    """As the page's own scripts ask them."""
    browser.open("#/limits")
    asked = f"import('/console/{module}.js').then(async (asked) => arguments[0](await {asks}))"
    assert browser.driver.execute_async_script(asked) == expected
