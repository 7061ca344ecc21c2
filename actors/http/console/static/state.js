// The server as the page knows it: the client, its models, whether it answers, and the key that was typed in.
//
// The key is in this module's memory and nowhere else. Read next: app.js.

import { APIError, Client, SensoriumConnectionError, SensoriumTimeoutError } from "./sdk/sensorium.js";

const BASE = new URL("..", import.meta.url).href;
const LONGEST_WAIT_MS = 10_000;
const LOOK_MS = 15_000;

class Server extends EventTarget {
  client = new Client({ baseURL: BASE });
  models = [];
  /** "loading", "ok", "key" (one is needed, or another one), "down", or "busy" with the server's word for it. */
  status = "loading";
  detail = "";
  #wait = 1000;
  #timer = null;
  #known = "";

  get hasKey() {
    return this.client.apiKey !== null;
  }

  setKey(key) {
    this.client = new Client({ baseURL: BASE, apiKey: key || null });
    return this.refresh();
  }

  /** Read `/v1/models` now. Says by the event "change" how it went, and tries again by itself. */
  async refresh() {
    clearTimeout(this.#timer);
    try {
      const models = await this.client.models();
      this.#wait = 1000;
      this.models = models;
      this.#become("ok");
      this.#timer = setTimeout(() => this.#look(), LOOK_MS);
    } catch (error) {
      this.failed(error);
    }
  }

  /** Whatever failed: the page's state follows where the server or the key is the reason. */
  failed(error) {
    if (error instanceof SensoriumConnectionError || error instanceof SensoriumTimeoutError) {
      this.#become("down");
      this.#again();
    } else if (error instanceof APIError && error.status === 401) {
      this.#become("key", error.message);
    } else if (error instanceof APIError && error.status === 503 && this.status !== "ok") {
      this.#become("busy", error.message);
      this.#again();
    } else if (this.status === "loading") {
      this.#become("busy", error.message);
      this.#again();
    }
  }

  /** Resolves when the server answers again. */
  async back() {
    while (this.status !== "ok") await new Promise((resolve) => this.addEventListener("change", resolve, { once: true }));
  }

  /** The models that can do something, as "transcribe" or "chat". */
  able(ability) {
    return this.models.filter((model) => model.abilities.includes(ability));
  }

  async #look() {
    if (document.hidden) this.#timer = setTimeout(() => this.#look(), LOOK_MS);
    else await this.refresh();
  }

  #again() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.refresh(), this.#wait);
    this.#wait = Math.min(1.6 * this.#wait, LONGEST_WAIT_MS);
  }

  #become(status, detail = "") {
    this.status = status;
    this.detail = detail;
    const now = JSON.stringify([status, detail, this.models]);
    if (now === this.#known) return;
    this.#known = now;
    this.dispatchEvent(new Event("change"));
  }
}

export const server = new Server();
