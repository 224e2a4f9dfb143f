// One entity: why it is held back, since when, by which limit, and what would help.
import { ask, Refused } from "./api.js";
import { history } from "./charts.js";
import { bar, level } from "./limits.js";
import { ago, amount, bare, duration, emptyIn, fill, h, ms, number, percent, rowsTable,
  shown, time, title } from "./words.js";

const DECISIONS = 50;
const REREAD = 5; // summaries, one a second
const SEEN = 1000; // decisions that are known again, of hundreds a second while a page is open all day
/** Of a decision what stands in columns of its own, or says nothing here. */
const APART = ["type", "id", "ts", "law", "entity", "outcome", "throttle_time_ms", "subject", "v"];

export function show(main, to, signal) {
  const [law, ...rest] = to.names;
  const name = rest.join("/");
  const path = `weir/v1/entities/${encodeURIComponent(law)}/${encodeURIComponent(name)}`;
  const part = Object.fromEntries(
    ["state", "reason", "picture", "ladder", "shares", "shadow", "help"].map((one) => [
      one,
      h("div", { class: one }),
    ]),
  );
  const decisions = h("tbody");
  fill(
    main,
    h("p", { class: "up" }, h("a", { href: `#/limits?law=${encodeURIComponent(law)}` }, `all of ${law}`)),
    h("h1", {}, name || "(no name)", " ", h("span", { class: "tag" }, law)),
    part.reason,
    part.state,
    part.picture,
    h(
      "div",
      { class: "columns" },
      section("h-ladder", "Which limit applies", part.ladder),
      section("h-shares", "Shares by proxy", part.shares),
      section("h-help", "What would help", part.help, part.shadow),
    ),
    h("h2", {}, "Newest decisions"),
    rowsTable("Newest decisions", ["Time", "Outcome", "Told to wait", "More"], decisions),
  );

  const seen = new Set();
  const take = (decision) => {
    const key = `${decision.id}/${decision.ts}/${decision.applied_ts ?? ""}`;
    if (seen.has(key)) return;
    seen.add(key);
    if (seen.size > SEEN) seen.delete(seen.values().next().value);
    const row = Object.assign(decisionRow(decision), { ts: decision.ts });
    // What was read may come behind what the stream told: the page was hidden, and followed none.
    decisions.insertBefore(row, [...decisions.children].find((one) => one.ts <= row.ts) ?? null);
    while (decisions.children.length > DECISIONS) decisions.lastChild.remove();
  };
  const read = () =>
    ask(path, { signal }).then(
      ({ data }) => {
        showState(part, data);
        [...(data.decisions ?? [])].sort((one, other) => one.ts - other.ts).forEach(take);
      },
      (error) => {
        if (error instanceof Refused) fill(part.reason, h("p", { class: "notice" }, error.message));
      },
    );
  read();
  let waiting = 0;
  /** Decisions come by hundreds: the rest is read once for all of them. */
  const soon = () => {
    waiting ||= setTimeout(() => {
      waiting = 0;
      read();
    }, 300);
  };
  let summaries = 0;
  return {
    title: name,
    up: `#/limits?law=${encodeURIComponent(law)}`,
    stream: `weir/v1/stream?${new URLSearchParams({ law, entity: name })}`,
    take(event, data) {
      if (event === "decision") [data].flat().forEach(take);
      if (event === "decision" || (event === "summary" && ++summaries % REREAD === 0)) soon();
    },
  };
}

const section = (id, said, ...parts) =>
  h("section", { "aria-labelledby": id }, h("h2", { id }, said), parts);

function showState(part, now) {
  const unit = now.unit ?? "";
  fill(part.reason, h("p", { class: `why ${level(now)}` }, now.reason));
  const facts = [
    ["used", `${amount(now.used, unit)}`, percent(now.fraction)],
    ["limit", amount(now.limit, unit), now.entry],
    ["burst left", bare(now.burst_left, unit), spent(now)],
    [
      "waits",
      now.waiting_ms > 0 ? duration(now.waiting_ms) : "–",
      now.since ? `since ${time(ms(now.since))}, ${ago(ms(now.since))}` : "",
    ],
    ["refused", now.refused ? number(now.refused) : "–", "in the last minute"],
  ];
  fill(
    part.state,
    bar(now),
    h(
      "dl",
      { class: "state-facts" },
      facts.map(([name, value, more]) =>
        h("div", {}, h("dt", {}, name), h("dd", {}, h("strong", {}, value), more && h("span", {}, more))),
      ),
    ),
  );
  fill(
    part.picture,
    now.history?.length
      ? history(now.history, unit, part.picture.clientWidth)
      : h("p", { class: "hint" }, "No use is known yet."),
  );
  fill(part.ladder, ladder(now.ladder ?? [], unit));
  fill(part.shares, shares(now, unit));
  showShadow(part.shadow, now);
  showHelp(part.help, now);
}

const spent = ({ empty_s: left }) => (left ? `empty in ${emptyIn(left)}` : left === 0 ? "empty" : "");

function ladder(levels, unit) {
  if (!levels.length) return h("p", { class: "hint" }, "This law has one limit only.");
  return h(
    "ol",
    { class: "ladder" },
    levels.map((one) =>
      h(
        "li",
        { class: one.won ? "won" : one.limit === null ? "absent" : "" },
        h("span", { class: "level" }, String(one.level ?? "")),
        h("code", {}, one.entry ?? ""),
        h("span", { class: "number" }, one.limit === null ? "not set" : amount(one.limit, unit)),
        one.won && h("span", { class: "tag first" }, "applies"),
      ),
    ),
  );
}

function shares({ shares: rows = [], share_sum: sum, limit }, unit) {
  if (!rows.length) return h("p", { class: "hint" }, "It is not shared out among proxies.");
  const line = (name, share, used) => [name, bare(share, unit), bare(used, unit)];
  const used = rows.reduce((all, one) => all + (one.used ?? 0), 0);
  return rowsTable(
    "Shares",
    ["*Proxy", "#Share", "#Used"],
    rows.map((one) => line(one.proxy, one.share, one.used)),
    line(`sum, of ${amount(limit, unit)}`, sum, used),
  );
}

/** What would have been: of a policy on trial, and of candidates that are decided beside those in force. */
function showShadow(place, { shadow, candidates = {} }) {
  const would = shadow && [
    ["would wait now", shadow.waiting_ms > 0 ? duration(shadow.waiting_ms) : "no"],
    ["would have been refused", `${number(shadow.refused)} in the last minute`],
    ["since", time(ms(shadow.since))],
  ];
  const beside = Object.entries(candidates).map(([name, decision]) => [
    `candidate ${name}`,
    compact(decision),
  ]);
  const pairs = [...(would || []), ...beside].map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
  const none = "No policy is on trial here (shadow), and no candidate is decided beside it.";
  fill(
    place,
    pairs.length && h("h3", {}, shadow ? "On trial (shadow): nobody is held back" : "Candidates"),
    pairs.length ? h("dl", { class: "pairs" }, pairs) : h("p", { class: "hint" }, none),
  );
}

function showHelp(place, now) {
  if (!place.hasChildNodes()) {
    const hint = "The least limit that would have ended its waits in the last hour.";
    const button = h("button", { type: "button" }, "What would help?");
    fill(place, h("p", { class: "hint" }, hint), button, h("output"));
  }
  const output = place.querySelector("output");
  const policy = `#/policies?${new URLSearchParams({ entry: now.entry ?? "" })}`;
  const change = h("a", { class: "button", href: policy }, "Change its policy");
  const said = now.help
    ? [h("strong", {}, amount(now.help.limit, now.unit ?? "")), ` ${now.help.text}`, now.entry && change]
    : "Nothing waited in the last hour: no other limit would have changed anything.";
  const say = () => fill(output, said);
  if (output.hasChildNodes()) say(); // it was asked already: kept up to date
  place.querySelector("button").onclick = say;
}

/** What else a decision says. */
const others = (decision) =>
  Object.entries(decision).filter(
    ([field, value]) => !APART.includes(field) && value !== null && value !== false && value !== "",
  );

const compact = (decision) =>
  [decision.outcome, ...others(decision).map(([field, value]) => `${title(field)} ${shown(field, value)}`)]
    .filter(Boolean)
    .join(", ");

function decisionRow(decision) {
  const outcome = decision.outcome ?? decision.type ?? "";
  return h(
    "tr",
    { class: /reject|throttle/.test(outcome) ? "full" : "" },
    h("td", {}, time(decision.ts)),
    h("td", {}, outcome),
    h("td", { class: "number" }, decision.throttle_time_ms ? duration(decision.throttle_time_ms) : "–"),
    h(
      "td",
      { class: "more" },
      others(decision).map(([field, value]) =>
        h("span", {}, `${title(field)} `, h("b", {}, shown(field, value))),
      ),
    ),
  );
}
