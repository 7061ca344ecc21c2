/* Attention for few query vectors, a decode step, which reads keys and values once, where they lie. */
#include "attention.h"

#if WIDE == 16
static const wide_words EVEN = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
static const wide_words ODD = {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
#elif WIDE == 8
static const wide_words EVEN = {0, 8, 1, 9, 2, 10, 3, 11}, ODD = {4, 12, 5, 13, 6, 14, 7, 15};
#else
static const wide_words EVEN = {0, 4, 1, 5}, ODD = {2, 6, 3, 7};
#endif

/* As many vectors as they have lanes → their sums. Each stage halves what is left, by the shuffles of `turn`. */
INLINE wide_floats sum_each(wide_floats *x) {
#pragma GCC unroll 4
    for (int half = WIDE / 2; half >= 1; half /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < half; i++)
            x[i] = __builtin_shuffle(x[i], x[i + half], EVEN) + __builtin_shuffle(x[i], x[i + half], ODD);
    return x[0];
}

/* Scores of `vectors` queries with `count` ≤ WIDE positions, read where they lie. Meanwhile what comes
 * next is fetched: pieces are too short for the hardware to see where memory is read on. */
INLINE void score_few(const int bf16, const int vectors, const uint32_t *q, const word *key,
                      const word *next, long n, long count, float *scores) {
    wide_floats sums[FEW][WIDE];
#pragma GCC unroll 8
    for (int m = 0; m < vectors; m++)
#pragma GCC unroll 16
        for (int j = 0; j < WIDE; j++) sums[m][j] = (wide_floats){};
    for (long j = 0; j < count; j++) {
        wide_floats sum[FEW] = {};
        for (long w = 0; w < n; w += WIDE) {
            wide_words line = *(const wide_words *)(key + j * n + w);
            if (WIDE == LANES || w % LANES == 0) __builtin_prefetch(next + j * n + w, 0, 2);
#pragma GCC unroll 8
            for (int m = 0; m < vectors; m++)
                sum[m] = multiply_add(bf16, sum[m], *(const wide_words *)(q + m * n + w), line);
        }
#pragma GCC unroll 8
        for (int m = 0; m < vectors; m++) sums[m][j] = sum[m];
    }
#pragma GCC unroll 8
    for (int m = 0; m < vectors; m++) *(wide_floats *)(scores + m * CHUNK) = sum_each(sums[m]);
}

/* Adds weighted values of `count` positions to `out` [vectors, 2n or n]. In bfloat16 a word holds an
 * even and an odd dimension; two positions make a word of each, and the sums of 16 even ones lie before
 * those of 16 odd. */
INLINE void add_few(const int bf16, const int vectors, const uint32_t *weights, long stride,
                    const word *value, const word *next, long n, long count, float *out, long padded) {
    for (long w = 0; w < n; w += WIDE) {
        wide_floats even[FEW], odd[FEW] = {};
        const int fetches = WIDE == LANES || w % LANES == 0;
        float *to = out + (bf16 ? w + w / LANES * LANES : w);
#pragma GCC unroll 8
        for (int m = 0; m < vectors; m++) {
            even[m] = *(wide_floats *)(to + m * padded);
            if (bf16) odd[m] = *(wide_floats *)(to + m * padded + LANES);
        }
        for (long j = 0; j < count; j += bf16 ? 2 : 1) {
            wide_words first = *(const wide_words *)(value + j * n + w);
            if (!bf16) {
                if (fetches) __builtin_prefetch(next + j * n + w, 0, 2);
#pragma GCC unroll 8
                for (int m = 0; m < vectors; m++)
                    even[m] = multiply_add(FLOATS, even[m], (wide_words){} + weights[m * stride + j], first);
                continue;
            }
            if (fetches) __builtin_prefetch(next + j * n + 2 * w, 0, 2);
            if (fetches) __builtin_prefetch(next + j * n + 2 * w + LANES, 0, 2);
            wide_words second = j + 1 < count ? *(const wide_words *)(value + (j + 1) * n + w) : (wide_words){};
            wide_words evens = (first & 0xFFFF) | (second << 16), odds = (first >> 16) | (second & 0xFFFF0000u);
#pragma GCC unroll 8
            for (int m = 0; m < vectors; m++) {
                wide_words weight = (wide_words){} + weights[m * stride + j / 2];
                even[m] = multiply_add(PAIRS, even[m], weight, evens);
                odd[m] = multiply_add(PAIRS, odd[m], weight, odds);
            }
        }
#pragma GCC unroll 8
        for (int m = 0; m < vectors; m++) {
            *(wide_floats *)(to + m * padded) = even[m];
            if (bf16) *(wide_floats *)(to + m * padded + LANES) = odd[m];
        }
    }
}

/* As `attend`, for few vectors and the heads from `head` to `last`: block after block, or CHUNK positions of one
 * that is longer, all heads, which reads memory in the order it lies in. Scratch holds the vectors of all these heads. */
INLINE void attend_few(const int bf16, const int vectors, const Call *call, const int32_t *table,
                       long first_row, long rows, long position, long head, long last, Scratch *s) {
    long group = call->heads / call->kv_heads, n = call->dim * (bf16 ? 2 : 4) / 4, end = position + (call->causal ? rows : 0);
    long bs = call->block_size, p_stride = bf16 ? CHUNK / 2 : CHUNK, plane = call->kv_heads * bs * n;
    long whole = call->planes * plane, behind = whole - plane; /* a block, and its values */
    for (long h = head; h < last; h++) begin(bf16, call, first_row, rows, h, s, (h - head) * vectors);
    for (long at = first_seen(call, position), count; at < end; at += count) {
        long left = bs - at % bs;
        count = left < end - at ? left : end - at;
        count = count < CHUNK ? count : CHUNK;
        long wide = (count + LANES - 1) / LANES * LANES;
        const word *cache = (const word *)call->cache;
        const word *block = cache + table[at / bs] * whole + at % bs * n;
        for (long h = head; h < last; h++) {
            const word *key = block + h * bs * n;
            Later next = later(call, table, at, end, h, head, last, wide, wide * n * 4);
            const word *then = cache + next.block * whole + (next.head * bs + next.offset) * n;
            long v = (h - head) * vectors;
            for (long c = 0; c < count; c += WIDE)
                score_few(bf16, vectors, s->q + v * n, key + c * n, then + c * n,
                          n, count - c < WIDE ? count - c : WIDE, s->s + v * CHUNK + c);
            for (long m = v; m < v + vectors; m++) {
                long own = position + (m - v) / group - at, high = own + 1 < count ? own + 1 : count;
                long first = first_seen(call, own + at) - at, low = first > 0 ? first : 0;
                weigh(bf16, 0, s->s + m * CHUNK, s->p + m * p_stride, 0, low < wide ? low : wide,
                      high < 0 ? 0 : high, wide, call->scale, s->top + m, s->sum + m * LANES,
                      s->o + m * s->padded, s->padded);
            }
        }
        for (long h = head; h < last; h++) {
            const word *value = block + behind + h * bs * n;
            long v = (h - head) * vectors;
            Later next = later(call, table, at, end, h, head, last, wide, wide * n * 4);
            add_few(bf16, vectors, s->p + v * p_stride, p_stride, value,
                    cache + next.block * whole + behind + (next.head * bs + next.offset) * n, n, count,
                    s->o + v * s->padded, s->padded);
        }
    }
    for (long h = head; h < last; h++) {
        long v = (h - head) * vectors;
        for (long m = v; bf16 && m < v + vectors; m++)
            for (long w = 0; w < call->dim; w += 2 * LANES) { /* even and odd dimensions back in turn */
                float *at = s->o + m * s->padded + w, mixed[2 * LANES];
                for (long d = 0; d < LANES; d++) mixed[2 * d] = at[d], mixed[2 * d + 1] = at[LANES + d];
                memcpy(at, mixed, sizeof mixed);
            }
        write_out(bf16, call, s, first_row, rows, h, v);
    }
}
