// The admin page: looks at /admin/v1/state once a second and shows it; sends one prompt to several models side by side and shows their
// answers as they come. No library, nothing from elsewhere. What the server says is only ever set as text, never as HTML.
const LOOK = 1000;      // ms between two looks
const HISTORY = 300;    // looks kept: five minutes
const STRIPES = 60;     // of a variant's history as drawn
const RECENT = 6;       // looks that a rate is taken over
const MINUTE = 60;      // looks that percentiles are taken over
const COLOURS = 12;     // hues of the batch's bar

const $ = (id) => document.getElementById(id);
const history = new Map();  // variant → its last states, oldest first
const lines = new Map();    // figure → its last values
const counters = new Map(); // counter → how it stood at the last looks
let key = sessionStorage.getItem("admin-key") ?? "";
let asked = [];             // what stops the requests that run

function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  const { text, ...rest } = options;
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(rest)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const headers = () => (key ? { Authorization: `Bearer ${key}` } : {});

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit + 1 < units.length) { n /= 1024; unit += 1; }
  return `${n < 10 && unit ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

const number = (n, digits = 1) => (n === null || n === undefined ? "–" : n.toFixed(digits));
const milliseconds = (s) => (s === null || s === undefined ? "–" : s >= 10 ? `${s.toFixed(1)} s` : `${Math.round(s * 1000)} ms`);
const percent = (share) => `${(100 * share).toFixed(0)} %`;

function remember(map, name, value, count) {
  const kept = map.get(name) ?? [];
  kept.push(value);
  if (kept.length > count) kept.shift();
  map.set(name, kept);
  return kept;
}

function sparkline(values) {
  const top = Math.max(...values, 1e-9);
  const points = values.map((v, i) => `${(100 * i) / Math.max(values.length - 1, 1)},${20 - (19 * v) / top}`).join(" ");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 100 20");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", points);
  svg.append(line);
  return svg;
}

// Figures are made once and then changed, so that a screen reader and a selection stay where they are.
function figure(name, text, value) {
  const id = `figure-${name.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
  let shown = $(id);
  if (!shown) {
    shown = element("dd", { id }, element("span"));
    $("figures").append(element("div", {}, element("dt", { text: name }), shown));
  }
  shown.firstChild.textContent = text;
  if (value === undefined) return;
  const line = sparkline(remember(lines, name, value ?? 0, HISTORY));
  if (shown.childElementCount > 1) shown.lastChild.replaceWith(line);
  else shown.append(line);
}

// The rate of a counter over the last `RECENT` looks.
function rate(name, count) {
  const kept = remember(counters, name, { count, at: performance.now() }, RECENT);
  const [first, last] = [kept[0], kept[kept.length - 1]];
  return last.at > first.at ? (1000 * Math.max(last.count - first.count, 0)) / (last.at - first.at) : 0;
}

// Percentiles of what came into a histogram within the last minute; null: nothing did.
function percentiles(name, { bounds, counts }, shares) {
  const before = remember(counters, name, counts, MINUTE)[0];
  const fresh = counts.map((n, i) => Math.max(n - before[i], 0));
  const total = fresh.reduce((sum, n) => sum + n, 0);
  return shares.map((share) => {
    if (!total) return null;
    let below = 0;
    const i = fresh.findIndex((n) => (below += n) >= share * total);
    if (i >= bounds.length) return bounds[bounds.length - 1];
    const low = i ? bounds[i - 1] : 0;
    return low + ((bounds[i] - low) * (share * total - (below - fresh[i]))) / fresh[i];
  });
}

function showFigures(state) {
  const { engine } = state;
  const tokens = rate("tokens", engine.generated_tokens);
  const requests = rate("requests", state.requests);
  const kv = engine.kv_blocks ? engine.kv_blocks_used / engine.kv_blocks : 0;
  const [ttft50, ttft99] = percentiles("ttft", state.first_token_seconds, [0.5, 0.99]);
  const [itl50, itl99] = percentiles("itl", state.per_token_seconds, [0.5, 0.99]);
  figure("Tokens/s", number(tokens), tokens);
  figure("Requests/s", number(requests), requests);
  figure("Running", String(engine.running), engine.running);
  figure("Waiting", String(engine.waiting), engine.waiting);
  figure("KV cache in use", percent(kv), kv);
  figure("First token, p50", milliseconds(ttft50));
  figure("First token, p99", milliseconds(ttft99));
  figure("A token, p50", milliseconds(itl50));
  figure("A token, p99", milliseconds(itl99));
}

// The hue of a name is the same at every look.
function colour(name) {
  let sum = 0;
  for (const c of name) sum = (sum * 31 + c.codePointAt(0)) >>> 0;
  return `hsl(${(360 * (sum % COLOURS)) / COLOURS} 55% 50%)`;
}

function showBatch(batch) {
  const rows = batch.reduce((sum, group) => sum + group.rows, 0);
  $("batch-bar").setAttribute("aria-label", rows ? batch.map((g) => `${g.model}: ${g.rows} rows`).join(", ") : "The batch is empty");
  $("batch-bar").replaceChildren(...batch.map((group) => {
    const part = element("span", { title: `${group.model}: ${group.rows}` });
    part.style.flexGrow = group.rows;
    part.style.background = colour(group.model);
    return part;
  }));
  $("batch").replaceChildren(...(rows ? batch.map((group) => {
    const dot = element("span", { class: "dot" });
    dot.style.background = colour(group.model);
    return element("li", {}, dot, ` ${group.model}: ${group.rows}`);
  }) : [element("li", { text: "Nothing runs." })]));
}

const kinds = { resident: "resident", loading: "loading", host: "host", failed: "failed" };
const kind = (state) => kinds[state] ?? "registered";

function stripes(states) {
  const strip = element("div", { class: "history", role: "img" });
  const each = HISTORY / STRIPES;
  const count = Math.ceil(states.length / each);
  for (let i = 0; i < STRIPES - count; ++i) strip.append(element("span"));
  for (let i = 0; i < count; ++i) strip.append(element("span", { class: kind(states[Math.min(states.length - 1, Math.round((i + 1) * each) - 1)]) }));
  const share = states.filter((s) => s === "resident").length / states.length;
  strip.setAttribute("aria-label", `resident ${percent(share)} of the time looked at`);
  return strip;
}

function showVariants(variants, cache) {
  const tier = (name, t) => `${name} ${bytes(t.used_bytes)} of ${bytes(t.budget_bytes)} used` +
    (t.loading_bytes ? `, ${bytes(t.loading_bytes)} being loaded` : "");
  $("cache").textContent = tier("Memory for variants:", cache.device) + (cache.host.budget_bytes ? tier("; host memory:", cache.host) : "");
  const names = new Set(variants.map((v) => v.name));
  for (const name of history.keys()) if (!names.has(name)) history.delete(name);
  $("variants").replaceChildren(...variants.map((v) => {
    const states = remember(history, v.name, v.state, HISTORY);
    const cell = (text) => element("td", { class: "n", text });
    const state = element("td", {}, element("span", { class: `dot ${kind(v.state)}` }), ` ${v.state}`);
    if (v.error) state.title = v.error;
    return element("tr", {}, element("th", { scope: "row", text: v.pinned ? `${v.name} (pinned)` : v.name }), state,
      element("td", {}, stripes(states)), cell(v.bytes ? bytes(v.bytes) : "–"), cell(String(v.in_flight)), cell(String(v.waiting)),
      cell(number(v.requests_per_second, 2)));
  }));
}

// Boxes stay as they were ticked; the base is ticked at first.
function showModels(names) {
  const boxes = new Map([...$("models").querySelectorAll("input")].map((box) => [box.value, box]));
  if (boxes.size === names.length && names.every((name) => boxes.has(name))) return;
  $("models").replaceChildren(...names.map((name, i) => {
    const box = element("input", { type: "checkbox", name: "model", value: name });
    box.checked = boxes.get(name)?.checked ?? (boxes.size === 0 && i === 0);
    return element("label", {}, box, ` ${name}`);
  }));
}

async function look() {
  try {
    const answer = await fetch("/admin/v1/state", { headers: headers(), cache: "no-store" });
    $("key-form").hidden = answer.status !== 401 && !key;
    if (!answer.ok) {
      const said = await answer.json().catch(() => ({}));
      throw new Error(said.error?.message ?? `The server answers ${answer.status}.`);
    }
    const state = await answer.json();
    $("base").textContent = state.base.name;
    $("status").textContent = state.healthy ? "serving" : "the engine is not healthy";
    $("status").className = state.healthy ? "" : "error";
    showFigures(state);
    showBatch(state.batch);
    showVariants(state.variants, state.cache);
    showModels([state.base.name, ...state.variants.map((v) => v.name)]);
  } catch (error) {
    $("status").textContent = error instanceof TypeError ? "The server cannot be reached." : error.message;
    $("status").className = "error";
  }
  setTimeout(look, LOOK);
}

// The events of a stream, as their data.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    for (let end; (end = rest.indexOf("\n\n")) >= 0; rest = rest.slice(end + 2)) {
      const data = rest.slice(0, end).split("\n").filter((l) => l.startsWith("data: ")).map((l) => l.slice(6)).join("\n");
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

async function ask(model, stop) {
  const text = element("pre", { "aria-live": "polite" });
  const note = element("p", { text: "waiting …" });
  $("answers").append(element("article", { "data-model": model }, element("h3", { text: model }), text, note));
  const start = performance.now();
  let first = null, tokens = 0;
  try {
    const answer = await fetch("/admin/v1/playground", {
      method: "POST", signal: stop.signal, headers: { ...headers(), "Content-Type": "application/json" },
      body: JSON.stringify({
        model, messages: [{ role: "user", content: $("prompt").value }], stream: true, stream_options: { include_usage: true },
        max_completion_tokens: Number($("tokens").value), temperature: Number($("temperature").value),
      }),
    });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    for await (const event of events(answer)) {
      if (event.error) throw new Error(event.error.message);
      const piece = event.choices[0]?.delta?.content;
      if (piece) { first ??= performance.now(); text.append(piece); }
      if (event.usage) tokens = event.usage.completion_tokens;
    }
    const end = performance.now();
    note.textContent = `${tokens} tokens; first after ${milliseconds((first ?? end) / 1000 - start / 1000)}` +
      (tokens > 1 && end > first ? `, then ${number((1000 * (tokens - 1)) / (end - first))} tokens/s` : "");
  } catch (error) {
    note.textContent = error.name === "AbortError" ? "stopped" : error.message;
    if (error.name !== "AbortError") note.className = "error";
  }
}

$("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  const models = [...$("models").querySelectorAll("input:checked")].map((box) => box.value);
  $("ask-error").textContent = models.length ? "" : "Tick at least one model.";
  if (!models.length) return;
  for (const other of asked) other.abort();
  $("answers").replaceChildren();
  asked = models.map(() => new AbortController());
  const mine = asked;
  $("stop").disabled = false;
  await Promise.all(models.map((model, i) => ask(model, mine[i])));
  if (mine === asked) $("stop").disabled = true;
});
$("stop").addEventListener("click", () => asked.forEach((request) => request.abort()));
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim();
  sessionStorage.setItem("admin-key", key);
});
look();
