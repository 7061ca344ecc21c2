// Prometheus' text format, as `/metrics` gives it, and what is read off it.

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** Samples by name: a Map of lists of {labels, value}. */
export function parseMetrics(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : SAMPLE.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(LABEL)) labels[name] = value;
    const samples = found.get(match[1]) ?? [];
    samples.push({ labels, value: Number(match[3]) });
    found.set(match[1], samples);
  }
  return found;
}

/** The sum of a metric over all labels, or over those that match; null where there is no sample. */
export function total(metrics, name, labels = {}) {
  const wanted = Object.entries(labels);
  const samples = (metrics.get(name) ?? []).filter((each) => wanted.every(([key, value]) => each.labels[key] === value));
  return samples.length ? samples.reduce((sum, each) => sum + each.value, 0) : null;
}

/**
 * A quantile of what a histogram counted between two scrapes; null where it counted nothing.
 *
 * Within a bucket values are taken to be spread evenly, as Prometheus' histogram_quantile does.
 */
export function quantile(before, after, name, share) {
  const counts = (metrics) => {
    const buckets = new Map();
    for (const { labels, value } of metrics?.get(`${name}_bucket`) ?? []) {
      const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
      buckets.set(bound, (buckets.get(bound) ?? 0) + value);
    }
    return buckets;
  };
  const earlier = counts(before);
  const buckets = [...counts(after)].sort(([a], [b]) => a - b).map(([bound, count]) => [bound, count - (earlier.get(bound) ?? 0)]);
  const all = buckets.at(-1)?.[1] ?? 0;
  if (!(all > 0)) return null;
  const rank = share * all;
  let [low, below] = [0, 0];
  for (const [bound, count] of buckets) {
    if (count >= rank) return bound === Infinity ? low : low + ((bound - low) * (rank - below)) / (count - below || 1);
    [low, below] = [bound, count];
  }
  return low;
}
