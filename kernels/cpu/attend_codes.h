/* Attention for few query vectors over keys and values of 8 bits, read once, where they lie (codes.h).
 *
 * Queries become whole numbers of 16 bits, and so do the weights of 16 positions; both meet codes as two
 * bytes, so that sums are exact, and are scaled after.
 */
#include "attention.h"
#include "codes.h"
#define MOST_QUERY (127 * 256)
#define MOST_WEIGHT 65535
#define LEAST 1e-30f /* weights below which nothing is added */

/* A query: `dim` upper bytes, `dim` lower ones, its unit as a float, what the keys' MIDDLE adds. */
INLINE long query_words(long dim) { return dim / 2 + 2; }

INLINE void round_query(const int bf16, const void *x, long dim, uint32_t *to) {
    union {
        uint32_t bits;
        float value;
    } most = {largest_bits(bf16, x, dim)}, unit;
    int is_finite = most.bits < 0x7F800000u;
    int8_t *upper = (int8_t *)to, *lower = upper + dim;
    int32_t sum = 0;
    float factor = is_finite && most.value > LEAST ? MOST_QUERY / most.value : 0.0f;
#pragma omp simd reduction(+ : sum)
    for (long i = 0; i < dim; i++) {
        int32_t whole = factor > 0.0f ? to_whole(load(bf16, x, i) * factor) : 0;
        int32_t high = (whole + 128) >> 8;
        upper[i] = (int8_t)high;
        lower[i] = (int8_t)(whole - 256 * high);
        sum += whole;
    }
    unit.value = is_finite ? most.value / MOST_QUERY : NAN;
    to[dim / 2] = unit.bits;
    to[dim / 2 + 1] = (uint32_t)sum * MIDDLE;
}

/* Scores of `vectors` queries with 16 positions, but for the keys' scales. */
INLINE void score_codes(const int vectors, const uint32_t *q, const word *key, const word *next, long dim,
                        float *scores) {
    long quads = dim / 4, stride = query_words(dim);
    for (long at = 0; at < LANES; at += WIDE) {
        wide_integers upper[FEW] = {}, lower[FEW] = {};
        for (long k = 0; k < quads; k++) {
            wide_words line = *(const wide_words *)(key + k * LANES + at);
            if (!at) __builtin_prefetch(next + k * LANES, 0, 2);
#pragma GCC unroll 8
            for (int m = 0; m < vectors; m++) {
                upper[m] = add_products(upper[m], line, (wide_words){} + q[m * stride + k]);
                lower[m] = add_products(lower[m], line, (wide_words){} + q[m * stride + quads + k]);
            }
        }
#pragma GCC unroll 8
        for (int m = 0; m < vectors; m++) {
            const uint32_t *own = q + m * stride + 2 * quads;
            wide_words total = ((wide_words)upper[m] << 8) + (wide_words)lower[m] - own[1];
            *(wide_floats *)(scores + m * CHUNK + at) =
                __builtin_convertvector((wide_integers)total, wide_floats) * *(const float *)own;
        }
    }
}

/* 16 weights as whole numbers, the upper bytes of all and the lower; what one of them stands for. One that is
 * no number makes it infinite. */
INLINE float round_weights(const float *weights, uint32_t *upper, uint32_t *lower) {
    floats w = *(const floats *)weights;
    float most = largest(pick((words)(w == w), w, (floats){} + INFINITY));
    float factor = most > LEAST ? MOST_WEIGHT / most : 0.0f;
    integers whole = __builtin_convertvector(w * factor + 0.5f, integers);
    plain_bytes high = __builtin_convertvector(whole >> 8, plain_bytes);
    plain_bytes low = __builtin_convertvector(whole & 255, plain_bytes);
    memcpy(upper, &high, sizeof high);
    memcpy(lower, &low, sizeof low);
    return most > LEAST ? most / MOST_WEIGHT : 0.0f;
}

/* Adds the values of 16 positions, weighted by weights times the values' scales. */
INLINE void add_codes(const int vectors, const float *weights, const word *value, const word *next, long dim,
                      float *out, long padded) {
    uint32_t upper[FEW][4], lower[FEW][4];
    float unit[FEW];
#pragma GCC unroll 8
    for (int m = 0; m < vectors; m++) unit[m] = round_weights(weights + m * CHUNK, upper[m], lower[m]);
    for (long d = 0; d < dim; d += WIDE) {
        wide_integers high[FEW] = {}, low[FEW] = {};
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            wide_words line = *(const wide_words *)(value + g * dim + d);
            if (WIDE == LANES || d % LANES == 0) __builtin_prefetch(next + g * dim + d, 0, 2);
#pragma GCC unroll 8
            for (int m = 0; m < vectors; m++) {
                high[m] = add_products(high[m], (wide_words){} + upper[m][g], line);
                low[m] = add_products(low[m], (wide_words){} + lower[m][g], line);
            }
        }
#pragma GCC unroll 8
        for (int m = 0; m < vectors; m++)
            *(wide_floats *)(out + m * padded + d) +=
                __builtin_convertvector((wide_integers)((wide_words)high[m] << 8) + low[m], wide_floats) * unit[m];
    }
}

INLINE void begin_codes(int bf16, const Call *call, long first_row, long rows, long kv_head, Scratch *s,
                        long v) {
    long group = call->heads / call->kv_heads;
    for (long m = 0; m < rows * group; m++) {
        uint32_t *to = s->q + (v + m) * query_words(call->dim);
        if (bf16)
            round_query(1, query_at(1, call, first_row, kv_head, m), call->dim, to);
        else
            round_query(0, query_at(0, call, first_row, kv_head, m), call->dim, to);
    }
    clear(call, kv_head, rows * group, s, v);
}

/* As `attend_few`. Positions come 16 at a time, whatever of them is seen. */
INLINE void attend_codes(int bf16, const int vectors, const Call *call, const int32_t *table,
                         long first_row, long rows, long position, long head, long last, Scratch *s) {
    long group = call->heads / call->kv_heads, dim = call->dim, bs = call->block_size;
    long end = position + (call->causal ? rows : 0), record = record_bytes(bs, dim);
    long plane = call->kv_heads * record;
    for (long h = head; h < last; h++) begin_codes(bf16, call, first_row, rows, h, s, (h - head) * vectors);
    for (long at = first_seen(call, position) / LANES * LANES; at < end; at += LANES) {
        long count = end - at < LANES ? end - at : LANES;
        const char *keys = call->cache + table[at / bs] * 2 * plane, *values = keys + plane;
        long codes = at % bs * dim, scales = bs * dim + at % bs * 2;
        for (long h = head; h < last; h++) {
            long v = (h - head) * vectors;
            Later next = later(call, table, at, end, h, head, last, LANES, LANES * dim);
            score_codes(vectors, s->q + v * query_words(dim), (const word *)(keys + h * record + codes),
                        (const word *)(call->cache + next.block * 2 * plane + next.head * record + next.offset * dim),
                        dim, s->s + v * CHUNK);
            *(floats *)s->scales = widen_each(*(const halves *)(keys + h * record + scales));
            *(floats *)(s->scales + CHUNK) = widen_each(*(const halves *)(values + h * record + scales));
            for (long m = v; m < v + vectors; m++) {
                long own = position + (m - v) / group - at, high = own + 1 < count ? own + 1 : count;
                long first = first_seen(call, own + at) - at, low = first > 0 ? first : 0;
                weigh(0, 1, s->s + m * CHUNK, s->p + m * CHUNK, s->scales, low < LANES ? low : LANES,
                      high < 0 ? 0 : high, LANES, call->scale, s->top + m, s->sum + m * LANES,
                      s->o + m * s->padded, s->padded);
            }
        }
        for (long h = head; h < last; h++) {
            long v = (h - head) * vectors;
            Later next = later(call, table, at, end, h, head, last, LANES, LANES * dim);
            const char *from = call->cache + (next.block * 2 + 1) * plane + next.head * record + next.offset * dim;
            add_codes(vectors, (const float *)s->p + v * CHUNK, (const word *)(values + h * record + codes),
                      (const word *)from, dim, s->o + v * s->padded, s->padded);
        }
    }
    for (long h = head; h < last; h++) write_out(bf16, call, s, first_row, rows, h, (h - head) * vectors);
}

/* One function for either type of queries, which matters at the ends only. */
#define CODES_OF(VECTORS)                                                                                  \
    static __attribute__((noinline)) void codes_of_##VECTORS(                                              \
        int bf16, const Call *call, const int32_t *table, long first_row, long rows, long position,        \
        long head, long last, Scratch *s) {                                                                \
        attend_codes(bf16, VECTORS, call, table, first_row, rows, position, head, last, s);                \
    }
CODES_OF(1)
CODES_OF(2)
CODES_OF(3)
CODES_OF(4)
CODES_OF(6)
CODES_OF(8)
