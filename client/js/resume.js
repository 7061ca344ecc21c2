// What a client remembers to go on with a session whose connection was lost, without sockets or clock.
//
// Everything that is sent is numbered by its order, and the newest of it is kept. The server says how many
// frames it has taken in; what came after is sent again. docs/sessions.md describes the events.

import { SDKError } from "./errors.js";

/** What is kept to be sent again: 87 s of PCM16 at 24 kHz. */
export const RESEND_BYTES = 4 * 1024 * 1024;

const FIRST_WAIT_S = 0.1;
const LONGEST_WAIT_S = 4;
const FINAL_CODES = new Set(["session_not_found", "invalid_resume_token", "resume_gap", "invalid_value"]);
const MAX_STUCK = 5;

/** The server does not let us go on; `isFinal`: not later either. */
export class ResumeRefusedError extends SDKError {
  constructor(message, isFinal) {
    super(message);
    this.isFinal = isFinal;
  }
}

export class Resumption {
  #frames = [];
  #numBytes = 0;
  #numSent = 0;
  #forgone = false;
  #place = "";
  #numStuck = 0;

  constructor({ maxBytes = RESEND_BYTES, enabled = true } = {}) {
    this.maxBytes = maxBytes;
    this.session = null;
    /** Number of the newest event that arrived. */
    this.lastSeq = 0;
    this.#forgone = !enabled;
  }

  /** Seconds for which a lost session can be resumed; 0: not at all. */
  get graceS() {
    if (this.#forgone || !this.session?.resume_token) return 0;
    return this.session.limits?.resume_grace_s ?? 0;
  }

  get numBytes() {
    return this.#numBytes;
  }

  /** Note that a frame, text or an ArrayBuffer, is about to be sent. */
  sent(frame) {
    this.#numSent += 1;
    if (this.#forgone) return;
    this.#frames.push(frame);
    this.#numBytes += sizeOf(frame);
    let num = 0;
    while (this.#numBytes > this.maxBytes) this.#numBytes -= sizeOf(this.#frames[num++]);
    if (num) this.#frames.splice(0, num);
  }

  /** Note an event; false for one that arrived before. */
  arrived(event) {
    if (event.type === "session.created" && this.session === null) {
      this.session = event.session;
      if (!event.session.resume_token) this.forgo();
    }
    const seq = event.server_event_seq;
    if (!Number.isInteger(seq) || seq === 0) return true; // no part of the numbered stream
    if (seq <= this.lastSeq) return false;
    this.lastSeq = seq;
    return true;
  }

  /** Never resume, and keep nothing. */
  forgo() {
    this.#forgone = true;
    this.#frames = [];
    this.#numBytes = 0;
  }

  /** The first frame of a new connection. */
  request() {
    return JSON.stringify({
      type: "session.resume",
      session_id: this.session.id,
      token: this.session.resume_token,
      after_seq: this.lastSeq,
    });
  }

  /** The frames to send again if `event` answers the request; null for other events. Throws ResumeRefusedError. */
  answer(event) {
    if (event.type === "error") {
      const { code, message } = event.error;
      throw new ResumeRefusedError(message ?? code ?? "The server refused.", FINAL_CODES.has(code));
    }
    if (event.type !== "session.resumed") return null;
    const taken = event.received_events;
    if (taken < this.#numSent - this.#frames.length) {
      throw new ResumeRefusedError("more audio was lost on the way than is kept", true);
    }
    const place = `${taken} ${this.lastSeq}`;
    this.#numStuck = taken < this.#numSent && place === this.#place ? this.#numStuck + 1 : 0;
    this.#place = place;
    if (this.#numStuck >= MAX_STUCK) {
      throw new ResumeRefusedError("the connection breaks at the same place again and again", true);
    }
    return this.#frames.slice(this.#frames.length - (this.#numSent - taken));
  }
}

/** Seconds to wait before each attempt; they add up to `graceS` at most, and differ between clients. */
export function* waits(graceS, random = Math.random) {
  let wait = FIRST_WAIT_S;
  let waited = 0;
  yield 0;
  for (;;) {
    const next = wait * (0.75 + random() / 2);
    waited += next;
    if (waited > graceS) return;
    yield next;
    wait = Math.min(2 * wait, LONGEST_WAIT_S);
  }
}

function sizeOf(frame) {
  return typeof frame === "string" ? frame.length : frame.byteLength;
}
