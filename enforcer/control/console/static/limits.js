// One list over all laws, by share of the limit that is used; or the same as pictures.
import { ask, Refused } from "./api.js";
import { sparkline } from "./charts.js";
import { amount, bare, beside, duration, emptyIn, fill, h, number, pageAddress, percent,
  turns } from "./words.js";

const LAWS = ["mutation", "shares", "dispatch", "concurrency", "backlog"];
const ORDERS = [["used", "share used"], ["wait", "waiting"], ["refused", "refused"]];
/** Columns beside the entity: what stands above, whether of numbers, and the order that it leads to. */
const COLUMNS = [
  ["Used", "number", "used"],
  ["Of its limit"],
  ["Last minutes"],
  ["Burst left", "number"],
  ["Empty in", "number"],
  ["Waits", "number", "wait"],
  ["Refused", "number", "refused"],
];
const ROWS = { list: 50, pictures: 24 };
const HIGH = 0.8;

/** The address of a state of this page. */
export const address = ({ query }, changes) => pageAddress("limits", query, changes);

export const entityAddress = (row) =>
  `#/entity/${encodeURIComponent(row.law)}/${encodeURIComponent(row.entity)}`;

/** What is used of the limit, as the API has it, but of a limit of 0 (a backlog): anything is above that. */
const share = (row) => row.fraction ?? (row.used > 0 ? Infinity : 0);

/** How near: ok, high from 80 % on, full from 100 % on or while something waits. */
export function level(row) {
  if (row.waiting_ms > 0 || share(row) >= 1) return "full";
  return share(row) >= HIGH ? "high" : "ok";
}

export function show(main, to, signal) {
  const law = to.query.get("law") ?? "";
  const name = to.query.get("name") ?? "";
  const by = to.query.get("by") ?? "used";
  const form = to.query.get("show") === "pictures" ? "pictures" : "list";
  const offset = Math.max(0, Number(to.query.get("offset")) || 0);
  const asked = new URLSearchParams({ by, law, name, offset, limit: ROWS[form] });
  const items = form === "list" ? h("tbody") : h("ul", { class: "cards" });
  const notice = h("p", { class: "notice" }, "Reading…");
  const pages = h("nav", { class: "pages", "aria-label": "Pages of the list" });
  const make = form === "list" ? tableRow : card;
  const view = { items, notice, pages, make, held: new Map(), total: 0, to, offset, size: ROWS[form] };

  fill(
    main,
    h("h1", { class: "unseen" }, law ? `Limits of ${law}` : "Limits of all laws"),
    toolbar(to, law, name, by, form),
    form === "list" ? listTable(items, by, to) : items,
    notice,
    pages,
  );
  const read = () =>
    ask(`weir/v1/entities?${asked}`, { signal }).then(
      ({ data, total }) => put(view, data, total),
      (error) => error instanceof Refused && (notice.textContent = error.message),
    );
  read();
  const turn = (rel) => () => pages.querySelector(`[rel=${rel}]`)?.click();
  let summaries = 0;
  return {
    title: law ? `Limits: ${law}` : "Limits",
    stream: `weir/v1/stream?${new URLSearchParams({ by, law, name, limit: ROWS[form] })}`,
    take(name, data) {
      if (name === "entities" && !offset) put(view, data, Math.max(view.total, data.length));
      // Further pages are not streamed; and the total comes with a request only.
      else if (name === "summary" && ++summaries % (offset ? 1 : 10) === 0) read();
    },
    keys: { j: () => step(items, 1), k: () => step(items, -1), n: turn("next"), p: turn("prev") },
  };
}

/** A field that narrows the list to names which have this in them; the address holds it. */
function search(to, name) {
  const field = h("input", { id: "name", type: "search", value: name, placeholder: "name has…" });
  const label = h("label", { for: "name", class: "unseen" }, "Name has");
  const form = h("form", { role: "search" }, label, field);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = address(to, { name: field.value, offset: 0 });
  });
  return form;
}

function toolbar(to, law, name, by, form) {
  const choice = (label, key, choices, now) =>
    h(
      "nav",
      { "aria-label": label },
      choices.map(([value, said = value]) =>
        h(
          "a",
          { href: address(to, { [key]: value, offset: 0 }), "aria-current": value === now && "true" },
          said,
        ),
      ),
    );
  return h(
    "div",
    { class: "toolbar" },
    search(to, name),
    choice("Law", "law", [["", "all laws"], ...LAWS.map((one) => [one])], law),
    choice("Order", "by", ORDERS, by),
    choice("Form", "show", [["list"], ["pictures"]], form),
  );
}

function listTable(body, by, to) {
  const head = ([said, kind, order]) =>
    h(
      "th",
      { scope: "col", class: kind, "aria-sort": order === by && "descending" },
      order ? h("a", { href: address(to, { by: order, offset: 0 }) }, said) : said,
    );
  return h(
    "table",
    { class: "list" },
    h("caption", { class: "unseen" }, "Entities with a limit, those nearest to it first"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Entity"), COLUMNS.map(head))),
    body,
  );
}

/** Show these rows: those that are there are changed, not made anew, so that focus and pointer stay. */
function put(view, rows, total) {
  const { items, held, notice, make } = view;
  view.total = total;
  const before = document.activeElement;
  // While the pointer is on the list nothing moves away below it.
  const still = items.matches(":hover") && matchMedia("(hover: hover)").matches;
  const found = rows.map((row) => {
    const key = `${row.law}/${row.entity}`;
    const one = held.get(key) ?? make(row);
    held.set(key, one);
    one.change(row);
    return one.element;
  });
  const wanted = new Set(found);
  for (const [key, one] of held) {
    if (!wanted.has(one.element)) {
      one.element.remove();
      held.delete(key);
    }
  }
  const order = still ? [...[...items.children], ...found.filter((one) => !one.isConnected)] : found;
  order.forEach((element, at) => {
    if (items.children[at] !== element) items.insertBefore(element, items.children[at] ?? null);
  });
  if (before !== document.activeElement && before?.isConnected) before.focus({ preventScroll: true });
  const none = !rows.length && !view.offset;
  notice.textContent = none ? "Nothing is limited here, or nothing limited has been used yet." : "";
  paging(view, rows.length);
}

function paging({ pages, to, offset, size, total }, count) {
  pages.hidden = total <= size && !offset;
  const made = turns(offset, size, count, total, (at) => address(to, { offset: at }));
  // Links that say the same stay, so that focus does.
  if (pages.querySelector("span")?.textContent !== made[1].textContent) fill(pages, made);
}

/** Focus the link of the next or previous row. */
function step(items, by) {
  const links = [...items.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, at + by))]?.focus();
}

const tags = (row) => [
  " ",
  h("span", { class: "tag" }, row.law),
  row.shadow && [" ", h("span", { class: "tag odd" }, "shadow")],
];

/** Use beside its limit as a bar, a third of it left for what is above the limit. */
export function bar(row) {
  const inner = h("span", { class: "bar-inner" });
  inner.style.setProperty("width", `${Math.min(1.25, Math.max(0, share(row))) * 80}%`);
  return h("span", { class: `bar ${level(row)}`, "aria-hidden": "true" }, inner);
}

function spark(row, size) {
  const most = Math.max(...(row.history ?? []), 0);
  const label = `Use of ${row.entity} in the last minutes, at most ${amount(most, row.unit)}`;
  return sparkline(row.history, row.limit, { ...size, label });
}

function tableRow(row) {
  const marks = h("span");
  const who = h("th", { scope: "row" }, h("a", { href: entityAddress(row) }, row.entity), marks);
  const cells = COLUMNS.map(([name, kind]) => h("td", { "data-name": name, class: kind }));
  const [used, use, minutes, burst, empty, waits, refused] = cells;
  const element = h("tr", {}, who, cells);
  return {
    element,
    change(now) {
      element.className = level(now);
      fill(marks, tags(now));
      used.textContent = percent(now.fraction);
      fill(use, bar(now), h("span", { class: "beside" }, beside(now.used, now.limit, now.unit)));
      fill(minutes, spark(now));
      burst.textContent = bare(now.burst_left, now.unit);
      empty.textContent = emptyIn(now.empty_s);
      waits.textContent = now.waiting_ms > 0 ? duration(now.waiting_ms) : "–";
      refused.textContent = now.refused ? number(now.refused) : "–";
    },
  };
}

function card(row) {
  const marks = h("span");
  const facts = h("p", { class: "facts" });
  const picture = h("div");
  const element = h(
    "li",
    {},
    h("h2", {}, h("a", { href: entityAddress(row) }, row.entity), marks),
    facts,
    picture,
  );
  return {
    element,
    change(now) {
      element.className = level(now);
      fill(marks, tags(now));
      const waits = now.waiting_ms > 0 ? `, waits ${duration(now.waiting_ms)}` : "";
      fill(
        facts,
        h("strong", {}, percent(now.fraction)),
        ` ${beside(now.used, now.limit, now.unit)}${waits}`,
      );
      fill(picture, spark(now, { width: 320, height: 90 }));
    },
  };
}
