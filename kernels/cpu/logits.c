/* From the product of a head to tokens: its likeliest logits again, not rounded, and the best of each row.
 *
 * A row is gone through by one thread, so that it is the same whatever is beside it.
 */
#include "rows.h"
#define CHUNK 64   /* logits that are compared by their largest first */
#define BLOCK 1024 /* numbers searched at a time, and exponentials summed before the sum is added to a wider one */
#define WORTH_THREADS 65536

typedef struct {
    float value;
    long at;
} Found;

/* Keeps the `count` largest, in falling order; of equal ones those that came first. Gives how many there are. */
INLINE long keep(float value, long at, Found *found, long num, long count) {
    if (value != value || (num == count && !(value > found[num - 1].value))) return num;
    long i = num < count ? num++ : num - 1;
    for (; i > 0 && value > found[i - 1].value; i--) found[i] = found[i - 1];
    found[i] = (Found){value, at};
    return num;
}

/* Logits become floats; the largest of each chunk to `most`. */
INLINE void widen_row(const int bf16, const void *from, long size, float *to, float *most) {
    for (long first = 0; first < size; first += CHUNK) {
        long end = first + CHUNK < size ? first + CHUNK : size, i = first;
        floats large = (floats){} - INFINITY;
        for (; i + LANES <= end; i += LANES) {
            floats x = load_each(bf16, from, i);
            *(floats *)(to + i) = x;
            large = larger(x, large);
        }
        float best = -INFINITY;
        for (int j = 0; j < LANES; j++) best = large[j] > best ? large[j] : best;
        for (; i < end; i++) {
            to[i] = load(bf16, from, i);
            best = to[i] > best ? to[i] : best;
        }
        most[first / CHUNK] = best;
    }
}

INLINE float dot(const int bf16, const void *a, const void *b, long size) {
    floats sums[2] = {};
    long i = 0;
    for (; i + 2 * LANES <= size; i += 2 * LANES)
        for (int j = 0; j < 2; j++) sums[j] += load_each(bf16, a, i + j * LANES) * load_each(bf16, b, i + j * LANES);
    float sum = added_up(sums[0] + sums[1]);
    for (; i < size; i++) sum += load(bf16, a, i) * load(bf16, b, i);
    return sum;
}

INLINE void exact_row(const int bf16, int rounded_logits, const void *logits, const void *hidden,
                      const void *weight, long vocab, long size, long count, float *out) {
    long chunks = (vocab + CHUNK - 1) / CHUNK, num = 0;
    float *most = malloc((size_t)chunks * sizeof *most);
    Found found[count];
    if (rounded_logits)
        widen_row(1, logits, vocab, out, most);
    else
        widen_row(0, logits, vocab, out, most);
    for (long chunk = 0; chunk < chunks; chunk++) num = keep(most[chunk], chunk, found, num, count);
    float least = num < count ? -INFINITY : found[num - 1].value; /* so many are as large, at least */
    num = 0;
    for (long i = 0; i < vocab; i++) {
        if (i % CHUNK == 0 && most[i / CHUNK] < least)
            i += CHUNK - 1;
        else if (out[i] >= least)
            num = keep(out[i], i, found, num, count);
    }
    for (long i = 0; i < num; i++) out[found[i].at] = dot(bf16, hidden, past(bf16, weight, found[i].at * size), size);
    free(most);
}

/* logits [rows, vocab], of bfloat16 if they are `rounded` → the same as floats, out (which may be logits). The
 * `count` largest of each row become the product of hidden [rows, size] and weight [vocab, size]. */
void sensorium_exact_logits(int bf16, int rounded, const void *logits, const void *hidden, const void *weight,
                            long rows, long vocab, long size, long count, float *out, int threads) {
#pragma omp parallel for num_threads(threads) if (rows > 1)
    for (long row = 0; row < rows; row++) {
        const void *from = past(rounded, logits, row * vocab), *x = past(bf16, hidden, row * size);
        if (bf16)
            exact_row(1, rounded, from, x, weight, vocab, size, count, out + row * vocab);
        else
            exact_row(0, rounded, from, x, weight, vocab, size, count, out + row * vocab);
    }
}

/* The first largest element, or the first that is not a number. */
INLINE long best_of(const int bf16, const void *row, long size) {
    float best = -INFINITY;
    long where = 0;
    int broken = 0;
    for (long first = 0; first < size && !broken; first += BLOCK) {
        long end = first + BLOCK < size ? first + BLOCK : size;
        float most = -INFINITY;
#pragma omp simd reduction(max : most) reduction(| : broken)
        for (long i = first; i < end; i++) {
            float x = load(bf16, row, i);
            most = x > most ? x : most;
            broken |= x != x;
        }
        if (most > best || broken) best = most, where = first;
    }
    for (long i = where; i < size; i++) {
        float x = load(bf16, row, i);
        if (broken ? x != x : x == best) return i;
    }
    return 0;
}

/* Of numbers none of which is above `best`. */
INLINE float log_sum_exp(const int bf16, const void *row, long size, float best) {
    if (!isfinite(best)) return best;
    double sum = 0.0;
    for (long first = 0; first < size; first += BLOCK) {
        long end = first + BLOCK < size ? first + BLOCK : size, i = first;
        floats part = {};
        for (; i + LANES <= end; i += LANES) part += exponential(load_each(bf16, row, i) - best);
        sum += added_up(part);
        for (; i < end; i++) sum += exponential((floats){} + (load(bf16, row, i) - best))[0];
    }
    return best + logf((float)sum);
}

/* The best of each row, and where these are wanted its value and the logarithm of the sum of all exponentials. */
void sensorium_best(int bf16, const void *x, long rows, long size, int64_t *best, float *highest, float *log_sum,
                    int threads) {
#pragma omp parallel for num_threads(threads) if (rows * size >= WORTH_THREADS && rows > 1)
    for (long row = 0; row < rows; row++) {
        const void *from = past(bf16, x, row * size);
        long at = bf16 ? best_of(1, from, size) : best_of(0, from, size);
        float most = load(bf16, from, at);
        best[row] = at;
        if (highest) highest[row] = most;
        if (log_sum) log_sum[row] = bf16 ? log_sum_exp(1, from, size, most) : log_sum_exp(0, from, size, most);
    }
}
