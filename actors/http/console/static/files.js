// The Files view: recordings and films as text, with the words marked while they are played, and as subtitles.

import { CodePanel } from "./code.js";
import { at, bytes, copy, download, el, fill, languageChoices, languageName, minutes } from "./dom.js";
import { cues, SDKError, toSRT, toVTT } from "./sdk/sensorium.js";
import { filesCode } from "./snippets.js";
import { server } from "./state.js";

let code;
let lastFile = "speech.wav";
const queue = [];
let isRunning = false;

export function begin() {
  code = new CodePanel(at("files-code"));
  const drop = at("files-drop");
  at("files-input").addEventListener("change", () => {
    add(at("files-input").files);
    at("files-input").value = "";
  });
  for (const type of ["dragover", "dragenter"]) {
    drop.addEventListener(type, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    add(event.dataTransfer.files);
  });
  at("files-model").addEventListener("change", showOptions);
  for (const id of ["files-language", "files-task", "files-prompt"]) at(id).addEventListener("input", showCode);
  showCode();
}

export function serverChanged() {
  const able = server.able("transcribe");
  fill(at("files-model"), able.map((model) => [model.id, model.id]));
  at("files-empty").hidden = able.length > 0;
  at("files-empty").textContent =
    "None of this server’s models transcribes. Start it with one that does, as: sensorium serve openai/whisper-base";
  at("files-input").disabled = able.length === 0;
  showOptions();
}

function showOptions() {
  const model = server.models.find((each) => each.id === at("files-model").value);
  fill(at("files-language"), languageChoices(model));
  const canTranslate = Boolean(model?.abilities.includes("translate"));
  at("files-task").closest("label").hidden = !canTranslate;
  if (!canTranslate) at("files-task").value = "transcribe";
  showCode();
}

function choices() {
  return {
    model: at("files-model").value,
    language: at("files-language").value,
    keywords: at("files-prompt").value.split(",").map((each) => each.trim()).filter(Boolean),
    task: at("files-task").value,
  };
}

function showCode() {
  code.show(filesCode(server.client.baseURL, server.hasKey, { file: lastFile, ...choices() }));
}

function add(files) {
  for (const file of files) {
    const job = new Job(file, choices());
    at("files-list").prepend(job.node);
    queue.push(job);
    lastFile = file.name;
  }
  showCode();
  run();
}

/** One file after the other: the server has others to serve. */
async function run() {
  if (isRunning) return;
  isRunning = true;
  while (queue.length) await queue.shift().run();
  isRunning = false;
}

class Job {
  #file;
  #choices;
  #abort = new AbortController();
  #state = el("p", { role: "status", class: "hint" }, "Waiting");
  #progress = el("progress", { max: 1, value: 0, "aria-label": "Progress" });
  #text = document.createTextNode("");
  #words = []; // {word, start, end, from, to}: where a word stands in the text
  #segments = [];
  #player = null;
  #cancel;

  constructor(file, chosen) {
    this.#file = file;
    this.#choices = chosen;
    this.#cancel = el("button", { type: "button", class: "quiet", onclick: () => this.#abort.abort() }, "Cancel");
    const head = el("div", { class: "job-head" }, el("h2", {}, file.name), el("span", { class: "hint" }, bytes(file.size)));
    this.node = el("article", { class: "card job", role: "listitem" }, head, this.#progress, this.#state, this.#cancel);
  }

  async run() {
    if (this.#abort.signal.aborted) return this.#end("Cancelled");
    try {
      await this.#transcribe();
    } catch (error) {
      if (this.#abort.signal.aborted) return this.#end("Cancelled");
      server.failed(error);
      if (!(error instanceof SDKError)) console.error(error);
      this.#end(error.message, true);
    }
  }

  async #transcribe() {
    this.#addPlayer();
    const { model, language, keywords, task } = this.#choices;
    const began = performance.now();
    this.#say("Uploading");
    let last = {};
    const events = server.client.transcribeStream(this.#file, {
      model,
      language,
      keywords,
      translate: task === "translate",
      response_format: "verbose_json",
      timestamp_granularities: ["segment", "word"],
      signal: this.#abort.signal,
      onUpload: (sent, all) => this.#uploaded(sent / all),
    });
    for await (const event of events) {
      if (event.type === "transcript.text.segment") this.#add(event);
      else if (event.type === "transcript.text.done") last = event;
    }
    if (!this.#text.data) this.#text.data = last.text?.trim() ?? "";
    const seconds = (performance.now() - began) / 1000;
    const languages = (last.languages ?? []).map(({ code: each }) => languageName(each)).join(", ");
    const pace = last.duration ? `${minutes(last.duration)} in ${seconds.toFixed(1)} s` : `${seconds.toFixed(1)} s`;
    this.#end([pace, languages, this.#text.data ? "" : "no speech found"].filter(Boolean).join(" · "));
    this.#addButtons();
  }

  #uploaded(share) {
    this.#progress.value = share / 4;
    if (share < 1) return this.#say(`Uploading: ${Math.round(100 * share)} %`);
    this.#say("Transcribing");
    if (!this.#player?.duration) this.#progress.removeAttribute("value");
  }

  #add(segment) {
    this.#segments.push(segment);
    let text = segment.text.trim();
    if (this.#text.data) text = ` ${text}`;
    const from = this.#text.data.length;
    this.#text.appendData(text);
    let place = from;
    for (const word of segment.words ?? []) {
      const found = this.#text.data.indexOf(word.word.trim(), place);
      if (found < 0) continue;
      place = found + word.word.trim().length;
      this.#words.push({ ...word, from: found, to: place });
    }
    const duration = this.#player?.duration;
    if (duration) {
      this.#progress.value = 0.25 + 0.75 * Math.min(1, segment.end / duration);
      this.#say(`Transcribing: ${minutes(segment.end)} of ${minutes(duration)}`);
    } else this.#say(`Transcribing: ${minutes(segment.end)}`);
  }

  #addPlayer() {
    const isVideo = this.#file.type.startsWith("video/");
    this.#player = el(isVideo ? "video" : "audio", { controls: true, preload: "metadata", src: URL.createObjectURL(this.#file) });
    const text = el("div", { class: "words", tabIndex: 0, role: "region", "aria-label": `Transcript of ${this.#file.name}` }, this.#text);
    this.#player.addEventListener("error", () => (this.#player.hidden = true)); // the server reads more formats
    new WordMarker(this.#player, text, this.#text, this.#words);
    this.node.append(this.#player, text);
  }

  #addButtons() {
    const name = this.#file.name.replace(/\.[^.]+$/, "");
    const timed = this.#words.length ? this.#words : this.#segments;
    const copying = el("button", { type: "button", onclick: () => copy(this.#text.data, copying) }, "Copy");
    const save = (label, ending, text, type) =>
      el("button", { type: "button", onclick: () => download(`${name}.${ending}`, text(), type) }, label);
    const row = el(
      "div",
      { class: "toolbar", role: "group", "aria-label": `Transcript of ${this.#file.name}` },
      copying,
      save("Text", "txt", () => `${this.#text.data}\n`, "text/plain"),
      save("SRT", "srt", () => toSRT(cues(timed)), "application/x-subrip"),
      save("VTT", "vtt", () => toVTT(cues(timed)), "text/vtt"),
    );
    this.node.append(row);
  }

  #say(text) {
    if (this.#state.textContent !== text) this.#state.textContent = text;
  }

  #end(text, isWrong = false) {
    this.#say(text);
    this.#state.classList.toggle("wrong", isWrong);
    this.#progress.hidden = true;
    this.#cancel.hidden = true;
    if (isWrong && this.#player) this.#player.hidden = true;
  }
}

/** Marks the word that is played, by a highlight of its text: no element for each word. A click plays from there. */
class WordMarker {
  #words;
  #text;
  #player;
  #host;
  #marked = null;

  constructor(player, host, text, words) {
    [this.#player, this.#host, this.#text, this.#words] = [player, host, text, words];
    player.addEventListener("play", () => this.#follow());
    player.addEventListener("seeked", () => this.#mark());
    host.addEventListener("click", (event) => this.#seek(event));
  }

  #follow() {
    this.#mark();
    if (!this.#player.paused && this.#player.isConnected) requestAnimationFrame(() => this.#follow());
  }

  #mark() {
    const now = this.#player.currentTime;
    const word = this.#words.findLast((each) => each.start <= now);
    if (word === this.#marked || !globalThis.Highlight) return;
    this.#marked = word;
    CSS.highlights.delete("spoken");
    if (!word || now > word.end + 1) return;
    const range = new Range();
    range.setStart(this.#text, word.from);
    range.setEnd(this.#text, word.to);
    CSS.highlights.set("spoken", new Highlight(range));
    const [box, view] = [range.getBoundingClientRect(), this.#host.getBoundingClientRect()];
    if (box.bottom > view.bottom || box.top < view.top) this.#host.scrollTop += box.top - view.top - view.height / 3;
  }

  #seek(event) {
    if (!getSelection().isCollapsed) return;
    const place = document.caretPositionFromPoint?.(event.clientX, event.clientY)?.offset ?? getSelection().anchorOffset;
    const word = this.#words.find((each) => each.to >= place);
    if (!word) return;
    this.#player.currentTime = word.start;
    this.#player.play();
  }
}
