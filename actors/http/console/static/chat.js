// The Chat view: conversations with pictures, clips and recordings, or about what a camera or the screen shows.
//
// Messages go to /v1/chat/completions. While a camera or the screen is shown to a model that takes video, they
// go to a live session instead, which has read the frames before a question comes.

import { CodePanel } from "./code.js";
import { at, bytes, el, fill } from "./dom.js";
import { FrameSource, SDKError } from "./sdk/sensorium.js";
import { chatCode } from "./snippets.js";
import { server } from "./state.js";

const PART_OF = { image: "image_url", video: "video_url", audio: "input_audio" };
const TAKES = { image: "pictures", video: "clips", audio: "recordings" };
const AUDIO_FORMATS = { "audio/mpeg": "mp3", "audio/wav": "wav", "audio/x-wav": "wav", "audio/flac": "flac", "audio/ogg": "ogg", "audio/webm": "webm", "audio/mp4": "m4a", "audio/x-m4a": "m4a" };

let code;
let messages = []; // {role, content}, as they are sent; parts of media also have their `file`
let attached = []; // {file, kind, url}
let source = null; // the camera or the screen
let session = null; // that is shown it
let stopAnswer = null;

export function begin() {
  code = new CodePanel(at("chat-code"));
  at("chat-form").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  at("chat-text").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  at("chat-file").addEventListener("change", () => {
    attach(at("chat-file").files);
    at("chat-file").value = "";
  });
  at("chat-text").addEventListener("paste", (event) => attach(event.clipboardData.files));
  for (const place of [at("view-chat")]) {
    place.addEventListener("dragover", (event) => {
      event.preventDefault();
      at("chat-form").classList.add("over");
    });
    place.addEventListener("dragleave", () => at("chat-form").classList.remove("over"));
    place.addEventListener("drop", (event) => {
      event.preventDefault();
      at("chat-form").classList.remove("over");
      attach(event.dataTransfer.files);
    });
  }
  at("chat-camera").addEventListener("click", () => toggleSource("camera"));
  at("chat-screen").addEventListener("click", () => toggleSource("screen"));
  at("chat-screen").hidden = !navigator.mediaDevices?.getDisplayMedia;
  at("chat-camera").hidden = !navigator.mediaDevices?.getUserMedia;
  at("chat-stop").addEventListener("click", () => stopAnswer?.());
  at("chat-new").addEventListener("click", startAnew);
  at("chat-model").addEventListener("change", () => {
    showModel();
    if (source) useSource(source);
  });
  at("chat-form").addEventListener("input", showCode);
  showCode();
}

export function serverChanged() {
  const able = server.able("chat");
  // What hears takes one recording and no text: what chats freely comes first.
  able.sort((a, b) => a.abilities.includes("transcribe") - b.abilities.includes("transcribe"));
  fill(at("chat-model"), able.map((model) => [model.id, model.id]));
  at("chat-empty").hidden = able.length > 0;
  at("chat-empty").textContent = "None of this server’s models chats. Start it with one that does, as: sensorium serve Qwen/Qwen3-VL-2B-Instruct";
  at("chat-send").disabled = able.length === 0;
  showModel();
}

function modelNow() {
  return server.models.find((model) => model.id === at("chat-model").value);
}

function showModel() {
  const takes = modelNow()?.input_modalities ?? [];
  const sees = takes.includes("image") || takes.includes("video");
  at("chat-camera").disabled = at("chat-screen").disabled = !sees;
  const kinds = Object.keys(TAKES).filter((kind) => takes.includes(kind));
  at("chat-file").accept = kinds.map((kind) => `${kind}/*`).join(",");
  at("chat-file").disabled = kinds.length === 0;
  showCode();
}

/** The fields of a request beside its messages. Throws an SDKError for what is no JSON. */
function options() {
  const number = (id) => (at(id).value === "" ? undefined : Number(at(id).value));
  const found = {
    temperature: number("chat-temperature"),
    top_p: number("chat-top-p"),
    max_tokens: number("chat-max"),
    seed: number("chat-seed"),
    reasoning_effort: at("chat-reasoning").value || undefined,
  };
  const tools = at("chat-tools").value.trim();
  if (tools) {
    try {
      found.tools = JSON.parse(tools);
    } catch (error) {
      throw new SDKError(`Tools are no JSON: ${error.message}. Write a list of functions, or leave the field empty.`);
    }
  }
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
}

function withSystem() {
  const system = at("chat-system").value.trim();
  return system ? [{ role: "system", content: system }, ...messages] : messages;
}

function showCode() {
  let chosen = {};
  try {
    chosen = options();
  } catch {
    // half of a tool is typed in
  }
  const pending = messages.length ? withSystem() : [{ role: "user", content: at("chat-text").value || "What can you do?" }];
  code.show(chatCode(server.client.baseURL, server.hasKey, { model: at("chat-model").value, messages: pending, options: chosen, live: Boolean(session) }));
}

function attach(files) {
  const takes = modelNow()?.input_modalities ?? [];
  for (const file of files) {
    const kind = file.type.split("/")[0];
    if (!(kind in PART_OF)) note(`${file.name} is no picture, clip or recording.`, true);
    else if (!takes.includes(kind)) {
      const able = server.able("chat").filter((model) => model.input_modalities.includes(kind)).map((model) => model.id);
      note(`${at("chat-model").value} takes no ${TAKES[kind]}.${able.length ? ` Choose ${able.join(" or ")} under “Model and sampling”.` : ""}`, true);
    } else attached.push({ file, kind, url: URL.createObjectURL(file) });
  }
  showAttachments();
}

function showAttachments() {
  const items = attached.map((each) => {
    const remove = () => {
      attached = attached.filter((other) => other !== each);
      URL.revokeObjectURL(each.url);
      showAttachments();
    };
    const picture = each.kind === "image" ? el("img", { src: each.url, alt: "" }) : null;
    const button = el("button", { type: "button", class: "quiet", "aria-label": `Remove ${each.file.name}`, onclick: remove }, "×");
    return el("li", {}, picture, el("span", {}, `${each.file.name} · ${bytes(each.file.size)}`), button);
  });
  at("chat-attachments").replaceChildren(...items);
}

async function submit() {
  const text = at("chat-text").value.trim();
  if (stopAnswer || at("chat-send").disabled || (!text && !attached.length)) return;
  try {
    const files = attached;
    const parts = await Promise.all(files.map(partOf));
    if (source && !session && !files.length) {
      const file = await source.snapshot();
      const picture = { file: new File([file], "camera.jpg", { type: file.type }), kind: "image", url: URL.createObjectURL(file) };
      files.push(picture);
      parts.push(await partOf(picture));
    }
    if (text) parts.push({ type: "text", text });
    const message = { role: "user", content: parts.every((part) => part.type === "text") ? text : parts };
    attached = [];
    at("chat-text").value = "";
    showAttachments();
    showUser(text, files);
    messages.push(message);
    await answer();
  } catch (error) {
    failed(error);
  }
}

async function partOf({ file, kind }) {
  const data = await base64(file);
  const shown = { name: file.name, kind, type: file.type };
  if (kind === "audio") {
    const format = AUDIO_FORMATS[file.type] ?? file.name.split(".").at(-1);
    return { type: "input_audio", input_audio: { data, format }, file: shown };
  }
  return { type: PART_OF[kind], [PART_OF[kind]]: { url: `data:${file.type};base64,${data}` }, file: shown };
}

async function base64(file) {
  const read = new FileReader();
  await new Promise((resolve, reject) => {
    read.onload = resolve;
    read.onerror = () => reject(new SDKError(`${file.name} cannot be read: ${read.error.message}`));
    read.readAsDataURL(file);
  });
  return read.result.slice(read.result.indexOf(",") + 1);
}

/** Ask for the answer to the conversation as it is. */
async function answer() {
  const view = new AnswerView();
  const began = performance.now();
  let first = null;
  let usage = null;
  const noteFirst = () => (first ??= performance.now() - began);
  busy(true);
  try {
    if (session) usage = await answerLive(view, noteFirst);
    else usage = await answerChat(view, noteFirst);
  } catch (error) {
    view.failed(error.name === "AbortError" ? null : error);
    if (error.name !== "AbortError") server.failed(error);
  } finally {
    busy(false);
    stopAnswer = null;
  }
  if (view.text || view.calls.length) {
    const calls = view.calls.length ? { tool_calls: view.calls } : {};
    messages.push({ role: "assistant", content: view.text, ...calls });
  }
  const seconds = (performance.now() - began) / 1000;
  view.done({ first, seconds, usage, again: () => regenerate(view) });
  showCode();
}

async function answerChat(view, noteFirst) {
  const abort = new AbortController();
  stopAnswer = () => abort.abort();
  let usage = null;
  const sent = withSystem().map(({ role, content, ...rest }) => ({ role, content: sentContent(content), ...rest }));
  const pieces = server.client.chatStream(sent, { model: at("chat-model").value, ...options(), signal: abort.signal });
  for await (const piece of pieces) {
    if (piece.text || piece.reasoning || piece.toolCalls.length) noteFirst();
    view.add(piece);
    usage = piece.usage ?? usage;
  }
  return usage;
}

async function answerLive(view, noteFirst) {
  const question = messages.at(-1);
  const content = typeof question.content === "string" ? [{ type: "text", text: question.content }] : question.content;
  const { temperature, top_p, seed, max_tokens: most } = options();
  const chosen = Object.fromEntries(Object.entries({ temperature, top_p, seed, max_output_tokens: most }).filter(([, value]) => value !== undefined));
  const asked = session.ask(content.map(livePart), chosen);
  stopAnswer = () => asked.cancel();
  for await (const text of asked) {
    noteFirst();
    view.add({ text, reasoning: "", toolCalls: [] });
  }
  return (await asked.done).usage;
}

function livePart(part) {
  if (part.type === "text") return { type: "input_text", text: part.text };
  if (part.type === "image_url") return { type: "input_image", image_url: part.image_url.url };
  throw new SDKError("While the camera or the screen is shown, a question may have pictures: stop it to send clips and recordings.");
}

const sentContent = (content) => (typeof content === "string" ? content : content.map(({ file, ...part }) => part));

async function regenerate(view) {
  if (stopAnswer) return;
  while (messages.at(-1)?.role === "assistant") messages.pop();
  view.node.remove();
  try {
    await answer();
  } catch (error) {
    failed(error);
  }
}

function busy(isBusy) {
  at("chat-stop").hidden = !isBusy;
  at("chat-send").hidden = isBusy;
  at("chat-hint").hidden = true;
}

function startAnew() {
  stopAnswer?.();
  messages = [];
  for (const node of at("chat-log").querySelectorAll(".message")) node.remove();
  at("chat-hint").hidden = false;
  if (source) useSource(source);
  showCode();
}

function showUser(text, files) {
  const media = files.map(({ kind, url, file }) => {
    if (kind === "image") return el("img", { src: url, alt: file.name });
    return el(kind, { src: url, controls: true, "aria-label": file.name });
  });
  const node = el("div", { class: "message user" }, el("span", { class: "sr" }, "You"), media.length ? el("div", { class: "media" }, ...media) : null, text ? el("div", { class: "body" }, text) : null);
  at("chat-log").append(node);
  at("chat-hint").hidden = true;
  toEnd();
}

function toEnd() {
  at("chat-log").scrollTop = at("chat-log").scrollHeight;
}

/** Change the log, and stay at its end if the person is there. */
function follow(change) {
  const { scrollHeight, scrollTop, clientHeight } = at("chat-log");
  const isAtEnd = scrollHeight - scrollTop - clientHeight < 60;
  change();
  if (isAtEnd) toEnd();
}

function note(text, isWrong = false) {
  at("chat-log").append(el("p", { class: isWrong ? "message wrong" : "message hint" }, text));
  at("chat-hint").hidden = true;
  toEnd();
}

function failed(error) {
  server.failed(error);
  if (!(error instanceof SDKError)) console.error(error);
  note(error.message, true);
}

/** One answer of the model: its text in paragraphs and blocks of code, its reasoning folded, its calls. */
class AnswerView {
  text = "";
  calls = [];
  #body = el("div", { class: "body" });
  #tail = null; // the text node that grows
  #isCode = false;
  #line = "";
  #reasoning = null;
  #callNodes = [];
  #meta = el("div", { class: "meta" });

  constructor() {
    this.node = el("div", { class: "message" }, el("span", { class: "who" }, at("chat-model").value), this.#body, this.#meta);
    at("chat-log").append(this.node);
  }

  add({ text, reasoning, toolCalls }) {
    this.calls = toolCalls;
    follow(() => {
      if (reasoning) this.#reason(reasoning);
      this.text += text;
      for (const piece of text ? text.split(/(?<=\n)/) : []) this.#write(piece);
      for (const [index, call] of toolCalls.entries()) this.#showCall(index, call);
    });
  }

  done({ first, seconds, usage, again }) {
    const facts = [];
    if (first !== null) facts.push(`first words ${(first / 1000).toFixed(2)} s`);
    const num = usage?.completion_tokens ?? usage?.output_tokens;
    if (num) facts.push(`${num} tokens in ${seconds.toFixed(1)} s`);
    const cached = usage?.prompt_tokens_details?.cached_tokens ?? usage?.input_token_details?.cached_tokens;
    if (cached) facts.push(`${cached} of ${usage.prompt_tokens ?? usage.input_tokens} prompt tokens were computed before`);
    const button = el("button", { type: "button", class: "quiet", onclick: again }, "Regenerate");
    follow(() => this.#meta.replaceChildren(el("span", {}, facts.join(" · ")), button));
  }

  failed(error) {
    this.#body.append(el("p", { class: error ? "wrong" : "hint" }, error ? error.message : "Stopped."));
  }

  /** A piece without a line break but at its end. A line of ``` begins and ends a block of code. */
  #write(piece) {
    this.#line += piece;
    const isFence = /^\s*```/.test(this.#line);
    if (isFence && !this.#line.endsWith("\n")) return; // the rest of its line names a language
    if (isFence) {
      this.#isCode = !this.#isCode;
      this.#tail = null;
    } else if (!/^\s*`{0,2}$/.test(this.#line) || this.#line.endsWith("\n")) {
      const text = this.#shown === "" ? this.#line : piece;
      this.#node().appendData(text);
      this.#shown += text;
    }
    if (this.#line.endsWith("\n")) this.#line = this.#shown = "";
  }

  #shown = ""; // of the current line

  #node() {
    if (this.#tail) return this.#tail;
    this.#tail = document.createTextNode("");
    this.#body.append(this.#isCode ? el("pre", { tabIndex: 0 }, el("code", {}, this.#tail)) : this.#tail);
    return this.#tail;
  }

  #reason(text) {
    if (!this.#reasoning) {
      this.#reasoning = document.createTextNode("");
      this.#body.before(el("details", {}, el("summary", {}, "Reasoning"), this.#reasoning));
    }
    this.#reasoning.appendData(text);
  }

  #showCall(index, { function: called }) {
    let node = this.#callNodes[index];
    if (!node) {
      node = this.#callNodes[index] = el("pre", { tabIndex: 0, "aria-label": "Tool call" });
      this.#body.append(node);
    }
    node.textContent = `${called.name}(${called.arguments})`;
  }
}

async function toggleSource(kind) {
  const isOn = at(`chat-${kind}`).getAttribute("aria-pressed") === "true";
  endSource();
  if (isOn) return;
  try {
    const opened = await FrameSource.open(kind);
    opened.kind = kind;
    opened.onEnd(() => source === opened && endSource());
    at(`chat-${kind}`).setAttribute("aria-pressed", "true");
    opened.video.setAttribute("aria-label", `What the ${kind} shows`);
    at("chat-preview").replaceChildren(opened.video, el("p", { class: "hint", role: "status", id: "chat-watching" }));
    at("chat-preview").hidden = false;
    await useSource(opened);
  } catch (error) {
    endSource();
    failed(error);
  }
}

/** Show a live session what is seen; a model that takes single pictures gets one with each question. */
async function useSource(opened) {
  session?.close();
  session = null;
  source = opened;
  const model = modelNow();
  const say = (text) => (at("chat-watching").textContent = text);
  if (!model?.input_modalities.includes("video")) {
    say("A picture goes with each question.");
    return showCode();
  }
  const instructions = at("chat-system").value.trim() || null;
  const made = await server.client.realtime({ type: "realtime", model: model.id, instructions });
  if (source !== opened) return made.close();
  try {
    await opened.start(made);
  } catch (error) {
    made.close();
    throw error;
  }
  if (source !== opened) return made.close();
  session = made;
  say(`${model.id} watches. Ask about what it sees.`);
  made.on("connection.lost", () => say("The connection is lost. Trying again…"));
  made.on("connection.resumed", () => say(`${model.id} watches again.`));
  made.on("session.closed", ({ error }) => {
    if (session !== made || !error) return;
    endSource();
    failed(error);
  });
  showCode();
}

function endSource() {
  const ended = source;
  source = null;
  session?.close();
  session = null;
  ended?.stop();
  for (const kind of ["camera", "screen"]) at(`chat-${kind}`).setAttribute("aria-pressed", "false");
  at("chat-preview").replaceChildren();
  at("chat-preview").hidden = true;
  showCode();
}
