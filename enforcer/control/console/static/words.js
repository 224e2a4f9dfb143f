// What every page writes with: elements made of text alone (never of markup), numbers, times.

/** An element. `given`: attributes and `on...` listeners; false and null leave one out. */
export function h(name, given = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(given ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return made;
}

/** The same for SVG. */
export function svg(name, given = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Put these in place of what is there. The focus stays on a link that leads to the same. */
export function fill(place, ...children) {
  const before = place.contains(document.activeElement) ? document.activeElement.href : "";
  place.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (before)
    [...place.querySelectorAll("a")].find((one) => one.href === before)?.focus({ preventScroll: true });
}

const DIGITS = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SCALES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]];
const BYTES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
const NONE = "–";

/** A number in few digits; null is a dash. */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  for (const [size, name] of SCALES) {
    if (Math.abs(value) >= size) return `${DIGITS.format(value / (name === "k" ? 1e3 : size))} ${name}`;
  }
  return Math.abs(value) >= 100 ? WHOLE.format(value) : DIGITS.format(value);
}

/** A number with its unit; bytes by powers of 1024. */
export function amount(value, unit = "") {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const found = /^bytes?\b/.exec(unit);
  if (found) {
    const [size, name] = BYTES.find(([least]) => Math.abs(value) >= least) ?? [1, "B"];
    return `${DIGITS.format(value / size)} ${name}${unit.slice(found[0].length)}`;
  }
  return unit ? `${number(value)} ${unit}` : number(value);
}

/** An amount without what its unit says of time: bytes of `bytes/s`; a number alone of all else. */
export const bare = (value, unit) => amount(value, /^bytes?\b/.test(unit ?? "") ? "bytes" : "");

/** Use beside its limit: `82 of 100 messages/s`. */
export function beside(used, limit, unit = "") {
  return `${bare(used, unit)} of ${amount(limit, unit)}`;
}

/** A fraction as percent. */
export function percent(fraction) {
  if (fraction === null || fraction === undefined || !Number.isFinite(fraction)) return NONE;
  return `${fraction < 0.0995 ? DIGITS.format(fraction * 100) : WHOLE.format(fraction * 100)} %`;
}

/** A duration in ms, in the two units that matter. */
export function duration(length) {
  if (length === null || length === undefined || !Number.isFinite(length)) return NONE;
  if (length < 1000) return `${Math.round(length)} ms`;
  if (length < 60_000) return `${DIGITS.format(length / 1000)} s`;
  const steps = [[86_400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];
  const seconds = Math.round(length / 1000);
  const [large, name, small, less] = steps.find(([size]) => seconds >= size);
  const rest = Math.floor((seconds % large) / small);
  return `${Math.floor(seconds / large)} ${name}${rest ? ` ${rest} ${less}` : ""}`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-CA", { dateStyle: "short" });

/** Time until a burst is spent, from the API's seconds. */
export function emptyIn(seconds) {
  return seconds === 0 ? "empty" : duration(seconds === null ? seconds : seconds * 1000);
}

/** A time as ms since the epoch; the API tells times in decisions so, and others as ISO 8601. */
export const ms = (at) => (typeof at === "string" ? Date.parse(at) : (at ?? NaN));

/** A time, ms since the epoch, by this machine's clock and zone; with its day unless that is today. */
export function time(when) {
  if (!Number.isFinite(when)) return NONE;
  const at = new Date(when);
  const day = DAY.format(at);
  return day === DAY.format(new Date()) ? CLOCK.format(at) : `${day} ${CLOCK.format(at)}`;
}

/** How long ago that was. */
export function ago(when, now = Date.now()) {
  return Number.isFinite(when) && when > 0 ? duration(Math.max(0, now - when)) : NONE;
}

/** A field's name for people: `oldest_ms` -> `oldest`. */
export function title(field) {
  const spaced = field
    .replace(/_per_s$/, "")
    .replace(/_(ms|s)$/, "")
    .replace(/_/g, " ");
  return spaced.charAt(0).toUpperCase() + spaced.slice(1);
}

/** A field's value for people, by what its name says of its unit. */
export function shown(field, value) {
  if (value === null || value === undefined) return NONE;
  if (/(^|_)(at|since)$/.test(field)) return time(ms(value));
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") {
    if (value > 1e12 && /(^|_)(ts|ms)$/.test(field)) return time(value);
    if (field.endsWith("_ms")) return duration(value);
    if (field.endsWith("_per_s")) return `${number(value)}/s`;
    if (field.endsWith("_s")) return duration(value * 1000);
    if (/fraction$/.test(field)) return percent(value);
    return amount(value, /bytes$/.test(field) ? "bytes" : "");
  }
  if (Array.isArray(value)) return value.map((one) => shown("", one)).join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** A table that scrolls by itself: names of its columns, those of numbers with a `#` before, that of what a
 * row is about with a `*`; rows of cells, or a body that is filled elsewhere; and the cells of a foot. */
export function rowsTable(caption, columns, rows, foot = null) {
  const kind = (at) => columns[at].startsWith("#") && "number";
  const head = (name, at) => h("th", { scope: "col", class: kind(at) }, name.replace(/^[#*]/, ""));
  const cell = (said, at) =>
    columns[at].startsWith("*") ? h("th", { scope: "row" }, said) : h("td", { class: kind(at) }, said);
  const line = (cells) => h("tr", {}, cells.map(cell));
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      { class: "plain" },
      h("thead", {}, h("tr", {}, columns.map(head))),
      Array.isArray(rows) ? h("tbody", {}, rows.map(line)) : rows,
      foot && h("tfoot", {}, line(foot)),
    ),
  );
}

/** The address of a page with what its query says, these changes made; what is empty is left out. */
export function pageAddress(page, query, changes = {}) {
  const wanted = Object.entries({ ...Object.fromEntries(query), ...changes }).filter(([, value]) => value);
  return `#/${page}${wanted.length ? `?${new URLSearchParams(wanted)}` : ""}`;
}

/** Links to other pages of a list, and which of its `total` rows are here: `count` behind the first `offset`.
 * Where there are no more so many, they lead back to the last page. `addressOf(offset)` names one. */
export function turns(offset, size, count, total, addressOf) {
  const last = Math.floor(Math.max(0, total - 1) / size) * size;
  const turn = (at, rel, said) => at >= 0 && at < total && h("a", { rel, href: addressOf(at || "") }, said);
  const [first, end, all] = [count && offset + 1, count && offset + count, total].map(WHOLE.format);
  return [
    turn(Math.min(offset - size, last), "prev", "previous"),
    h("span", {}, `${first} to ${end} of ${all}`),
    turn(offset + size, "next", "next"),
  ];
}
