// The console's frame: which page an address names, the banner, the stream, the theme and keys.
import { askForToken, follow, token } from "./api.js";
import * as entity from "./entity.js";
import * as health from "./health.js";
import * as limits from "./limits.js";
import * as policies from "./policies.js";
import { ago, duration, fill, h, number } from "./words.js";

const PAGES = [
  ["Limits", "#/limits"],
  ["Backlogs", "#/limits?law=backlog&show=pictures"],
  ["Dispatch", "#/limits?law=dispatch&show=pictures"],
  ["Concurrency", "#/limits?law=concurrency&show=pictures"],
  ["Health", "#/health"],
  ["Policies", "#/policies"],
];
const SHOWN_BY = new Map(Object.entries({ limits, entity, health, policies }));
const NOBODY = "weir/v1/stream?limit=1";

const main = document.getElementById("main");
const banner = document.getElementById("banner");
const link = document.getElementById("link");
let page = { keys: {} };
let leave = new AbortController();
let unwatch = new AbortController();
let lostSince = 0;

/** What an address names: `#/entity/mutation/user%3Dalice?x=1` -> its page, names and query. */
function route() {
  const [path, query] = location.hash.slice(1).split("?");
  const [name, ...names] = path.split("/").slice(1).map(decoded);
  return { name: SHOWN_BY.has(name) ? name : "limits", names, query: new URLSearchParams(query) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody typed it
  }
}

function open() {
  leave.abort();
  leave = new AbortController();
  const to = route();
  const moved = page.name !== to.name || page.names !== to.names.join("/");
  page = { keys: {}, ...SHOWN_BY.get(to.name).show(main, to, leave.signal) };
  page.name = to.name;
  page.names = to.names.join("/");
  document.title = `${page.title} – Weir`;
  const here = limits.address(to);
  fill(
    document.getElementById("pages"),
    PAGES.map(([name, address]) =>
      h("a", { href: address, "aria-current": isHere(address, to, here) && "page" }, name),
    ),
  );
  if (moved) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
  watch();
}

function isHere(address, to, here) {
  if (to.name === "limits") {
    const law = /law=(backlog|dispatch|concurrency)/.exec(here)?.[0] ?? "";
    return address.startsWith("#/limits") && (law ? address.includes(law) : !address.includes("law="));
  }
  return to.name === "entity" ? address === "#/limits" : address.startsWith(`#/${to.name}`);
}

/** Follow what this page shows; one that nobody sees takes none of the few connections that a browser has. */
function watch() {
  unwatch.abort();
  unwatch = new AbortController();
  if (!document.hidden) follow(page.stream ?? NOBODY, take, stands, unwatch.signal);
}

function take(name, data) {
  if (name === "summary") showBanner(data);
  page.take?.(name, data);
}

function stands(live, wrong) {
  if (live) lostSince = 0;
  else lostSince ||= Date.now();
  document.body.classList.toggle("lost", !live);
  const said = live ? "live" : `not connected: ${wrong || "trying again"}`;
  // For a screen reader only another word is news.
  if (link.textContent !== said) link.textContent = said;
  link.className = live ? "live" : "lost";
}

function showBanner(now) {
  const waits = now.waiting > 0;
  banner.className = waits ? "waits" : "calm";
  // For a screen reader only a change of the number is news, not each second of the time.
  const first = waits ? `${number(now.waiting)} wait${now.waiting === 1 ? "s" : ""} now` : "Nobody waits";
  const held = [...banner.children];
  const [said, list, more] = held.length ? held : [h("strong", { role: "status" }), h("dl"), h("span")];
  if (!held.length) fill(banner, said, list, more);
  if (said.textContent !== first) said.textContent = first;
  const facts = [
    waits && ["longest", duration(now.oldest_ms)],
    ["entities refused", number(now.refused)],
    ["with a limit", number(now.entities)],
    now.mode && now.mode !== "enforce" && ["mode", now.mode],
  ].filter(Boolean);
  fill(
    list,
    facts.map(([name, value]) =>
      h("div", { class: name === "mode" && "odd" }, h("dt", {}, name), h("dd", {}, value)),
    ),
  );
  const ill = (now.parts ?? []).filter((part) => health.isIll(part));
  const names = ill.map(health.partName).join(", ");
  fill(more, ill.length > 0 && h("a", { href: "#/health" }, `${names}: see Health`));
}

const THEMES = ["system", "light", "dark"];

function theme(name = localStorage.getItem("weir.theme") ?? "system") {
  localStorage.setItem("weir.theme", name);
  document.documentElement.dataset.theme = name;
  document.getElementById("theme").textContent = `Theme: ${name}`;
}

const nextTheme = () =>
  theme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, textarea, select")) return;
  const own = page.keys[event.key];
  if (own) own();
  else if (event.key === "t") nextTheme();
  else if (event.key === "?") document.getElementById("keys-dialog").showModal();
  else if (event.key === "u" && page.up) location.hash = page.up;
  else if (/^[1-6]$/.test(event.key)) location.hash = PAGES[event.key - 1][1];
  else return;
  event.preventDefault();
}

theme();
document.getElementById("theme").addEventListener("click", nextTheme);
document
  .getElementById("keys")
  .addEventListener("click", () => document.getElementById("keys-dialog").showModal());
document.querySelector(".skip").addEventListener("click", (event) => {
  // Its own address would be that of another page.
  event.preventDefault();
  main.focus();
});
const signIn = document.getElementById("sign-in");
signIn.hidden = !token.get();
signIn.addEventListener("click", async () => {
  if (await askForToken("Another token, from now on.", true)) open();
});
document.getElementById("token-dialog").addEventListener("close", () => {
  signIn.hidden = false;
});
addEventListener("hashchange", open);
addEventListener("keydown", key);
document.addEventListener("visibilitychange", watch);
setInterval(() => {
  if (lostSince) banner.dataset.lost = `Nothing was heard for ${ago(lostSince)}: what is shown is old.`;
  else delete banner.dataset.lost;
}, 250);
open();
