// What can go wrong on the client's side. The names and fields are those of the Python SDK (client/errors.py).
//
//   SDKError
//   ├── SensoriumConnectionError   no server answers at the address, or the connection broke
//   ├── SensoriumTimeoutError      the server took longer than the timeout
//   ├── APIError                   the server refused: an HTTP status, or an `error` event as a session opens
//   └── SessionClosedError         a live session was closed before it was finished

export class SDKError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = this.constructor.name;
  }
}

export class SensoriumConnectionError extends SDKError {}

export class SensoriumTimeoutError extends SDKError {}

export class APIError extends SDKError {
  /** `status` is the HTTP status; `code` and `param` are the server's own words. */
  constructor(status, code, param, message, { requestId = null, retryAfter = null } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.param = param;
    /** Finds the request in the server's log. */
    this.requestId = requestId;
    /** Seconds after which the server would have us try again; null if it does not say. */
    this.retryAfter = retryAfter;
  }
}

const MEANINGS = {
  1001: "going away",
  1006: "connection lost",
  1008: "refused by policy",
  1009: "message too big",
  1011: "server fault",
  1012: "server restarts",
  1013: "server overloaded, try again later",
};

export class SessionClosedError extends SDKError {
  /** `code` is the WebSocket close code, `numUnfinished` counts turns whose transcript will not come. */
  constructor(code, reason, { numUnfinished = 0, lastError = null, notResumed = null } = {}) {
    const meaning = MEANINGS[code] ? ` (${MEANINGS[code]})` : "";
    const parts = [`The session was closed: code ${code}${meaning}${reason ? `, ${reason}` : ""}`];
    if (notResumed) parts.push(`it could not be resumed: ${notResumed}`);
    if (lastError && lastError !== reason) parts.push(`the last error was: ${lastError}`);
    super(parts.join("; "));
    this.code = code;
    this.reason = reason;
    this.numUnfinished = numUnfinished;
    this.lastError = lastError;
    this.notResumed = notResumed;
  }
}

/** The error of an answer that is not 2xx; `body` is its text. */
export function errorOfAnswer(status, body, headers) {
  let problem = {};
  try {
    problem = JSON.parse(body).error ?? {};
  } catch {
    // a proxy's page, or nothing
  }
  const message = problem.message ?? `The server answered with status ${status}.`;
  const seconds = Number(headers?.get("retry-after") ?? NaN);
  return new APIError(status, problem.code ?? null, problem.param ?? null, message, {
    requestId: headers?.get("x-request-id") ?? null,
    retryAfter: Number.isFinite(seconds) ? seconds : null,
  });
}
