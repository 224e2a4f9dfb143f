// How Weir itself fares: its parts, and what passed beyond a limit beside the most that is promised.
import { ask, Refused } from "./api.js";
import { entityAddress } from "./limits.js";
import { duration, fill, h, number, rowsTable, time } from "./words.js";

const PARTS = {
  job: ["job", "its newest sign"],
  batch: ["last batch", "the newest decision of the job"],
  round: ["last round", "the job shares out once a round"],
  delay: ["delay", "from what was asked to the job's newest decision on it"],
  reader: ["reader", "how far this page is behind what is written there"],
  proxy: ["proxy", "says every 5 s that it is there"],
};

const RELOOK = 10; // summaries, one a second, until topics are asked for again

/** What a part is called: `proxy p1`, `reader weir.usage`, `job`. */
export const partName = ({ part, name }) =>
  name === "job" ? (PARTS[part]?.[0] ?? part) : `${PARTS[part]?.[0] ?? part} ${name}`;

/** Whether a part needs somebody to look at it. */
export const isIll = ({ status }) => status !== "ok";

export function show(main, to, signal) {
  const heard = h("p", { class: "hint" });
  const parts = h("ul", { class: "parts" });
  const overshoot = h("div");
  const topics = h("div");
  fill(
    main,
    h("h1", {}, "Health"),
    heard,
    h("h2", {}, "Parts"),
    parts,
    h("h2", {}, "Overshoot"),
    h(
      "p",
      { class: "hint" },
      "Where proxies, which decide at once, let through what the law would have refused a moment later: " +
        "how often, how far below zero the balance went at most, and the burst, which is the bound.",
    ),
    overshoot,
    h("h2", {}, "Weir's topics"),
    topics,
  );
  const look = () =>
    ask("weir/v1/topics", { signal }).then(
      ({ data }) => fill(topics, faulty(data)),
      (error) => error instanceof Refused && fill(topics, h("p", { class: "notice" }, error.message)),
    );
  look();
  let summaries = 0;
  const put = (now) => {
    heard.textContent = `As of ${time(now.at)}. Mode: ${now.mode}. ${number(now.entities)} have a limit.`;
    fill(parts, now.parts.map(card));
    fill(overshoot, beyond(now.overshoot));
    if (++summaries % RELOOK === 0) look();
  };
  return { title: "Health", take: (name, data) => name === "summary" && put(data) };
}

function card(part) {
  const ill = isIll(part);
  return h(
    "li",
    { class: ill ? "full" : "ok" },
    h("h3", {}, partName(part), " ", h("span", { class: `tag ${ill ? "bad" : "good"}` }, part.status)),
    h("p", { class: "age" }, age(part)),
    h("p", { class: "hint" }, PARTS[part.part]?.[1] ?? ""),
  );
}

function age({ part, age_ms }) {
  if (age_ms === null) return "nothing heard";
  if (part === "reader" && !age_ms) return "all is read";
  return duration(age_ms) + (part === "reader" ? " behind" : part === "delay" ? "" : " ago");
}

function beyond(rows) {
  if (!rows.length) return h("p", {}, "Nothing passed beyond a limit.");
  const line = (row) => [
    h("a", { href: entityAddress(row) }, row.entity),
    ...[row.differences, row.over, row.bound].map(number),
  ];
  return rowsTable("Overshoot", ["*Entity", "#Times", "#Furthest", "#Bound"], rows.map(line));
}

function faulty(rows) {
  if (!rows.length) return h("p", {}, "Nothing is wrong with them.");
  const line = (row) => [row.topic, h("strong", { class: "bad" }, row.what), h("code", {}, row.mend)];
  return rowsTable("Topics", ["*Topic", "What is wrong", "What mends it"], rows.map(line));
}
