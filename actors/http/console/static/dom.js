// Small helpers for elements. Text is only ever set as text: nothing a model or a file says becomes markup.

/** The element of an id. */
export const at = (id) => document.getElementById(id);

/** A new element with properties (`class`, `data-…` and `aria-…` are attributes) and children. */
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && !name.includes("-")) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((each) => each !== null && each !== undefined));
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

/** A new element of an SVG with attributes. */
export function svg(tag, attributes = {}) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

/** Hand a text to the person as a file. */
export function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Put a text on the clipboard, and say so on the button for a moment. */
export async function copy(text, button) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "The browser refused";
  }
  setTimeout(() => (button.textContent = label), 1500);
}

/** Seconds as 1:05, or 1:02:05. */
export function minutes(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (value) => String(value).padStart(2, "0");
  const [hours, rest] = [Math.floor(whole / 3600), whole % 3600];
  return hours ? `${hours}:${two(Math.floor(rest / 60))}:${two(rest % 60)}` : `${Math.floor(rest / 60)}:${two(rest % 60)}`;
}

/** Bytes as 1.4 MB. */
export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${unit && number < 10 ? number.toFixed(1) : Math.round(number)} ${units[unit]}`;
}

/** Fill a <select> with [value, label] pairs and keep its choice where it is still there. */
export function fill(select, choices) {
  const before = select.value;
  select.replaceChildren(...choices.map(([value, label]) => el("option", { value }, label)));
  if (choices.some(([value]) => value === before)) select.value = before;
}

const NAMES = new Intl.DisplayNames(["en"], { type: "language" });

/** What a language of an ISO code is called. */
export function languageName(code) {
  try {
    return NAMES.of(code) ?? code;
  } catch {
    return code;
  }
}

/** Choices of a model's languages, the first of which is to find out. */
export function languageChoices(model) {
  const known = (model?.languages ?? []).map((code) => [code, languageName(code)]);
  return [["", "Detect"], ...known.sort(([, a], [, b]) => a.localeCompare(b))];
}
