// How Weir itself fares: its parts, what they measured against what is promised, its topics.
import { fill, h, shown, table, time, title } from "./words.js";

const WELL = /^(up|ok|ready|running|live|well|true)$/i;

/** Whether a part needs somebody to look at it. */
export const isIll = (part) => part.status !== undefined && !WELL.test(String(part.status));

export function show(main) {
  const parts = h("ul", { class: "parts" });
  const rest = h("div");
  const heard = h("p", { class: "hint" });
  fill(main, h("h1", {}, "Health"), heard, h("h2", {}, "Parts"), parts, rest);
  const put = (now) => {
    fill(parts, (now.parts ?? []).map(partCard));
    const others = Object.entries(now).filter(([name, value]) => name !== "parts" && Array.isArray(value));
    const single = Object.entries(now).filter(([, value]) => typeof value !== "object");
    fill(
      rest,
      others.map(([name, rows]) => list(name, rows)),
      h("h2", {}, "Now"),
      h(
        "dl",
        { class: "pairs" },
        single.map(([name, value]) => [h("dt", {}, title(name)), h("dd", {}, shown(name, value))]),
      ),
    );
    heard.textContent = `As of ${time(Date.now())}.`;
  };
  return { title: "Health", take: (name, data) => name === "summary" && put(data) };
}

function partCard(part) {
  const facts = Object.entries(part).filter(([name]) => !["name", "status"].includes(name));
  return h(
    "li",
    { class: isIll(part) ? "full" : "ok" },
    h(
      "h3",
      {},
      part.name,
      h("span", { class: `tag ${isIll(part) ? "bad" : "good"}` }, String(part.status ?? "")),
    ),
    h(
      "dl",
      { class: "pairs" },
      facts.map(([name, value]) => [h("dt", {}, title(name)), h("dd", {}, shown(name, value))]),
    ),
  );
}

const ABOUT = {
  overshoot: "What passed beyond a limit, as measured, beside the most that is promised.",
  topics: "Weir's own topics.",
};

function list(name, rows) {
  const objects = rows.filter((row) => row && typeof row === "object");
  return h(
    "section",
    {},
    h("h2", {}, title(name)),
    ABOUT[name] && h("p", { class: "hint" }, ABOUT[name]),
    objects.length
      ? table(title(name), objects)
      : h("p", {}, rows.length ? rows.join(", ") : "Nothing to tell."),
  );
}
