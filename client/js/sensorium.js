// The public names of the module. Read next: client.js, then realtime.js.
export { Client } from "./client.js";
export { Answer, Session } from "./realtime.js";
export { Microphone } from "./microphone.js";
export { FrameSource } from "./frames.js";
export { cues, toSRT, toVTT } from "./subtitles.js";
export { parseMetrics, quantile, total } from "./metrics.js";
export {
  APIError,
  SDKError,
  SensoriumConnectionError,
  SensoriumTimeoutError,
  SessionClosedError,
} from "./errors.js";
