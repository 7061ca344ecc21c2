// The sound of the last seconds on a canvas, turns shaded, with the words where they were spoken.

const MAX_SECONDS = 12;
const PX_PER_SECOND = 75; // at least, so that words have room
const BAR_S = 0.04;
const BAR_PX = 2;

export class Waveform {
  #canvas;
  #context;
  #peaks = []; // of each 40 ms, from 0 to 1
  #first = 0; // number of the oldest peak that is kept
  #turns = []; // {id, start, end (null while it is open), words}
  #colors = {};
  #frame = null;
  #reduced = matchMedia("(prefers-reduced-motion: reduce)");

  constructor(canvas) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", () => this.#readColors());
    new ResizeObserver(() => this.#draw()).observe(canvas);
    this.#readColors();
  }

  /** Seconds of sound so far. */
  get seconds() {
    return (this.#first + this.#peaks.length) * BAR_S;
  }

  reset() {
    this.#peaks = [];
    this.#first = 0;
    this.#turns = [];
    this.#soon();
  }

  /** The next 40 ms of sound, an Int16Array. */
  push(samples) {
    let peak = 0;
    for (const sample of samples) peak = Math.max(peak, Math.abs(sample));
    this.#peaks.push(peak / 32768);
    const extra = this.#peaks.length - Math.ceil(MAX_SECONDS / BAR_S) - 1;
    if (extra > 0) {
      this.#peaks.splice(0, extra);
      this.#first += extra;
    }
    this.#soon();
  }

  /** A turn began, or what is known of it has changed. Times are seconds of the session's sound. */
  turn(id, change) {
    let turn = this.#turns.find((each) => each.id === id);
    if (!turn) {
      turn = { id, start: 0, end: null, words: [] };
      this.#turns.push(turn);
    }
    Object.assign(turn, change);
    this.#turns = this.#turns.filter((each) => each.end === null || each.end > this.seconds - MAX_SECONDS - 5);
    this.#soon();
  }

  #readColors() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["accent", "soft", "muted", "line", "text"]) this.#colors[name] = style.getPropertyValue(`--${name}`).trim();
    this.#draw();
  }

  #soon() {
    if (this.#frame) return;
    const draw = () => {
      this.#frame = null;
      this.#draw();
    };
    // With reduced motion the picture is a new one each second, instead of one that moves.
    this.#frame = this.#reduced.matches ? setTimeout(draw, 1000) : requestAnimationFrame(draw);
  }

  #draw() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const ratio = devicePixelRatio || 1;
    if (this.#canvas.width !== Math.round(width * ratio)) this.#canvas.width = Math.round(width * ratio);
    if (this.#canvas.height !== Math.round(height * ratio)) this.#canvas.height = Math.round(height * ratio);
    const context = this.#context;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const span = Math.min(MAX_SECONDS, width / PX_PER_SECOND);
    const end = Math.max(this.seconds, span);
    const x = (seconds) => width - ((end - seconds) * width) / span;
    const base = height - 54; // words are below
    const middle = base / 2 + 4;
    for (const { start, end: stop } of this.#turns) {
      context.fillStyle = this.#colors.soft;
      const [left, right] = [x(start), x(stop ?? this.seconds)];
      context.beginPath();
      context.roundRect(left, 10, Math.max(2, right - left), height - 16, 8);
      context.fill();
    }
    context.fillStyle = this.#colors.line;
    context.fillRect(0, middle, width, 1);
    for (const [index, peak] of this.#peaks.entries()) {
      const at = (this.#first + index) * BAR_S;
      const isSpoken = this.#turns.some(({ start, end: stop }) => at >= start && at <= (stop ?? Infinity));
      const size = Math.max(1.5, Math.min(1, Math.sqrt(peak) * 1.15) * (base - 28));
      context.fillStyle = isSpoken ? this.#colors.accent : this.#colors.muted;
      context.beginPath();
      context.roundRect(x(at), middle - size / 2, BAR_PX, size, 1);
      context.fill();
    }
    this.#drawWords(x, height);
  }

  #drawWords(x, height) {
    const context = this.#context;
    context.font = "12.5px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = this.#colors.text;
    const free = [-Infinity, -Infinity, -Infinity]; // the right end of what stands in each row
    for (const { words } of this.#turns) {
      for (const { word, start } of words) {
        const left = x(start);
        const text = word.trim();
        const width = context.measureText(text).width;
        if (left + width < 0) continue;
        const row = free.findIndex((end) => end <= left);
        if (row < 0) continue; // no room: the transcript has it
        context.fillText(text, left, height - 48 + row * 16);
        free[row] = left + width + 5;
      }
    }
  }
}
