// A browser's microphone, recorded in one of two ways: PCM of an AudioWorklet, or Opus of a MediaRecorder.
//
// PCM is there 40 ms after it was spoken and takes 48 kB/s; Opus takes 4 kB/s and some 200 ms more.

import { SDKError } from "./errors.js";

const CHUNK_MS = 40;
const RECORDER_MS = 100;
const OPUS_BITS = 32_000;
/** What is kept of the time before `start`: 20 s of PCM. */
const EARLY_BYTES = 1024 * 1024;
const CONTAINERS = ["audio/webm;codecs=opus", "audio/ogg;codecs=opus", "audio/mp4;codecs=opus", "audio/mp4;codecs=mp4a.40.2"];

export class Microphone {
  #stream;
  #owned;
  #context;
  #node;
  #recorder = null;
  #sending = Promise.resolve();
  #listeners = new Set();
  #target = null;
  #early = [];
  #numEarly = 0;
  #flushed = null;

  /**
   * Ask for the microphone. Throws an SDKError with a sentence for a person where there is none.
   *
   * `recording` is "pcm" or "opus". `stream` is a MediaStream of yours instead of the microphone; any other
   * option is a constraint of getUserMedia, as `deviceId`.
   */
  static async open({ recording = "pcm", rate = 24_000, stream, ...constraints } = {}) {
    const microphone = new Microphone();
    microphone.recording = recording;
    microphone.#owned = !stream;
    // The audio thread is made ready while the person is asked: what is said then is not to be lost.
    const worklet = contextOf({ sampleRate: rate });
    try {
      microphone.#stream = stream ?? (await microphoneStream(constraints));
      await microphone.#prepare(rate, await worklet);
    } catch (error) {
      microphone.#release();
      worklet.then((context) => context.state !== "closed" && context.close(), () => {});
      throw error;
    }
    return microphone;
  }

  /** What `client.realtime` takes as `audioFormat`. */
  get audioFormat() {
    return this.#recorder ? { type: this.#recorder.mimeType } : { type: "audio/pcm", rate: this.rate };
  }

  /** What the device is called. */
  get label() {
    return this.#stream.getAudioTracks()[0]?.label ?? "";
  }

  /** Call `listener` with each 40 ms of samples (Int16Array at `rate`), whatever is sent. Gives what takes it off. */
  onSamples(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Send what is heard to `target`, a `Session` or anything with `append(ArrayBuffer)`.
   *
   * What was heard since `open` comes first, so that nothing is lost while a session is being opened.
   */
  start(target) {
    this.#target = target;
    for (const chunk of this.#early.splice(0)) this.#send(chunk);
  }

  /** Stop recording; resolves when the last of it was handed to the target. */
  async stop() {
    if (this.#recorder && this.#recorder.state !== "inactive") {
      const stopped = new Promise((resolve) => (this.#recorder.onstop = resolve));
      this.#recorder.stop();
      await stopped;
      await this.#sending;
    }
    if (this.#context.state !== "closed") {
      const flushed = new Promise((resolve) => (this.#flushed = resolve));
      this.#node.port.postMessage(null);
      await Promise.race([flushed, new Promise((resolve) => setTimeout(resolve, 500))]);
    }
    this.#target = null;
    this.#release();
  }

  async #prepare(rate, context) {
    this.rate = rate;
    this.#context = context;
    let source;
    try {
      source = this.#context.createMediaStreamSource(this.#stream);
    } catch {
      await this.#context.close(); // the device has another rate, and this browser does not convert it
      this.#context = await contextOf({});
      source = this.#context.createMediaStreamSource(this.#stream);
    }
    this.#node = new AudioWorkletNode(this.#context, "sensorium-pcm", {
      numberOfOutputs: 0,
      processorOptions: { rate, chunkMs: CHUNK_MS },
    });
    this.#node.port.onmessage = ({ data }) => {
      if (data === null) return this.#flushed?.();
      for (const listener of this.#listeners) listener(new Int16Array(data));
      if (!this.#recorder) this.#send(data);
    };
    if (this.recording === "opus") this.#recorder = this.#newRecorder();
    /** When recording began, on the clock of `performance.now()`. */
    this.beganAt = performance.now();
    this.#recorder?.start(RECORDER_MS);
    source.connect(this.#node);
    this.#context.resume();
  }

  #newRecorder() {
    const mimeType = CONTAINERS.find((each) => MediaRecorder.isTypeSupported(each));
    if (!mimeType) throw new SDKError("This browser records in no format that the server takes: use pcm.");
    const recorder = new MediaRecorder(this.#stream, { mimeType, audioBitsPerSecond: OPUS_BITS });
    // The pieces arrive in order, and the last one before `stop`; reading one takes a moment.
    recorder.ondataavailable = ({ data }) => {
      this.#sending = this.#sending.then(async () => {
        if (data.size) this.#send(await data.arrayBuffer());
      });
    };
    return recorder;
  }

  #send(data) {
    if (this.#target) {
      if (this.#target.state !== "closed") this.#target.append(data);
      return;
    }
    this.#early.push(data);
    this.#numEarly += data.byteLength;
    // A container needs its beginning; of PCM the newest is kept.
    while (this.#numEarly > EARLY_BYTES) {
      const dropped = this.#recorder ? this.#early.pop() : this.#early.shift();
      this.#numEarly -= dropped.byteLength;
    }
  }

  #release() {
    if (this.#owned) for (const track of this.#stream?.getTracks() ?? []) track.stop();
    if (this.#context && this.#context.state !== "closed") this.#context.close();
  }
}

async function contextOf(options) {
  const context = new AudioContext({ ...options, latencyHint: "interactive" });
  await context.audioWorklet.addModule(new URL("./pcm-worklet.js", import.meta.url));
  return context;
}

async function microphoneStream(constraints) {
  const devices = globalThis.navigator?.mediaDevices;
  if (!devices?.getUserMedia) {
    throw new SDKError("Browsers give the microphone to pages on https:// or localhost only.");
  }
  const audio = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: true };
  try {
    return await devices.getUserMedia({ audio: { ...audio, ...constraints } });
  } catch (error) {
    throw new SDKError(reasonOf(error, "microphone"), { cause: error });
  }
}

/** Why a browser gives no device, as a sentence for the person who sits there. */
export function reasonOf(error, device) {
  switch (error.name) {
    case "NotAllowedError":
      return `The browser was not allowed to use the ${device}: allow it beside the page's address, and try again.`;
    case "NotFoundError":
    case "OverconstrainedError":
      return `There is no such ${device}: connect one, or choose another.`;
    case "NotReadableError":
      return `Another program is using the ${device}: close it, and try again.`;
    default:
      return `The ${device} could not be opened: ${error.message}`;
  }
}
