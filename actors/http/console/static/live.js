// The Live view: a microphone's speech as text while it is spoken.

import { CodePanel } from "./code.js";
import { at, copy, download, fill, languageChoices, languageName } from "./dom.js";
import { drawLines } from "./plot.js";
import { APIError, Microphone, SDKError } from "./sdk/sensorium.js";
import { liveCode } from "./snippets.js";
import { server } from "./state.js";
import { Transcript } from "./transcript.js";
import { Waveform } from "./waveform.js";

const CHOICES = ["live-device", "live-model", "live-language-choice", "live-delay", "live-turns", "live-recording"];
const BACKPRESSURE = "The network or the server is slower than your speech. Nothing is lost; text comes later.";

let waveform, transcript, code;
let microphone = null;
let session = null;
let isStopping = false;
let isWanted = false; // between Start and Stop, whatever becomes of sessions meanwhile
let numStarts = 0; // a microphone that is allowed after Stop belongs to a start that is over
let offset = 0; // seconds of earlier sessions in this transcript
let began = 0; // when the session's sound began, on performance.now()'s clock
const starts = new Map(); // seconds at which items begin
const spokenAt = new Map(); // when the speech of an item began, for its latency
const latencies = { first: [], final: [] };

export function begin() {
  waveform = new Waveform(at("wave"));
  transcript = new Transcript(at("live-transcript"), at("live-done"), at("live-open"));
  code = new CodePanel(at("live-code"));
  at("live-settings").open = matchMedia("(min-width: 48rem)").matches;
  at("live-toggle").addEventListener("click", () => (isWanted ? stop() : start()));
  at("live-commit").addEventListener("click", endTurn);
  at("live-clear").addEventListener("click", () => {
    transcript.clear();
    showTranscript();
  });
  for (const button of document.querySelectorAll("#view-live [data-save]")) {
    button.addEventListener("click", () => save(button.dataset.save, button));
  }
  for (const id of CHOICES) at(id).addEventListener("change", () => changed(id));
  addEventListener("keydown", (event) => {
    const isFree = event.target === document.body || event.target === at("live-transcript");
    if (event.code === "Space" && isFree && session && at("live-turns").value === "none") {
      event.preventDefault();
      endTurn();
    }
  });
  navigator.mediaDevices?.addEventListener?.("devicechange", listDevices);
  if (!navigator.mediaDevices) insecure();
  listDevices();
  showTranscript();
  showCode();
}

export function serverChanged() {
  const able = server.able("transcribe");
  fill(at("live-model"), able.map((model) => [model.id, model.id]));
  at("live-empty").hidden = able.length > 0;
  at("live-empty").textContent =
    "None of this server’s models transcribes. Start it with one that does, as: sensorium serve openai/whisper-base";
  at("live-toggle").disabled = able.length === 0 || !navigator.mediaDevices;
  showLanguages();
  showCode();
}

function changed(id) {
  if (id === "live-model") showLanguages();
  at("live-commit").hidden = at("live-turns").value !== "none";
  showCode();
  if (isWanted) say("The new setting is used from the next Start.");
}

function showLanguages() {
  fill(at("live-language-choice"), languageChoices(server.models.find((model) => model.id === at("live-model").value)));
}

function choices() {
  return {
    model: at("live-model").value,
    language: at("live-language-choice").value,
    delay: at("live-delay").value,
    turns: at("live-turns").value,
    recording: at("live-recording").value,
  };
}

function showCode() {
  code.show(liveCode(server.client.baseURL, server.hasKey, choices()));
}

function insecure() {
  at("live-toggle").disabled = true;
  const port = location.port || "80";
  say(
    "Browsers give microphone and camera to pages on https:// and on localhost only. Two ways out: put a proxy with a " +
      "certificate in front of the server (docs/operate.md, “Behind a proxy, with TLS”), or run " +
      `ssh -L ${port}:127.0.0.1:${port} ${location.hostname} and open http://localhost:${port}/console`,
    true,
  );
}

async function listDevices() {
  const devices = (await navigator.mediaDevices?.enumerateDevices?.()) ?? [];
  const found = devices.filter((device) => device.kind === "audioinput" && device.deviceId && device.deviceId !== "default");
  fill(at("live-device"), [["", "Default"], ...found.map((device, index) => [device.deviceId, device.label || `Microphone ${index + 1}`])]);
}

async function start() {
  isWanted = true;
  const number = ++numStarts;
  showButton();
  say("Waiting for the microphone…");
  try {
    const { recording } = choices();
    const deviceId = at("live-device").value;
    if (!(await listenTo(deviceId, recording))) return;
    listDevices(); // they have names once one of them may be used
    await connect();
  } catch (error) {
    if (number === numStarts && isWanted) await failed(error);
  }
}

/** Open the microphone. False if Stop came first: the browser may ask for permission meanwhile. */
async function listenTo(deviceId, recording) {
  const number = numStarts;
  const opened = await Microphone.open({ recording, ...(deviceId && { deviceId }) });
  if (number !== numStarts || !isWanted) {
    await opened.stop();
    return false;
  }
  microphone = opened;
  waveform.reset();
  microphone.onSamples((samples) => waveform.push(samples));
  return true;
}

async function connect() {
  say("Connecting…");
  const number = numStarts;
  const { model, language, delay, turns } = choices();
  const turnDetection = { server_vad: undefined, semantic_vad: { type: "semantic_vad" }, none: null }[turns];
  const opened = await server.client.realtime({
    model,
    language: language || null,
    delay: delay || null,
    turnDetection,
    timestampGranularities: ["word"],
    audioFormat: microphone.audioFormat,
  });
  if (number !== numStarts || !isWanted) return opened.close();
  session = opened;
  starts.clear();
  spokenAt.clear();
  offset = transcript.turns.at(-1)?.end ?? 0;
  began = microphone.beganAt;
  listen(opened);
  microphone.start(opened);
  say(microphone.label ? `Listening to ${microphone.label}.` : "Listening.");
}

function listen(opened) {
  const on = (type, listener) => opened.on(type, (event) => opened === session && listener(event));
  on("input_audio_buffer.speech_started", ({ item_id: id, audio_start_ms: start }) => {
    starts.set(id, start / 1000);
    const padding = opened.settings?.audio?.input?.turn_detection?.prefix_padding_ms ?? 0;
    spokenAt.set(id, began + start + (start > 0 ? padding : 0));
    waveform.turn(id, { start: start / 1000 });
  });
  on("input_audio_buffer.committed", ({ item_id: id, audio_start_ms: start, audio_end_ms: end }) => {
    if (start !== undefined) starts.set(id, start / 1000);
    spokenAt.set(`${id} end`, end === undefined ? performance.now() : began + end);
    waveform.turn(id, { start: starts.get(id) ?? 0, end: end === undefined ? waveform.seconds : end / 1000 });
  });
  on("conversation.item.input_audio_transcription.delta", ({ item_id: id, delta }) => {
    if (!delta) return;
    if (spokenAt.has(id)) measure("first", id);
    transcript.partial(id, offset + (starts.get(id) ?? waveform.seconds), delta);
    showTranscript();
  });
  on("conversation.item.input_audio_transcription.completed", (event) => {
    const { item_id: id, transcript: text, words = [], languages } = event;
    const start = starts.get(id) ?? 0;
    measure("final", `${id} end`);
    transcript.final(id, { start: offset + start, end: offset + start + (words.at(-1)?.end ?? 1), text, words });
    waveform.turn(id, { words: words.map((word) => ({ ...word, start: start + word.start })) });
    if (languages?.length) at("live-language").textContent = languages.map(({ code: each }) => languageName(each)).join(", ");
    for (const map of [starts, spokenAt]) map.delete(id);
    showTranscript();
  });
  on("conversation.item.input_audio_transcription.failed", ({ item_id: id, error }) => {
    transcript.drop(id);
    say(`A turn was not transcribed: ${error.message}`, true);
  });
  on("input_audio_buffer.backpressure", () => say(BACKPRESSURE, true));
  on("session.expiring", ({ seconds_left: left }) => say(`The server ends this session in ${Math.round(left)} s.`, true));
  on("error", ({ error }) => say(error.message ?? error.code, true));
  on("connection.lost", () => say("The connection is lost. What you say is kept, and sent when it is back.", true));
  on("connection.resumed", () => say("The connection is back. Nothing was lost."));
  on("session.closed", ({ error }) => error && !isStopping && again(error));
}

/** The session cannot go on: begin another one when the server answers, with the same microphone. */
async function again(error) {
  session = null;
  transcript.dropOpen();
  if (error.code === 1008) return failed(error); // refused by policy: too long, idle, a key that is gone
  say("The server is gone. What you say now is not kept; listening goes on when it answers again.", true);
  await server.refresh();
  await server.back();
  if (!isWanted) return;
  try {
    const { recording } = choices();
    await microphone.stop();
    if (await listenTo(at("live-device").value, recording)) await connect();
  } catch (failure) {
    await failed(failure);
  }
}

async function stop() {
  isWanted = false;
  isStopping = true;
  showButton();
  say("Finishing the last words…");
  const [ending, device] = [session, microphone];
  try {
    await device?.stop();
    if (ending && ending.state !== "closed") {
      await ending.finish({ timeoutMs: 30_000 });
      ending.close();
    }
    say("Press Start and speak.");
  } catch (error) {
    say(error.message, true);
  } finally {
    ending?.close();
    session = microphone = null;
    isStopping = false;
    transcript.dropOpen();
    showTranscript();
    showButton();
  }
}

async function failed(error) {
  isWanted = false;
  showButton();
  const [ending, device] = [session, microphone];
  session = microphone = null;
  ending?.close();
  await device?.stop().catch(() => {});
  server.failed(error);
  if (!(error instanceof SDKError)) console.error(error);
  const isBusy = error instanceof APIError && error.code === "too_many_sessions";
  say(isBusy ? `${error.message} Close another tab that listens, or start the server with a larger --max-sessions.` : error.message, true);
}

function endTurn() {
  session?.flush();
}

function measure(kind, key) {
  const since = spokenAt.get(key);
  if (since === undefined) return;
  spokenAt.delete(key);
  const seconds = Math.max(0, (performance.now() - since) / 1000);
  latencies[kind] = [...latencies[kind], seconds].slice(-40);
  at(`live-${kind}`).textContent = `${seconds.toFixed(2)} s`;
  drawLines(at("live-spark"), [latencies.first, latencies.final], { width: 120, height: 28 });
  const shown = Object.entries(latencies).map(([name, values]) => `${name} ${values.at(-1)?.toFixed(2) ?? "none"} s`);
  at("live-spark").setAttribute("aria-label", `Latency of the last turns: ${shown.join(", ")}`);
}

function showButton() {
  at("live-toggle").classList.toggle("recording", isWanted);
  at("live-verb").textContent = isWanted ? "Stop" : "Start";
  at("live-toggle").disabled = isStopping || server.able("transcribe").length === 0;
}

function showTranscript() {
  at("live-hint").hidden = !transcript.isEmpty;
  for (const button of document.querySelectorAll("#view-live [data-save]")) button.disabled = transcript.turns.length === 0;
}

function say(text, isWrong = false) {
  at("live-state").textContent = text;
  at("live-state").classList.toggle("wrong", isWrong);
}

function save(kind, button) {
  const name = `transcript-${new Date().toISOString().slice(0, 16).replace(/[T:]/g, "-")}.${kind}`;
  if (kind === "copy") copy(transcript.text, button);
  else if (kind === "txt") download(name, `${transcript.text}\n`, "text/plain");
  else download(name, transcript[kind], kind === "srt" ? "application/x-subrip" : "text/vtt");
}
