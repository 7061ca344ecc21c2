// A final transcript beside the partials that were shown of it: which words were corrected. Pure.

const MAX_COMPARED = 300;

/** The final text in pieces; those that were otherwise in the partial have `before`, what stood there. */
export function compared(partial, final) {
  const [old, now] = [partial.trim().split(/\s+/), final.trim().split(/\s+/)];
  const isPrefix = now.join(" ").startsWith(old.join(" "));
  if (!partial.trim() || isPrefix || old.length > MAX_COMPARED || now.length > MAX_COMPARED) return [{ text: final.trim() }];
  const table = common(old, now);
  const pieces = [];
  let [i, j] = [0, 0];
  while (j < now.length) {
    const [oldStart, start] = [i, j];
    while (i < old.length && j < now.length && old[i] === now[j]) [i, j] = [i + 1, j + 1];
    if (j > start) pieces.push({ text: `${now.slice(start, j).join(" ")} ` });
    const [fromOld, from] = [i, j];
    while (j < now.length && !(i < old.length && old[i] === now[j])) {
      if (i < old.length && table[i + 1][j] >= table[i][j + 1]) i += 1;
      else j += 1;
    }
    // Words behind the partial's end are new, and no correction.
    if (j > from && fromOld === old.length) pieces.push({ text: `${now.slice(from, j).join(" ")} ` });
    else if (j > from) pieces.push({ text: `${now.slice(from, j).join(" ")} `, before: old.slice(fromOld, i).join(" ") });
    if (j === start && i === oldStart) break;
  }
  return pieces;
}

/** Lengths of the longest common subsequences of all ends of both lists. */
function common(a, b) {
  const table = Array.from({ length: a.length + 2 }, () => new Uint16Array(b.length + 2));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  return table;
}
