// Pictures of a camera or of the screen, as JPEG files, for live sessions that answer and for chats.

import { SDKError } from "./errors.js";
import { reasonOf } from "./microphone.js";

const QUALITY = 0.85;

export class FrameSource {
  #canvas = document.createElement("canvas");
  #stream;
  #timer = null;

  /** Open the camera ("camera") or ask for a screen, window or tab ("screen"). */
  static async open(kind = "camera", { deviceId, maxSide = 768 } = {}) {
    const devices = globalThis.navigator?.mediaDevices;
    if (!devices?.getUserMedia) {
      throw new SDKError(`Browsers give the ${kind} to pages on https:// or localhost only.`);
    }
    const source = new FrameSource();
    source.maxSide = maxSide;
    try {
      source.#stream =
        kind === "screen"
          ? await devices.getDisplayMedia({ video: { frameRate: 5 }, preferCurrentTab: false, selfBrowserSurface: "include" })
          : await devices.getUserMedia({ video: { width: { ideal: 1280 }, ...(deviceId && { deviceId }) } });
    } catch (error) {
      throw new SDKError(reasonOf(error, kind), { cause: error });
    }
    const video = document.createElement("video");
    Object.assign(video, { srcObject: source.#stream, muted: true, playsInline: true });
    await video.play();
    /** The <video> element that shows what is seen: put it into the page. */
    source.video = video;
    return source;
  }

  /** Call `listener` when the person ends the sharing. */
  onEnd(listener) {
    for (const track of this.#stream.getTracks()) track.addEventListener("ended", listener);
  }

  /** What is seen now, as a Blob of a JPEG file. */
  async snapshot() {
    const { videoWidth: width, videoHeight: height } = this.video;
    const scale = Math.min(1, this.maxSide / Math.max(width, height));
    this.#canvas.width = Math.max(1, Math.round(width * scale));
    this.#canvas.height = Math.max(1, Math.round(height * scale));
    this.#canvas.getContext("2d").drawImage(this.video, 0, 0, this.#canvas.width, this.#canvas.height);
    const blob = await new Promise((resolve) => this.#canvas.toBlob(resolve, "image/jpeg", QUALITY));
    if (!blob) throw new SDKError("The browser could not write the picture.");
    return blob;
  }

  /** Show `session` what is seen, as often as it takes a frame, until `stop`. Resolves when it was shown the first. */
  start(session) {
    const fps = session.created?.limits?.max_fps ?? 1;
    const show = async () => {
      if (session.state === "closed") return this.stop();
      const picture = await (await this.snapshot()).arrayBuffer();
      if (this.#timer !== null && session.state === "open") session.sendFrame(picture);
    };
    this.#timer = setInterval(show, 1000 / fps + 10);
    return show();
  }

  /** Stop showing, and give the device back. */
  stop() {
    clearInterval(this.#timer);
    this.#timer = null;
    for (const track of this.#stream.getTracks()) track.stop();
    this.video.srcObject = null;
  }
}
