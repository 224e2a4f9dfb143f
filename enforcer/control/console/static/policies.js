// Policies: see, check and change them; and who has changed what.
import { ask, exact, Refused } from "./api.js";
import { fill, h, number, pageAddress, rowsTable, time, turns } from "./words.js";

const ROWS = 50;

const address = ({ query }, changes) => pageAddress("policies", query, changes);

const compact = (value) => (value === null || value === undefined ? "none" : JSON.stringify(value));

export function show(main, to, signal) {
  const entry = to.query.get("entry");
  const like = to.query.get("like") ?? "";
  const offset = Math.max(0, Number(to.query.get("offset")) || 0);
  const list = h("div");
  const editor = h("div");
  const log = h("div");
  const filter = h("input", { id: "like", type: "search", value: like, spellcheck: "false" });
  fill(
    main,
    h("h1", {}, "Policies"),
    h(
      "form",
      {
        class: "row",
        role: "search",
        onsubmit: (event) => {
          event.preventDefault();
          location.hash = address(to, { like: filter.value.trim(), offset: "" });
        },
      },
      h("label", { for: "like" }, "Entries with"),
      filter,
      h("button", {}, "Find"),
      h("a", { class: "button", href: address(to, { entry: "new" }) }, "New entry"),
    ),
    editor,
    list,
    h("h2", {}, entry && entry !== "new" ? `Who changed ${entry}` : "Who changed what"),
    log,
  );

  const told = (place) => (error) => {
    if (signal.aborted) return;
    fill(place, h("p", { class: "notice" }, error.message));
    if (!(error instanceof Refused)) throw error;
  };
  const read = async () => {
    const asked = new URLSearchParams({ like, offset, limit: ROWS });
    const { data, total } = await ask(`weir/v1/policies?${asked}`, { signal, read: exact });
    fill(list, entries(to, data, total, offset));
  };
  const edit = async () => {
    const found = await ask(`weir/v1/policies?${new URLSearchParams({ entry })}`, { signal, read: exact });
    fill(editor, form(to, entry, found.data.entries[0]?.value ?? null, found.data.may_change, again));
  };
  const readLog = async () => {
    const asked = new URLSearchParams({ limit: ROWS, ...(entry && entry !== "new" ? { entry } : {}) });
    const { data } = await ask(`weir/v1/policies/log?${asked}`, { signal, read: exact });
    fill(log, changes(to, data));
  };
  const again = () => {
    read().catch(told(list));
    readLog().catch(told(log));
  };
  again();
  if (entry) edit().catch(told(editor));
  return { title: "Policies", up: entry ? address(to, { entry: "" }) : undefined };
}

function entries(to, { version, entries: rows }, total, offset) {
  const line = (row) => [
    h("a", { href: address(to, { entry: row.entry }) }, row.entry),
    h("code", {}, compact(row.value)),
    row.origin || "–",
  ];
  const told = `Version ${version}, entries: ${number(total)}. A change is in force two seconds later.`;
  return [
    h("p", { class: "hint" }, told),
    rows.length
      ? rowsTable("Entries", ["*Entry", "Value", "Set by"], rows.map(line))
      : !offset && h("p", { class: "notice" }, "There is none."),
    (total > ROWS || offset > 0) &&
      h(
        "nav",
        { class: "pages", "aria-label": "Pages of entries" },
        turns(offset, ROWS, rows.length, total, (at) => address(to, { offset: at })),
      ),
  ];
}

function form(to, entry, value, mayChange, again) {
  const isNew = entry === "new";
  const path = h("input", {
    id: "entry",
    value: isNew ? "quotas[user=alice]" : entry,
    readonly: !isNew,
    spellcheck: "false",
  });
  const text = h("textarea", { id: "value", rows: "8", spellcheck: "false" });
  text.value = JSON.stringify(value ?? (isNew ? { controller_mutation_rate: 5 } : {}), null, 2);
  const why = h("input", { id: "reason", maxlength: "1024" });
  const said = h("output", { "aria-live": "polite" });
  const say = (kind, ...words) => fill(said, h("div", { class: kind }, words));
  const given = () => ({ entry: path.value.trim(), value: exact(text.value) });

  const attempt = (act) => async () => {
    try {
      await act();
    } catch (error) {
      say("bad", error instanceof SyntaxError ? `The value is no JSON: ${error.message}` : error.message);
    }
  };
  const check = attempt(async () => {
    const { data } = await ask("weir/v1/policies/check", { method: "POST", body: given() });
    const problems = data.problems.map((one) => h("li", {}, one));
    if (problems.length) say("bad", h("ul", {}, problems));
    else say("good", "No problems.");
  });
  const put = (body) =>
    attempt(async () => {
      const wanted = body();
      await ask("weir/v1/policies", { method: "PUT", body: wanted, reason: why.value.trim() });
      say("good", `${wanted.value === null ? "Removed" : "Changed"}, in force everywhere in two seconds.`);
      if (isNew) location.hash = address(to, { entry: wanted.entry });
      else again();
    });
  const removes = h("button", { type: "button", disabled: !mayChange }, "Remove");
  removes.addEventListener("click", () => {
    // The same button again, so that no dialog stands in the way of whoever is sure.
    if (removes.dataset.sure) put(() => ({ entry, value: null }))();
    removes.dataset.sure = "yes";
    removes.textContent = "Remove: sure?";
  });
  return h(
    "form",
    { class: "editor", onsubmit: (event) => event.preventDefault() },
    h("h2", {}, isNew ? "New entry" : entry),
    h("label", { for: "entry" }, "Entry"),
    path,
    h("label", { for: "value" }, "Value (JSON)"),
    text,
    h("label", { for: "reason" }, "Why, for the log"),
    why,
    h(
      "div",
      { class: "row" },
      h("button", { type: "button", onclick: check }, "Check"),
      h("button", { type: "button", class: "first", disabled: !mayChange, onclick: put(given) }, "Change"),
      !isNew && removes,
      h("a", { class: "button", href: address(to, { entry: "" }) }, "Close"),
    ),
    !mayChange && h("p", { class: "hint" }, "Only a token with the role operator may change policies here."),
    said,
  );
}

function changes(to, rows) {
  if (!rows.length) return h("p", { class: "notice" }, "No change is told.");
  const line = (row) => [
    time(row.at),
    row.actor || "–",
    h("a", { href: address(to, { entry: row.entry }) }, row.entry),
    h("code", {}, row.old_known === false ? "?" : compact(row.old)),
    h("code", {}, compact(row.new)),
    row.reason || "–",
  ];
  return rowsTable("Changes", ["Time", "Who", "Entry", "From", "To", "Why"], rows.map(line));
}
