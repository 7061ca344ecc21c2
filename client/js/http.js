// One request and its answer: JSON, forms, streams of events, the progress of an upload.
//
// `fetch` cannot tell how far an upload has come, so a browser's XMLHttpRequest sends where that is asked for.
// Both give the same: a status, header fields, and the body as pieces of text.

import { APIError, errorOfAnswer, SDKError, SensoriumConnectionError, SensoriumTimeoutError } from "./errors.js";

const MAX_EVENT_CHARS = 64 * 1024 * 1024;

/**
 * Send a request; its answer as {status, headers, pieces}. Throws an APIError for a status that is not 2xx.
 *
 * `progress` is called with the sent and the total bytes of the body.
 */
export async function send(url, { method, headers, body, signal, progress, fetch, timeoutMs }) {
  const timer = new AbortController();
  const limit = timeoutMs ? setTimeout(() => timer.abort(), timeoutMs) : null;
  const either = signal ? AbortSignal.any([signal, timer.signal]) : timer.signal;
  const request = { method, headers, body, signal: either };
  let answer;
  try {
    answer =
      progress && typeof XMLHttpRequest !== "undefined"
        ? await sendByXHR(url, request, progress)
        : await sendByFetch(url, request, fetch);
    if (progress) progress(1, 1);
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    if (timer.signal.aborted) {
      throw new SensoriumTimeoutError(`The server did not answer ${method} ${url} within ${timeoutMs / 1000} s.`);
    }
    throw new SensoriumConnectionError(`No server answers at ${new URL(url).origin}.`, { cause: error });
  } finally {
    clearTimeout(limit);
  }
  if (answer.status < 200 || answer.status > 299) {
    throw errorOfAnswer(answer.status, await textOf(answer), answer.headers);
  }
  return answer;
}

/** All of a body. Throws a SensoriumConnectionError if it breaks off. */
export async function textOf(answer) {
  let text = "";
  for await (const piece of answer.pieces) text += piece;
  return text;
}

/** The JSON objects of a stream of server-sent events. Throws an APIError for one that is an error. */
export async function* eventsOf(answer) {
  let rest = "";
  for await (const piece of answer.pieces) {
    rest += piece;
    if (rest.length > MAX_EVENT_CHARS) throw new SDKError("The server sends an event that never ends.");
    const lines = rest.split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue; // comments keep the connection alive; names repeat `type`
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) {
        const { code = null, param = null, message = "The server failed while it answered." } = event.error;
        throw new APIError(500, code, param, message, { requestId: answer.headers.get("x-request-id") });
      }
      yield event;
    }
  }
}

async function sendByFetch(url, { method, headers, body, signal }, fetch) {
  const response = await (fetch ?? globalThis.fetch)(url, { method, headers, body, signal });
  return { status: response.status, headers: response.headers, pieces: read(response.body, signal) };
}

async function* read(stream, signal) {
  if (!stream) return;
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      yield decoder.decode(value, { stream: true });
    }
    yield decoder.decode();
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw new SensoriumConnectionError("The connection broke in the middle of an answer.", { cause: error });
  } finally {
    reader.cancel().catch(() => {});
  }
}

function sendByXHR(url, { method, headers, body, signal }, progress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const abort = () => request.abort();
    const pieces = new Pieces(abort);
    let taken = 0;
    const take = () => {
      pieces.put(request.responseText.slice(taken));
      taken = request.responseText.length;
    };
    const broke = () => {
      const error = new SensoriumConnectionError("The connection broke in the middle of an answer.");
      reject(error);
      pieces.end(signal.aborted ? signal.reason : error);
    };
    request.open(method, url);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => event.lengthComputable && progress(event.loaded, event.total);
    request.onreadystatechange = () => {
      if (request.readyState !== XMLHttpRequest.HEADERS_RECEIVED || request.status === 0) return;
      const found = { get: (name) => request.getResponseHeader(name) };
      resolve({ status: request.status, headers: found, pieces });
    };
    request.onprogress = take;
    request.onload = () => {
      take();
      pieces.end();
    };
    request.onerror = request.onabort = broke;
    request.onloadend = () => signal.removeEventListener("abort", abort);
    signal.addEventListener("abort", abort);
    if (signal.aborted) abort();
    else request.send(body);
  });
}

/** Text that is put in by callbacks and taken out by one loop. */
class Pieces {
  #queue = [];
  #wake = null;
  #ended = false;
  #error = null;
  #abandon;

  constructor(abandon) {
    this.#abandon = abandon;
  }

  put(text) {
    if (text) this.#queue.push(text);
    this.#wake?.();
  }

  end(error = null) {
    this.#ended = true;
    this.#error = error;
    this.#wake?.();
  }

  async *[Symbol.asyncIterator]() {
    try {
      for (;;) {
        while (this.#queue.length) yield this.#queue.shift();
        if (this.#error) throw this.#error;
        if (this.#ended) return;
        await new Promise((resolve) => (this.#wake = resolve));
      }
    } finally {
      if (!this.#ended) this.#abandon();
    }
  }
}
