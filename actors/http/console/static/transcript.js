// A live transcript: what is kept of it, and the part of it that is elements of the page.
//
// The newest turns are elements, at most 400 nodes in all; older ones are text in a few paragraphs. Finals are compared with the
// partials that were shown, and the words that differ are marked.

import { compared } from "./compared.js";
import { el, minutes } from "./dom.js";
import { cues, toSRT, toVTT } from "./sdk/sensorium.js";

const MAX_NODES = 400;
/** Older text is laid out in paragraphs of so many characters, and of so many of them at most. */
const OLDER_CHARS = 8000;
const MAX_OLDER = 40;
const MAX_MARKS = 12;

export class Transcript {
  #scroll;
  #done;
  #open;
  #older = []; // text nodes
  #nodes = [];
  #partials = new Map();

  constructor(scroll, done, open) {
    this.#scroll = scroll;
    this.#done = done;
    this.#open = open;
    /** Finished turns: {start, end, text, words, segments}, seconds from the first session's start. */
    this.turns = [];
  }

  get isEmpty() {
    return this.turns.length === 0 && this.#partials.size === 0;
  }

  clear() {
    this.turns = [];
    this.#nodes = [];
    this.#older = [];
    this.#partials.clear();
    this.#done.replaceChildren();
    this.#open.replaceChildren();
  }

  /** Text that follows what is shown of an open turn. */
  partial(id, start, delta) {
    this.#follow(() => {
      let open = this.#partials.get(id);
      if (!open) {
        const text = document.createTextNode("");
        open = { text, node: el("p", { class: "turn open" }, el("time", {}, minutes(start)), el("span", {}, text)) };
        this.#partials.set(id, open);
        this.#open.append(open.node);
      }
      open.text.appendData(delta);
    });
  }

  /** The whole turn as it is now known. An empty one is dropped. Gives how many words were corrected. */
  final(id, turn) {
    const shown = this.#partials.get(id)?.text.data ?? "";
    this.drop(id);
    if (!turn.text.trim()) return 0;
    this.turns.push(turn);
    const pieces = compared(shown, turn.text);
    this.#follow(() => {
      const text = el("span", {}, ...marked(pieces));
      const node = el("p", { class: "turn" }, el("time", {}, minutes(turn.start)), text);
      this.#done.append(node);
      this.#nodes.push({ node, turn, num: countNodes(node) });
      this.#fold();
    });
    return pieces.filter((piece) => piece.before !== undefined).length;
  }

  /** Forget what is shown of a turn that is not finished. */
  drop(id) {
    this.#partials.get(id)?.node.remove();
    this.#partials.delete(id);
  }

  /** Forget all open turns. */
  dropOpen() {
    for (const id of [...this.#partials.keys()]) this.drop(id);
  }

  get text() {
    return this.turns.map((turn) => turn.text.trim()).join("\n");
  }

  get srt() {
    return toSRT(this.#cues());
  }

  get vtt() {
    return toVTT(this.#cues());
  }

  #cues() {
    return this.turns.flatMap(({ start, end, text, words }) => {
      if (!words.length) return [{ start, end, text: text.trim() }];
      return cues(words.map((each) => ({ ...each, start: start + each.start, end: start + each.end })));
    });
  }

  #fold() {
    let num = this.#nodes.reduce((sum, each) => sum + each.num, 0);
    while (num > MAX_NODES && this.#nodes.length > 1) {
      const { node, turn, num: freed } = this.#nodes.shift();
      node.remove();
      num -= freed;
      this.#keepOlder(turn.text.trim());
    }
  }

  #keepOlder(text) {
    const last = this.#older.at(-1);
    if (last && last.length < OLDER_CHARS) return last.appendData(`\n${text}`);
    const node = document.createTextNode(text);
    const paragraph = el("p", { class: "older" }, node);
    if (last) last.parentNode.after(paragraph);
    else this.#done.prepend(paragraph);
    this.#older.push(node);
    if (this.#older.length <= MAX_OLDER) return;
    const [first, second] = this.#older;
    second.insertData(0, `${first.data}\n`);
    first.parentNode.remove();
    this.#older.shift();
  }

  /** Change the page, and stay at the end of the transcript if the person is there. */
  #follow(change) {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroll;
    const isAtEnd = scrollHeight - scrollTop - clientHeight < 60;
    change();
    if (isAtEnd) this.#scroll.scrollTop = this.#scroll.scrollHeight;
  }
}

function countNodes(node) {
  let num = 1;
  for (const child of node.childNodes) num += countNodes(child);
  return num;
}

function marked(pieces) {
  let left = MAX_MARKS;
  return pieces.map(({ text, before }) => {
    if (before === undefined || left-- <= 0) return text;
    return el("mark", { title: before ? `was: ${before}` : "was not there" }, text);
  });
}
