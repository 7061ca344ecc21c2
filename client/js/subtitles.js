// Subtitles of timed words or segments, as the server's `srt` and `vtt` lay them out: sentences, of two lines of
// 42 columns and 7 s at most.

const MAX_COLUMNS = 42;
const MAX_LINES = 2;
const MAX_S = 7;

/** Cues {start, end, text} of words {word, start, end} in seconds; segments {text, start, end} pass through. */
export function cues(timed) {
  if (timed.length && !("word" in timed[0])) return timed.map(({ start, end, text }) => ({ start, end, text: text.trim() }));
  const found = [];
  let words = [];
  const close = () => {
    if (!words.length) return;
    const text = words.map((each) => each.word.trim()).join(" ");
    found.push({ start: words[0].start, end: words.at(-1).end, text: broken(text) });
    words = [];
  };
  for (const word of timed) {
    const longer = [...words, word].map((each) => each.word.trim()).join(" ");
    if (words.length && (numLines(longer) > MAX_LINES || word.end - words[0].start > MAX_S)) close();
    words.push(word);
    if (/[.!?…。！？]["”’)]?$/.test(word.word.trim())) close();
  }
  close();
  return found;
}

/** A SubRip document. */
export function toSRT(found) {
  return found
    .map(({ start, end, text }, index) => `${index + 1}\n${time(start, ",")} --> ${time(end, ",")}\n${text}\n`)
    .join("\n");
}

/** A WebVTT document. */
export function toVTT(found) {
  const body = found.map(({ start, end, text }) => `${time(start, ".")} --> ${time(end, ".")}\n${escaped(text)}\n`);
  return `WEBVTT\n\n${body.join("\n")}`;
}

/** How many lines a text takes where each is as full as it can be. */
function numLines(text) {
  let [num, length] = [1, -1];
  for (const word of text.split(" ")) {
    if (length + 1 + word.length > MAX_COLUMNS && length >= 0) [num, length] = [num + 1, -1];
    length += 1 + word.length;
  }
  return num;
}

/** A text of two lines at most, broken where these are most alike. */
function broken(text) {
  if (numLines(text) === 1) return text;
  let [best, least] = [-1, Infinity];
  for (let at = text.indexOf(" "); at >= 0; at = text.indexOf(" ", at + 1)) {
    const longest = Math.max(at, text.length - at - 1);
    if (longest < least) [best, least] = [at, longest];
  }
  return best < 0 ? text : `${text.slice(0, best)}\n${text.slice(best + 1)}`;
}

function time(seconds, point) {
  const ms = Math.round(seconds * 1000);
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  return `${two(ms / 3_600_000)}:${two((ms / 60_000) % 60)}:${two((ms / 1000) % 60)}${point}${String(ms % 1000).padStart(3, "0")}`;
}

function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
