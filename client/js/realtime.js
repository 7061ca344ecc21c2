// Live sessions over a WebSocket: audio and pictures in, events out, and a lost connection that is resumed.
//
// A session transcribes (`type: "transcription"`) or answers (`type: "realtime"`). Its events are OpenAI's
// Realtime events (docs/sessions.md, docs/dialogues.md) and three of this module: `connection.lost`,
// `connection.resumed` and `session.closed`. Read next: resume.js.

import { APIError, SDKError, SensoriumConnectionError, SensoriumTimeoutError, SessionClosedError } from "./errors.js";
import { ResumeRefusedError, Resumption, waits } from "./resume.js";

const MAX_FRAME_BYTES = 256 * 1024;
const MAX_UNREAD_EVENTS = 4096;
const CONNECT_TIMEOUT_MS = 10_000;
const RECONNECT_TIMEOUT_MS = 5_000;
const STALLED_MS = 8_000;
/** Bytes that may wait in the WebSocket before `drained` holds a sender back. */
const SOCKET_BYTES = 256 * 1024;
/** Share of the server's backlog that a recording may run ahead of real time. */
const AHEAD_SHARE = 0.25;
const LOST_CODES = new Set([1001, 1006, 1014]);
const COMPLETED = "conversation.item.input_audio_transcription.completed";
const FAILED = "conversation.item.input_audio_transcription.failed";
const STATUSES = { model_not_found: 404, too_many_sessions: 503, draining: 503, unavailable: 503 };

const clock = () => performance.now();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Session {
  #connect;
  #socket = null;
  #state = "connecting";
  #listeners = new Map();
  #readers = new Set();
  #resumption;
  #format;
  #waiting = []; // frames from before the first connection is open
  #unfinished = new Set();
  #numFlushes = 0;
  #lastError = null;
  #notResumed = null;
  #pressureUntil = 0;
  #changed = [];
  #retryNow = null;
  #nextFrameAt = 0;
  #audioStart = null;
  #audioMs = 0;

  /** Use `client.realtime()`. `connect` gives a new WebSocket, `opening` is the first `session.update`. */
  constructor({ connect, opening, resume = true }) {
    this.#connect = connect;
    this.#resumption = new Resumption({ enabled: resume });
    this.#format = opening.session.audio?.input?.format ?? { type: "audio/pcm", rate: 24_000 };
    /** `session.created`'s session: id, limits, capabilities. */
    this.created = null;
    /** The settings in force. */
    this.settings = null;
    this.send(opening);
  }

  /** "connecting", "open", "lost" (being resumed) or "closed". */
  get state() {
    return this.#state;
  }

  /** Turns whose transcript has not come yet. */
  get numUnfinished() {
    return this.#unfinished.size;
  }

  /** Call `listener` for each event of a type, "*" for every event. Gives what takes it off again. */
  on(type, listener) {
    const listeners = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, listeners.add(listener));
    return () => listeners.delete(listener);
  }

  /** Every event from now on, until the session is closed. Throws what closed it, unless `close` did. */
  async *[Symbol.asyncIterator]() {
    const reader = { queue: [], wake: null };
    this.#readers.add(reader);
    try {
      for (;;) {
        while (reader.queue.length) {
          const event = reader.queue.shift();
          if (event instanceof SDKError) throw event;
          yield event;
          if (event.type !== "session.closed") continue;
          if (event.error) throw event.error;
          return;
        }
        if (this.#state === "closed") return;
        await new Promise((resolve) => (reader.wake = resolve));
      }
    } finally {
      this.#readers.delete(reader);
    }
  }

  /** Send an event of the client, as {type: "input_audio_buffer.commit"}. */
  send(event) {
    this.#transmit(JSON.stringify(event));
  }

  /** Send audio: an ArrayBuffer or a view, of whole samples or the next bytes of a container. */
  append(chunk) {
    for (const frame of framesOf(chunk)) this.#transmit(frame);
  }

  /**
   * Send a recording, with the bounds of the server kept: an ArrayBuffer, or chunks from an (async) iterable.
   *
   * `speed` 1 is the pace at which it was spoken. Without it a recording goes as fast as the server allows:
   * at most a quarter of its backlog ahead of real time.
   */
  async appendAll(chunks, { speed = null } = {}) {
    const parts = chunks instanceof ArrayBuffer || ArrayBuffer.isView(chunks) ? framesOf(chunks, 32_768) : chunks;
    for await (const chunk of parts) {
      this.#checkOpen();
      await this.drained();
      this.#audioStart ??= clock();
      const ahead = speed ? 0 : AHEAD_SHARE * (this.created?.limits?.max_backlog_ms ?? 60_000);
      const wait = this.#audioStart + this.#audioMs / (speed ?? 1) - ahead - clock();
      if (wait > 0) await sleep(wait);
      this.append(chunk);
      this.#audioMs += millisecondsOf(chunk, this.#format);
    }
  }

  /** Resolves when more may be sent: the connection is open and neither side has a backlog. */
  async drained() {
    for (;;) {
      this.#checkOpen();
      const isOpen = this.#state === "open" && this.#socket.bufferedAmount < SOCKET_BYTES;
      const wait = this.#pressureUntil - clock();
      if (isOpen && wait <= 0) return;
      await sleep(isOpen ? Math.min(wait, 500) : 20);
    }
  }

  /** End the turn here. */
  commit() {
    this.send({ type: "input_audio_buffer.commit" });
  }

  /** End a turn in progress at once, if there is one. */
  flush() {
    this.#numFlushes += 1;
    this.send({ type: "input_audio_buffer.flush" });
  }

  /** Forget the audio that is not committed. */
  clear() {
    this.send({ type: "input_audio_buffer.clear" });
  }

  /** No more audio comes: resolves when every turn has its transcript. */
  async finish({ timeoutMs = 60_000 } = {}) {
    this.flush();
    const end = clock() + timeoutMs;
    while (this.#numFlushes > 0 || this.#unfinished.size > 0) {
      this.#checkOpen();
      const left = end - clock();
      if (left <= 0) {
        throw new SensoriumTimeoutError(`No transcript of the last turn came within ${timeoutMs / 1000} s.`);
      }
      await this.#change(left);
    }
  }

  /** Close the session. What has not come yet does not come any more. */
  close() {
    if (this.#state === "closed") return;
    const socket = this.#socket;
    this.#end(null);
    socket?.close(1000);
  }

  /** Ask in a session that answers: a text, or the content parts of an item. Gives an `Answer`. */
  ask(content, response = {}) {
    const id = `ask_${Math.random().toString(36).slice(2)}`;
    const parts = typeof content === "string" ? [{ type: "input_text", text: content }] : content;
    const answer = new Answer(this, id);
    const metadata = { ...response.metadata, question: id };
    const item = { type: "message", role: "user", content: parts };
    this.send({ type: "conversation.item.create", event_id: `${id}_item`, item });
    this.send({ type: "response.create", event_id: id, response: { ...response, metadata } });
    return answer;
  }

  /**
   * Show a frame of live video: the bytes of a JPEG, PNG or WebP file. False if it came too soon to be sent.
   *
   * `timestampMs` is on a clock of your own; frames beyond the server's `max_fps` are left out.
   */
  sendFrame(picture, timestampMs = clock()) {
    const fps = this.created?.limits?.max_fps ?? 0;
    if (!fps) throw new SDKError("This session takes no frames: serve a model that takes video.");
    if (this.#state !== "open" || clock() < this.#nextFrameAt) return false;
    if (this.#socket.bufferedAmount > SOCKET_BYTES) return false;
    this.#nextFrameAt = clock() + 1000 / fps;
    this.send({ type: "input_image_buffer.append", timestamp_ms: Math.max(0, Math.round(timestampMs)) });
    this.#transmit(bufferOf(picture));
    return true;
  }

  /** Open the first connection; for `client.realtime()`. Resolves when the server has accepted the settings. */
  async open() {
    try {
      await this.#attach(await this.#connect(), null, CONNECT_TIMEOUT_MS);
    } catch (error) {
      this.#end(error);
      throw error;
    }
    return this;
  }

  #transmit(frame) {
    this.#checkOpen();
    this.#resumption.sent(frame);
    if (this.#state === "open") this.#socket.send(frame);
    else if (this.#state === "connecting") this.#waiting.push(frame);
  }

  #checkOpen() {
    if (this.#state !== "closed") return;
    throw this.error ?? new SDKError("The session is closed: open another one.");
  }

  /** Use a new WebSocket; resolves when the session is in force on it. `resumption` asks to go on with it. */
  #attach(socket, resumption, timeoutMs) {
    return new Promise((resolve, reject) => {
      let isSettled = false;
      const fail = (error) => {
        if (isSettled) return;
        isSettled = true;
        clearTimeout(timer);
        socket.onmessage = socket.onclose = socket.onerror = null;
        socket.close();
        reject(error);
      };
      const settle = () => {
        isSettled = true;
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(
        () => fail(new SensoriumTimeoutError(`The server did not open the session within ${timeoutMs / 1000} s.`)),
        timeoutMs,
      );
      const begin = (frames) => {
        this.#socket = socket;
        this.#state = "open";
        for (const frame of frames) socket.send(frame);
        this.#watch(socket);
      };
      socket.binaryType = "arraybuffer";
      socket.onopen = () => {
        if (this.#state === "closed") return fail(new SDKError("The session was closed."));
        if (resumption) socket.send(resumption.request());
        else begin(this.#waiting.splice(0));
      };
      socket.onmessage = ({ data }) => {
        let event;
        try {
          event = JSON.parse(data);
          if (!isSettled && resumption) {
            const frames = resumption.answer(event);
            if (frames === null) return; // the greeting of the connection
            begin(frames);
            settle();
            this.#receive(event);
            return;
          }
          if (!isSettled) {
            if (event.type === "error") throw refusalOf(event.error);
            this.#receive(event);
            if (event.type === "session.updated") settle();
            return;
          }
        } catch (error) {
          if (!isSettled) fail(error);
          return;
        }
        if (socket === this.#socket) this.#receive(event);
      };
      // Node's says nothing more of a connection that did not come about; a browser's closes it.
      socket.onerror = () => setTimeout(() => fail(new SensoriumConnectionError("No connection came about.")), 100);
      socket.onclose = ({ code, reason }) => {
        if (!isSettled) {
          const refused = reason ? `: ${reason}` : "";
          fail(new SensoriumConnectionError(`The connection was closed as the session began (${code}${refused}).`));
        } else if (socket === this.#socket) this.#lost(code, reason);
      };
    });
  }

  #lost(code, reason) {
    if (this.#state === "closed") return;
    if (this.#resumption.graceS > 0 && LOST_CODES.has(code)) {
      this.#state = "lost";
      this.#emit({ type: "connection.lost", code, grace_s: this.#resumption.graceS });
      this.#resume(code, reason);
    } else {
      this.#end(this.#closedError(code, reason));
    }
  }

  async #resume(code, reason) {
    const end = clock() + 1000 * this.#resumption.graceS;
    this.#notResumed = "no server answered in time";
    const now = () => this.#retryNow?.();
    globalThis.addEventListener?.("online", now);
    try {
      for (const wait of waits(this.#resumption.graceS)) {
        await new Promise((resolve) => {
          this.#retryNow = resolve;
          setTimeout(resolve, 1000 * wait);
        });
        if (this.#state === "closed" || clock() > end) break;
        try {
          await this.#attach(await this.#connect(), this.#resumption, RECONNECT_TIMEOUT_MS);
          this.#notResumed = null;
          return;
        } catch (error) {
          if (error instanceof ResumeRefusedError || error instanceof APIError) {
            this.#notResumed = error.message;
            if (error.isFinal || error.status === 401 || error.status === 403) break;
          } else if (!(error instanceof SDKError)) throw error;
        }
      }
    } finally {
      globalThis.removeEventListener?.("online", now);
    }
    this.#end(this.#closedError(code, reason));
  }

  /** A network that is gone closes nothing: what is sent stays in the socket. Take that for a lost connection. */
  #watch(socket) {
    let least = 0;
    let since = clock();
    const timer = setInterval(() => {
      if (socket !== this.#socket || this.#state !== "open") return clearInterval(timer);
      const waiting = socket.bufferedAmount;
      if (waiting === 0 || waiting < least) since = clock();
      least = waiting;
      if (clock() - since < STALLED_MS) return;
      clearInterval(timer);
      socket.onclose = socket.onmessage = null;
      socket.close();
      this.#lost(1006, "nothing is taken any more");
    }, 1000);
    timer.unref?.();
  }

  #closedError(code, reason) {
    const numUnfinished = this.#unfinished.size;
    const details = { numUnfinished, lastError: this.#lastError, notResumed: this.#notResumed };
    return new SessionClosedError(code, reason, details);
  }

  #end(error) {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.error = error;
    this.#resumption.forgo();
    this.#waiting = [];
    this.#retryNow?.();
    this.#emit({ type: "session.closed", error });
  }

  #receive(event) {
    if (!this.#resumption.arrived(event)) return;
    switch (event.type) {
      case "session.created":
        this.created = event.session;
        break;
      case "session.updated":
        this.settings = event.session;
        break;
      case "session.resumed":
        event = { type: "connection.resumed", received_events: event.received_events };
        break;
      case "input_audio_buffer.committed":
        this.#unfinished.add(event.item_id);
        break;
      case "input_audio_buffer.flushed":
        if (!event.channel) this.#numFlushes = Math.max(0, this.#numFlushes - 1);
        break;
      case "input_audio_buffer.backpressure":
        this.#pressureUntil = clock() + event.buffered_ms / 4;
        break;
      case COMPLETED:
      case FAILED:
        this.#unfinished.delete(event.item_id);
        break;
      case "error":
        this.#lastError = event.error.message ?? event.error.code;
        if (["frame_rate_exceeded", "input_image_buffer_overflow"].includes(event.error.code)) {
          this.#nextFrameAt = clock() + 2000;
        }
        break;
    }
    this.#emit(event);
  }

  #emit(event) {
    for (const listener of [...(this.#listeners.get(event.type) ?? []), ...(this.#listeners.get("*") ?? [])]) {
      listener(event);
    }
    for (const reader of this.#readers) {
      if (reader.queue.length === MAX_UNREAD_EVENTS) {
        reader.queue = [new SDKError(`${MAX_UNREAD_EVENTS} events were not read: read them faster.`)];
      } else if (!(reader.queue[0] instanceof SDKError)) reader.queue.push(event);
      reader.wake?.();
    }
    for (const wake of this.#changed.splice(0)) wake();
  }

  #change(timeoutMs) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, timeoutMs);
      this.#changed.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }
}

/** One answer of a session that answers: iterate it for pieces of text, await `done` for all of it. */
export class Answer {
  #session;
  #queue = [];
  #wake = null;
  #off;
  #responseId = null;
  #resolve;
  #reject;

  constructor(session, id) {
    this.#session = session;
    this.text = "";
    this.isDone = false;
    /** Resolves with {text, status, usage, output}; rejects with an APIError if the question was refused. */
    this.done = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.done.catch(() => {}); // iterating throws it, too
    this.#off = session.on("*", (event) => this.#receive(event, id));
  }

  /** End the answer here. */
  cancel() {
    if (this.isDone) return;
    this.#session.send({ type: "response.cancel", ...(this.#responseId && { response_id: this.#responseId }) });
  }

  async *[Symbol.asyncIterator]() {
    for (;;) {
      while (this.#queue.length) yield this.#queue.shift();
      if (this.isDone) {
        await this.done;
        return;
      }
      await new Promise((resolve) => (this.#wake = resolve));
    }
  }

  #receive(event, id) {
    const isOurs = event.response_id && event.response_id === this.#responseId;
    if (event.type === "response.created" && event.response.metadata?.question === id) {
      this.#responseId = event.response.id;
    } else if (event.type === "response.output_text.delta" && isOurs) {
      this.text += event.delta;
      this.#queue.push(event.delta);
    } else if (event.type === "response.done" && event.response.id === this.#responseId) {
      const { status, status_details: details, usage, output } = event.response;
      if (status === "failed") {
        const { code = null, message = "The answer failed." } = details?.error ?? {};
        this.#finish(() => this.#reject(new APIError(500, code, null, message)));
      } else this.#finish(() => this.#resolve({ text: this.text, status, usage, output }));
    } else if (event.type === "error" && [id, `${id}_item`].includes(event.error.event_id)) {
      this.#finish(() => this.#reject(refusalOf(event.error)));
    } else if (event.type === "session.closed") {
      this.#finish(() => this.#reject(event.error ?? new SDKError("The session was closed.")));
    }
    this.#wake?.();
  }

  #finish(settle) {
    this.isDone = true;
    this.#off();
    settle();
  }
}

function refusalOf({ code = null, param = null, message = "The server refused." }) {
  return new APIError(STATUSES[code] ?? 400, code, param, message);
}

function* framesOf(chunk, size = MAX_FRAME_BYTES) {
  const whole = bufferOf(chunk);
  for (let start = 0; start < whole.byteLength; start += size) {
    yield whole.byteLength <= size ? whole : whole.slice(start, start + size);
  }
}

/** The bytes of a buffer or a view as a buffer that nothing else writes to. */
function bufferOf(chunk) {
  if (chunk instanceof ArrayBuffer) return chunk;
  if (ArrayBuffer.isView(chunk)) return chunk.buffer.slice(chunk.byteOffset, chunk.byteOffset + chunk.byteLength);
  throw new TypeError("Audio and frames are an ArrayBuffer or a view of one, as an Int16Array.");
}

/** How long raw samples last; 0 for a container, whose bytes do not tell. */
function millisecondsOf(chunk, { type, rate = 24_000, channels = 1 }) {
  if (type === "audio/pcm") return (500 * chunk.byteLength) / rate / channels;
  return type === "audio/pcmu" || type === "audio/pcma" ? chunk.byteLength / 8 / channels : 0;
}
