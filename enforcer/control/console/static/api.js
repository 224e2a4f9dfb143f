// Requests to the admin API, and its stream of events. A token is asked for when the API says 401.

const TOKEN = "weir.token";
const SILENT_MS = 5000; // a summary comes each second
const PAUSES_MS = [100, 250, 500, 1000];
const PAUSE_MAX_MS = 30000; // whatever an answer says
let asking = null;
let declined = false;

/** What the API refused, with its reason, and in how many seconds it may be asked again. */
export class Refused extends Error {
  constructor(reason, afterS) {
    super(reason);
    this.afterS = afterS;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  set: (value) => (value ? sessionStorage.setItem(TOKEN, value) : sessionStorage.removeItem(TOKEN)),
};

/** Ask a person for a token; true once there is one. Several requests that wait for it ask once, and who has
 * declined is asked again `byHand` only. */
export function askForToken(why, byHand = false) {
  if (declined && !byHand) return false;
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("token-dialog");
    document.getElementById("token-why").textContent = why;
    document.getElementById("token").value = "";
    dialog.addEventListener(
      "close",
      () => {
        const given = document.getElementById("token").value.trim();
        declined = dialog.returnValue !== "use" || given === "";
        if (!declined) token.set(given);
        asking = null;
        resolve(!declined);
      },
      { once: true },
    );
    dialog.returnValue = "";
    dialog.showModal();
  });
  return asking;
}

async function sent(path, given) {
  // The header keeps a browser from asking for a password by itself, and lets a POST in without tokens.
  const headers = { "X-Requested-By": "console", ...given.headers };
  const used = token.get();
  if (used) headers.Authorization = `Bearer ${latin(used)}`;
  const answer = await fetch(path, { ...given, headers, cache: "no-store" });
  if (
    answer.status === 401 &&
    (await askForToken(used ? "The API does not know this token." : "This API lets nobody in without one."))
  ) {
    return sent(path, given);
  }
  if (answer.ok) return answer;
  const body = await answer.text();
  let reason = body;
  try {
    reason = JSON.parse(body).reason ?? body;
  } catch {
    /* whoever stands between may answer anything */
  }
  // A date, as others may send, is no number.
  const afterS = Number(answer.headers.get("Retry-After")) || 0;
  throw new Refused(reason || answer.statusText, afterS);
}

/** JSON whose whole numbers beyond 2^53 stay as they are written, where the browser knows that. */
export const exact = (text) =>
  JSON.parse(text, (_, value, context) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source && JSON.rawJSON
      ? JSON.rawJSON(context.source)
      : value,
  );

/** One request; its answer as JSON that `read` reads, and the total of a list. */
export async function ask(path, { method = "GET", body, reason, signal, read = JSON.parse } = {}) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  if (reason) headers["X-Weir-Reason"] = latin(reason);
  const answer = await sent(path, {
    method,
    headers,
    signal,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  return { data: text ? read(text) : null, total: Number(answer.headers.get("X-Total-Count") ?? 0) };
}

/** Headers carry bytes: those of UTF-8, each as a letter. */
const latin = (text) => String.fromCharCode(...new TextEncoder().encode(text));

/** Events out of what has come of a stream so far: [[name, data]...] and what is left of the last one. */
export function eventsIn(text) {
  const blocks = text.replace(/\r\n?/g, "\n").split("\n\n");
  const rest = blocks.pop();
  const events = [];
  for (const block of blocks) {
    let name = "message";
    const data = [];
    for (const line of block.split("\n")) {
      const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
      if (field === "event") name = value;
      else if (field === "data") data.push(value);
    }
    if (data.length) events.push([name, data.join("\n")]);
  }
  return [events, rest];
}

/** Follow a stream until `signal` aborts, over its ends and the server's.
 * `take(name, data)` gets each event; `standing(is live, what is wrong)` is told with each, and of losses. */
export async function follow(path, take, standing, signal) {
  for (let lost = 0; !signal.aborted; lost++) {
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    signal.addEventListener("abort", stop, { once: true });
    let silent = 0;
    const heard = () => {
      clearTimeout(silent);
      // While a person is asked for a token nothing is silent.
      silent = setTimeout(() => (asking ? heard() : stop()), SILENT_MS);
    };
    let wrong = "";
    let afterMs = 0;
    try {
      heard();
      const answer = await sent(path, { signal: attempt.signal });
      heard();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = "", events = []; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        heard();
        [events, rest] = eventsIn(rest + value);
        for (const [name, data] of events) {
          lost = 0;
          standing(true, "");
          const said = JSON.parse(data);
          // By itself: what a page does wrong is its own, and not the end of the stream.
          queueMicrotask(() => take(name, said));
        }
      }
    } catch (error) {
      wrong = error instanceof Refused ? error.message : "the admin API does not answer";
      afterMs = Math.min(1000 * (error.afterS ?? 0), PAUSE_MAX_MS);
    }
    clearTimeout(silent);
    signal.removeEventListener("abort", stop);
    if (signal.aborted) return;
    if (lost || wrong) standing(false, wrong);
    const pauseMs = PAUSES_MS[Math.min(lost, PAUSES_MS.length - 1)];
    await new Promise((go) => setTimeout(go, Math.max(pauseMs, afterMs)));
  }
}
