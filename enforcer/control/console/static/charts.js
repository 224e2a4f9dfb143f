// Pictures of use beside its limit, as SVG.
import { amount, bare, duration, svg, time } from "./words.js";

const line = (points) =>
  points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/** The last minutes of use in a row of a list; the limit is the dashed line. */
export function sparkline(values, limit, { width = 120, height = 26, label = "" } = {}) {
  const known = (values ?? []).map((value) => value ?? 0);
  const most = Math.max(limit ?? 0, ...known, 0) * 1.08;
  const at = (value) => height - 1.5 - (Math.min(value, most) / (most || 1)) * (height - 3);
  const picture = svg("svg", {
    class: "spark",
    viewBox: `0 0 ${width} ${height}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label,
  });
  if (known.length > 1) {
    const points = known.map((value, index) => [(index / (known.length - 1)) * width, at(value)]);
    picture.append(
      svg("path", { class: "area", d: `${line(points)}L${width} ${height}L0 ${height}Z` }),
      svg("path", { class: "use", d: line(points) }),
    );
  }
  if (limit > 0)
    picture.append(svg("line", { class: "limit", x1: 0, x2: width, y1: at(limit), y2: at(limit) }));
  return picture;
}

const SIZE = { height: 210, left: 62, right: 12, top: 14, bottom: 24 };
const WIDTHS = [280, 1000];

/** Use and limit over time: rows of [ms, used, limit]; the limit may have changed meanwhile. */
export function history(rows, unit, room, now = Date.now()) {
  const width = Math.min(Math.max(room, WIDTHS[0]), WIDTHS[1]);
  const { height, left, right, top, bottom } = SIZE;
  const known = (rows ?? []).filter(([ms]) => Number.isFinite(ms));
  const values = known.flatMap(([, used, limit]) => [used ?? 0, limit > 0 ? limit : 0]);
  const most = Math.max(...values, 0) * 1.1 || 1;
  const from = known.length ? known[0][0] : now - 60_000;
  const to = Math.max(known.length ? known.at(-1)[0] : now, from + 1000);
  const x = (ms) => left + ((ms - from) / (to - from)) * (width - left - right);
  const y = (value) => height - bottom - (value / most) * (height - top - bottom);
  const picture = svg("svg", { class: "history", viewBox: `0 0 ${width} ${height}`, role: "img" });
  picture.setAttribute("aria-label", told(known, unit, to - from));
  for (const value of ticks(most)) {
    picture.append(
      svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, bare(value, unit)),
    );
  }
  for (const share of width < 500 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]) {
    const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
    const ms = from + share * (to - from);
    picture.append(svg("text", { class: "tick", x: x(ms), y: height - 7, "text-anchor": anchor }, time(ms)));
  }
  if (known.length > 1) {
    const used = known.map(([ms, value]) => [x(ms), y(value ?? 0)]);
    picture.append(
      svg("path", { class: "area", d: `${line(used)}L${x(to)} ${y(0)}L${x(from)} ${y(0)}Z` }),
      svg("path", { class: "use", d: line(used) }),
    );
    for (const path of limits(known, x, y)) picture.append(svg("path", { class: "limit", d: path }));
  }
  return picture;
}

/** The limit as steps, without a line where there was none. */
function limits(rows, x, y) {
  const paths = [];
  let path = [];
  rows.forEach(([ms, , limit], at) => {
    if (limit > 0) {
      path.push([x(ms), y(limit)]);
      if (at + 1 < rows.length) path.push([x(rows[at + 1][0]), y(limit)]);
    } else if (path.length) {
      paths.push(line(path));
      path = [];
    }
  });
  return path.length ? [...paths, line(path)] : paths;
}

/** Round values for an axis, four or so. */
function ticks(most) {
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, at) => at * step);
}

/** The picture in words. */
function told(rows, unit, ms) {
  if (!rows.length) return "No use is known yet.";
  const [, used, limit] = rows.at(-1);
  const most = Math.max(...rows.map(([, value]) => value ?? 0));
  const beside = limit > 0 ? `of ${amount(limit, unit)}` : "without a limit";
  const now = `now ${amount(used, unit)} ${beside}`;
  return `Use over the last ${duration(ms)}: ${now}, at most ${amount(most, unit)}.`;
}
