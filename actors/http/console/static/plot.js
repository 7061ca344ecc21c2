// Small line plots as SVG. Each shows its newest value in words, too.

import { el, svg } from "./dom.js";

/** Fewer points than these leave room on the left. */
const MIN_POINTS = 20;
const MAX_POINTS = 150;

/** Draw lines (lists of numbers, null where there is none) from 0 to their largest value into an <svg>. */
export function drawLines(target, lines, { width = 240, height = 64 } = {}) {
  target.setAttribute("viewBox", `0 0 ${width} ${height}`);
  target.setAttribute("preserveAspectRatio", "none");
  const most = Math.max(...lines.flat().filter((value) => value !== null), 1e-9);
  const num = Math.max(MIN_POINTS, ...lines.map((values) => values.length));
  const x = (index, length) => width - ((length - 1 - index) * width) / (num - 1);
  const y = (value) => height - 2 - (value / most) * (height - 6);
  const parts = [svg("line", { class: "axis", x1: 0, x2: width, y1: height - 1, y2: height - 1 })];
  for (const [index, values] of lines.entries()) {
    const points = values.map((value, at) => (value === null ? null : `${x(at, values.length).toFixed(1)},${y(value).toFixed(1)}`)).filter(Boolean);
    if (!points.length) continue;
    if (index === 0 && points.length > 1) {
      const [first, last] = [points[0].split(",")[0], points.at(-1).split(",")[0]];
      parts.push(svg("polygon", { class: "area", points: `${first},${height - 1} ${points.join(" ")} ${last},${height - 1}` }));
    }
    parts.push(svg("polyline", { class: index ? "line second" : "line", points: points.length > 1 ? points.join(" ") : `${points[0]} ${points[0]}` }));
  }
  target.replaceChildren(...parts);
}

/** A card with a title, the newest value and the last five minutes of one or two lines. */
export class Plot {
  #lines;
  #strong = el("strong", {}, "–");
  #svg = svg("svg", { role: "img" });
  #format;
  #title;

  constructor(title, { format = (value) => String(Math.round(value)), num = 1, note = "" } = {}) {
    this.#title = title;
    this.#format = format;
    this.#lines = Array.from({ length: num }, () => []);
    const caption = el("figcaption", {}, el("span", {}, title), note ? el("span", {}, note) : null);
    this.node = el("figure", { class: "card plot" }, caption, this.#strong, this.#svg);
  }

  push(...values) {
    for (const [index, line] of this.#lines.entries()) {
      line.push(values[index] ?? null);
      if (line.length > MAX_POINTS) line.shift();
    }
    const words = values.map((value) => (value === null || value === undefined ? "–" : this.#format(value)));
    this.#strong.textContent = words.join(" · ");
    this.#svg.setAttribute("aria-label", `${this.#title}: ${words.join(", ")}`);
    drawLines(this.#svg, this.#lines);
  }
}
