// The client of a server: models, metrics, transcripts of files, chats, and live sessions.
//
// Requests are OpenAI's (docs/files.md, docs/chat.md). Read next: realtime.js for sessions, http.js for bytes.

import { APIError, SDKError, SensoriumConnectionError } from "./errors.js";
import { eventsOf, send, textOf } from "./http.js";
import { parseMetrics } from "./metrics.js";
import { Session } from "./realtime.js";

const QUICK_MS = 30_000;
const SECRET_SECONDS = 60;
const OF_TRANSCRIPTION = {
  language: "language",
  languages: "languages",
  prompt: "prompt",
  keywords: "keywords",
  delay: "delay",
  timestampGranularities: "timestamp_granularities",
  numerals: "numerals",
  utteranceEndMs: "utterance_end_ms",
  leftContextMs: "left_context_ms",
  task: "task",
};
const OF_ANSWERS = {
  instructions: "instructions",
  maxOutputTokens: "max_output_tokens",
  temperature: "temperature",
  topP: "top_p",
  seed: "seed",
  tools: "tools",
  toolChoice: "tool_choice",
  reasoning: "reasoning",
  truncation: "truncation",
  video: "video",
};

export class Client {
  #fetch;
  #WebSocket;

  /**
   * `apiKey` is for trusted places: a browser asks for an ephemeral key with it before each session.
   * `ephemeralKey`, a text or a function that fetches one, opens live sessions and nothing else.
   */
  constructor({ baseURL, apiKey = null, ephemeralKey = null, fetch, WebSocket } = {}) {
    const base = new URL(baseURL ?? globalThis.location?.origin ?? "http://127.0.0.1:8000");
    if (!base.pathname.endsWith("/")) base.pathname += "/";
    base.pathname = base.pathname.replace(/v1\/$/, "");
    this.baseURL = base.href;
    this.apiKey = apiKey;
    this.ephemeralKey = ephemeralKey;
    this.#fetch = fetch;
    this.#WebSocket = WebSocket;
  }

  /** What each served model is called and can do. */
  async models() {
    return (await this.#json("GET", "v1/models")).data;
  }

  /** {status} of the server: "ok", or what keeps it from serving. */
  async health() {
    try {
      return await this.#json("GET", "health");
    } catch (error) {
      if (error instanceof APIError) return { status: error.code ?? "unavailable" };
      throw error;
    }
  }

  /** The samples of `/metrics`, as `parseMetrics` gives them. */
  async metrics() {
    return parseMetrics(await textOf(await this.#send("GET", "metrics", { timeoutMs: QUICK_MS })));
  }

  /** Transcribe a file (a Blob or File). Options are the form's fields, as {model, language, response_format}. */
  async transcribe(file, { signal, onUpload, ...fields } = {}) {
    const answer = await this.#transcription(file, fields, { signal, onUpload });
    const text = await textOf(answer);
    return answer.headers.get("content-type")?.startsWith("application/json") ? JSON.parse(text) : text;
  }

  /** Transcribe a file as an async iterable of events: deltas, segments where asked for, and `transcript.text.done`. */
  async *transcribeStream(file, { signal, onUpload, ...fields } = {}) {
    yield* eventsOf(await this.#transcription(file, { ...fields, stream: true }, { signal, onUpload }));
  }

  /** Answer a conversation; the body of the answer. Options are the fields of `/v1/chat/completions`. */
  async chat(messages, { signal, ...options } = {}) {
    return this.#json("POST", "v1/chat/completions", { body: { messages, ...options }, signal, timeoutMs: 0 });
  }

  /**
   * Answer a conversation as it is written: an async iterable of {text, reasoning, toolCalls, finishReason, usage}.
   *
   * `text` and `reasoning` are what a piece adds; `toolCalls` are all calls so far, as they grow.
   */
  async *chatStream(messages, { signal, ...options } = {}) {
    const body = { messages, stream: true, stream_options: { include_usage: true }, ...options };
    const answer = await this.#send("POST", "v1/chat/completions", { body, signal });
    const toolCalls = [];
    for await (const chunk of eventsOf(answer)) {
      const { delta = {}, finish_reason: finishReason = null } = chunk.choices?.[0] ?? {};
      for (const { index, id, function: called } of delta.tool_calls ?? []) {
        toolCalls[index] ??= { id, type: "function", function: { name: called?.name ?? "", arguments: "" } };
        toolCalls[index].function.arguments += called?.arguments ?? "";
      }
      yield {
        text: delta.content ?? "",
        reasoning: delta.reasoning_content ?? "",
        toolCalls,
        finishReason,
        usage: chunk.usage ?? null,
      };
    }
  }

  /** Make an ephemeral key for a browser or a device: {value, expires_at, session}. */
  async clientSecret(session, { seconds = 600, singleUse = false } = {}) {
    const expires = { anchor: "created_at", seconds };
    const body = { session, expires_after: expires, ...(singleUse && { single_use: true }) };
    return this.#json("POST", "v1/realtime/client_secrets", { body });
  }

  /**
   * Open a live session, which resolves when the server has accepted the settings.
   *
   * `type` is "transcription", or "realtime" for a session that answers. `audioFormat` is
   * {type: "audio/pcm", rate: 24000}, or {type: "audio/webm;codecs=opus"} and other containers.
   */
  async realtime({ type = "transcription", model, resume = true, ...options } = {}) {
    const update = { type: "session.update", session: sessionOf(type, model, options) };
    const address = new URL("v1/realtime", this.baseURL);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    address.searchParams.set("intent", type);
    if (model) address.searchParams.set("model", model);
    const connect = async () => {
      const WebSocket = this.#WebSocket ?? globalThis.WebSocket;
      if (!WebSocket) throw new SDKError("There is no WebSocket here: pass one as the option `WebSocket`.");
      return new WebSocket(address.href, await this.#subprotocols(type, model));
    };
    try {
      return await new Session({ connect, opening: update, resume }).open();
    } catch (error) {
      // A browser does not tell why a handshake failed: an answer to a plain request does.
      if (error instanceof SensoriumConnectionError) await this.#json("GET", "v1/models");
      throw error;
    }
  }

  async #subprotocols(type, model) {
    let key = this.ephemeralKey;
    if (typeof key === "function") key = await key();
    if (!key && this.apiKey) {
      const session = type === "realtime" ? { type, ...(model && { model }) } : { type };
      key = (await this.clientSecret(session, { seconds: SECRET_SECONDS })).value;
    }
    return key ? ["realtime", `openai-insecure-api-key.${key}`] : ["realtime"];
  }

  async #transcription(file, { translate = false, ...fields }, { signal, onUpload }) {
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) {
      if (value === undefined || value === null || value === "") continue;
      if (Array.isArray(value)) for (const each of value) form.append(`${name}[]`, each);
      else form.append(name, String(value));
    }
    form.append("file", file, file.name ?? "recording");
    const path = translate ? "v1/audio/translations" : "v1/audio/transcriptions";
    return this.#send("POST", path, { body: form, signal, progress: onUpload });
  }

  async #json(method, path, { timeoutMs = QUICK_MS, ...options } = {}) {
    return JSON.parse(await textOf(await this.#send(method, path, { ...options, timeoutMs })));
  }

  #send(method, path, { body, signal, progress, timeoutMs } = {}) {
    const headers = {};
    if (this.apiKey) headers.authorization = `Bearer ${this.apiKey}`;
    if (body && !(body instanceof FormData)) {
      headers["content-type"] = "application/json";
      body = JSON.stringify(body);
    }
    const url = new URL(path, this.baseURL).href;
    return send(url, { method, headers, body, signal, progress, timeoutMs, fetch: this.#fetch });
  }
}

/** The session object of the first `session.update`. Throws an SDKError for an option that does not exist. */
function sessionOf(type, model, { audioFormat, turnDetection, transcriptionModel, multichannel, ...options }) {
  const transcription = named(options, OF_TRANSCRIPTION);
  const answers = type === "realtime" ? named(options, OF_ANSWERS) : {};
  const known = type === "realtime" ? { ...OF_TRANSCRIPTION, ...OF_ANSWERS } : OF_TRANSCRIPTION;
  const unknown = Object.keys(options).filter((name) => !(name in known));
  if (unknown.length) {
    const allowed = [...Object.keys(known), "audioFormat", "turnDetection"].join(", ");
    throw new SDKError(`${unknown[0]} is no option of sessions of type ${type}; allowed: ${allowed}.`);
  }
  const heard = type === "transcription" ? model : transcriptionModel;
  if (heard) transcription.model = heard;
  const input = {};
  if (audioFormat) input.format = audioFormat;
  if (Object.keys(transcription).length) input.transcription = transcription;
  if (turnDetection !== undefined) input.turn_detection = turnDetection;
  if (multichannel) input.multichannel = true;
  return { type, ...answers, ...(Object.keys(input).length && { audio: { input } }) };
}

function named(options, names) {
  const given = Object.entries(names).filter(([name]) => options[name] !== undefined && options[name] !== null);
  return Object.fromEntries(given.map(([name, field]) => [field, options[name]]));
}
