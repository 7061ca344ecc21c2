// The panel of code under each view: what does the same from a shell, Python or JavaScript.

import { copy, el } from "./dom.js";

const LANGUAGES = { curl: "curl", python: "Python", openai: "openai", javascript: "JavaScript" };
let chosen = "python";
const panels = new Set();

export class CodePanel {
  #texts = {};
  #buttons = {};
  #pre = el("code");

  constructor(host) {
    const head = el("div", { class: "code-head", role: "group", "aria-label": "Language of the code" }, el("h2", {}, "The same in code"));
    for (const [key, label] of Object.entries(LANGUAGES)) {
      this.#buttons[key] = el("button", { type: "button", onclick: () => choose(key) }, label);
      head.append(this.#buttons[key]);
    }
    const button = el("button", { type: "button", onclick: () => copy(this.#texts[chosen], button) }, "Copy");
    head.append(button);
    host.append(head, el("pre", { tabIndex: 0, "aria-label": "Code", role: "region" }, this.#pre));
    panels.add(this);
  }

  /** Show other texts: {curl, python, openai, javascript}. */
  show(texts) {
    this.#texts = texts;
    this.draw();
  }

  draw() {
    for (const [key, button] of Object.entries(this.#buttons)) button.setAttribute("aria-pressed", String(key === chosen));
    this.#pre.textContent = this.#texts[chosen] ?? "";
  }
}

function choose(key) {
  chosen = key;
  for (const panel of panels) panel.draw();
}
