// The Server view: what is served and what each model can do, and how busy the server is, from /metrics.

import { CodePanel } from "./code.js";
import { at, bytes, el, languageName } from "./dom.js";
import { Plot } from "./plot.js";
import { quantile, total } from "./sdk/sensorium.js";
import { serverCode } from "./snippets.js";
import { server } from "./state.js";

const EVERY_MS = 2000;
const MAX_LANGUAGES = 6;

const seconds = (value) => (value < 0.1 ? `${(1000 * value).toFixed(value < 0.01 ? 1 : 0)} ms` : `${value.toFixed(2)} s`);
const percent = (value) => `${Math.round(100 * value)} %`;
const rate = (value) => (value < 10 ? value.toFixed(1) : String(Math.round(value)));
const both = (before, after, name) => [quantile(before, after, name, 0.5), quantile(before, after, name, 0.95)];

function perSecond(before, after, name, elapsed) {
  const [earlier, now] = [before && total(before, name), total(after, name)];
  return earlier === null || now === null || !elapsed ? null : Math.max(0, now - earlier) / elapsed;
}

/** Each plot, and its values from two scrapes. */
const PLOTS = [
  [new Plot("Live sessions"), (_, now) => [total(now, "sensorium_sessions_active")]],
  [new Plot("Requests: running, waiting", { num: 2 }), (_, now) => [total(now, "sensorium_requests_running"), total(now, "sensorium_requests_waiting")]],
  [new Plot("Tokens a second", { format: rate }), (before, now, elapsed) => [perSecond(before, now, "sensorium_decode_tokens_total", elapsed)]],
  [new Plot("First partial", { num: 2, format: seconds, note: "median, p95" }), (before, now) => both(before, now, "sensorium_first_partial_seconds")],
  [new Plot("Final transcript", { num: 2, format: seconds, note: "median, p95" }), (before, now) => both(before, now, "sensorium_final_seconds")],
  [new Plot("First token", { num: 2, format: seconds, note: "median, p95" }), (before, now) => both(before, now, "sensorium_time_to_first_token_seconds")],
  [new Plot("Device busy", { format: percent }), (before, now, elapsed) => [perSecond(before, now, "sensorium_engine_busy_seconds_total", elapsed)]],
  [new Plot("KV blocks in use", { format: percent }), (_, now) => [usedShare(now)]],
  [new Plot("Memory: models, front end", { num: 2, format: bytes }), (_, now) => [total(now, "sensorium_engine_process_resident_memory_bytes"), total(now, "process_resident_memory_bytes")]],
];

function usedShare(now) {
  const [free, all] = [total(now, "sensorium_kv_blocks_free"), total(now, "sensorium_kv_blocks")];
  return free === null || !all ? null : 1 - free / all;
}

let isShown = false;
let timer = null;
let before = null;
let beforeAt = 0;
let code;

export function begin() {
  at("server-plots").append(...PLOTS.map(([plot]) => plot.node));
  code = new CodePanel(at("server-code"));
  document.addEventListener("visibilitychange", () => shown(isShown));
}

export function shown(is) {
  isShown = is;
  clearTimeout(timer);
  if (isShown && !document.hidden) look();
}

export function serverChanged() {
  at("server-models").replaceChildren(...server.models.map(row));
  code.show(serverCode(server.client.baseURL, server.hasKey));
}

function row(model) {
  const name = el("td", {}, el("strong", {}, model.id), model.root && model.root !== model.id ? ` → ${model.root}` : "");
  const cell = (text) => el("td", {}, text);
  return el(
    "tr",
    {},
    name,
    cell(model.abilities.join(", ")),
    cell(model.input_modalities.join(", ")),
    cell(model.max_model_len ? `${model.max_model_len.toLocaleString("en")} tokens` : "–"),
    cell(languagesOf(model)),
  );
}

function languagesOf({ languages = [] }) {
  if (!languages.length) return "–";
  const names = languages.slice(0, MAX_LANGUAGES).map(languageName).join(", ");
  return languages.length > MAX_LANGUAGES ? `${names} and ${languages.length - MAX_LANGUAGES} more` : names;
}

async function look() {
  clearTimeout(timer);
  try {
    const now = await server.client.metrics();
    const time = performance.now();
    for (const [plot, read] of PLOTS) plot.push(...read(before, now, before ? (time - beforeAt) / 1000 : 0));
    [before, beforeAt] = [now, time];
    at("server-age").textContent = `every ${EVERY_MS / 1000} s`;
  } catch (error) {
    at("server-age").textContent = error.message;
    server.failed(error);
  }
  if (isShown && !document.hidden) timer = setTimeout(look, EVERY_MS);
}
