/* Attention for many query vectors, prompts and draft checks, as products of matrices: keys are turned so
 * that a word of all positions lies together, values so that two positions of one bfloat16 do. */
#include "attention.h"
#include "codes.h"

/* Functions of their own, since a compiler that inlines them among the rest runs out of registers. */
#define PRODUCT(NAME, BF16, ADD)                                                                   \
    static __attribute__((noinline)) void NAME(long rows, long cols, const word *a, long a_stride, \
                                               const uint32_t *b, long b_stride, long n, float *c, \
                                               long c_stride) {                                    \
        product(BF16, rows, cols, ADD, a, a_stride, b, b_stride, n, c, c_stride);                  \
    }
PRODUCT(set_bf16, 1, 0)
PRODUCT(set_float, 0, 0)
PRODUCT(add_bf16, 1, 1)
PRODUCT(add_float, 0, 1)

/* 16 × 16 words, rows `from` apart by `stride`, written as columns CHUNK apart. */
INLINE void turn(const word *from, long stride, uint32_t *to, long rows) {
    words x[16], y[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) x[i] = i < rows ? *(const words *)(from + i * stride) : (words){};
    const words low = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
    const words high = {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
#pragma GCC unroll 4
    for (int stage = 0; stage < 4; stage++) { /* four perfect shuffles of rows i and i + 8 */
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            y[2 * i] = __builtin_shuffle(x[i], x[i + 8], low);
            y[2 * i + 1] = __builtin_shuffle(x[i], x[i + 8], high);
        }
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) x[i] = y[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) *(words *)(to + i * CHUNK) = x[i];
}

/* Keys of `count` ≤ 16 positions, `n` words each, into columns of `to`. */
static void turn_keys(const word *from, long n, long count, uint32_t *to) {
    long done = 0;
    for (; done + 16 <= n; done += 16) turn(from + done, n, to + done * CHUNK, count);
    for (; done < n; done++)
        for (long i = 0; i < 16; i++) to[done * CHUNK + i] = i < count ? from[i * n + done] : 0;
}

/* Values of `count` positions starting `at` positions into the chunk. */
INLINE void pair_values(const int bf16, const char *from, long dim, long at, long count, uint32_t *to,
                        long padded) {
    for (long i = 0; i < count; i++) {
        if (!bf16) {
            memcpy(to + (at + i) * padded, from + i * dim * 4, (size_t)dim * 4);
            continue;
        }
        const uint16_t *value = (const uint16_t *)from + i * dim;
        uint32_t *pair = to + (at + i) / 2 * padded;
        if ((at + i) % 2) {
#pragma omp simd
            for (long d = 0; d < dim; d++) pair[d] |= (uint32_t)value[d] << 16;
        } else if (i + 1 < count) {
            const uint16_t *next = value + dim;
#pragma omp simd
            for (long d = 0; d < dim; d++) pair[d] = value[d] | (uint32_t)next[d] << 16;
            i++;
        } else {
#pragma omp simd
            for (long d = 0; d < dim; d++) pair[d] = value[d];
        }
    }
}

/* Positions from `start` on, up to CHUNK of them, of one head. */
INLINE void load_chunk(const int bf16, const Call *call, const int32_t *table, long head, long start,
                       long count, Scratch *s) {
    long size = bf16 ? 2 : 4, n = call->dim * size / 4, bs = call->block_size, row = call->dim * size;
    for (long done = 0; done < count;) {
        long at = start + done, offset = at % bs, take_now = bs - offset;
        if (take_now > count - done) take_now = count - done;
        /* keys are written 16 columns at a time, so a piece must not run over a boundary of 16 */
        if (take_now > 16 - done % 16) take_now = 16 - done % 16;
        long block = table[at / bs];
        const char *key = call->cache + ((block * 2 * call->kv_heads + head) * bs + offset) * row;
        const char *value = key + call->kv_heads * bs * row;
        if (done % 16 == 0 && take_now + done <= CHUNK)
            turn_keys((const word *)key, n, take_now, s->k + done);
        else
            for (long i = 0; i < take_now; i++)
                for (long w = 0; w < n; w++)
                    s->k[w * CHUNK + done + i] = ((const word *)(key + i * row))[w];
        pair_values(bf16, value, call->dim, done, take_now, s->v, s->padded);
        done += take_now;
    }
}

/* Byte `i` of each word as a whole number. */
INLINE floats byte_of(const int is_signed, words line, int i) {
    integers whole = (integers)(line >> 8 * i & 255) - MIDDLE;
    if (is_signed) whole = (integers)(line << (24 - 8 * i)) >> 24;
    return __builtin_convertvector(whole, floats);
}

/* The same as words of numbers, which bfloat16 has: two of them with the next byte. */
INLINE words word_of(const int bf16, const int is_signed, words line, int i) {
    words first = (words)byte_of(is_signed, line, i);
    if (bf16) first = first >> 16 | (words)byte_of(is_signed, line, i + 1);
    return first;
}

/* As `load_chunk`, of codes: 16 positions at a time, and their scales. */
INLINE void load_codes(const int bf16, const Call *call, const int32_t *table, long head, long start,
                       long count, Scratch *s) {
    long bs = call->block_size, dim = call->dim, record = record_bytes(bs, dim);
    const int each = bf16 ? 2 : 1; /* numbers to a word */
    for (long done = 0; done < count; done += LANES) {
        long at = start + done, offset = at % bs;
        const char *keys = call->cache + (table[at / bs] * 2 * call->kv_heads + head) * record;
        const char *values = keys + call->kv_heads * record;
        *(floats *)(s->scales + done) = widen_each(*(const halves *)(keys + bs * dim + 2 * offset));
        *(floats *)(s->scales + CHUNK + done) = widen_each(*(const halves *)(values + bs * dim + 2 * offset));
        for (long d = 0; d < dim; d += 4) { /* four dimensions of 16 positions */
            words line = *(const words *)(keys + offset * dim + d * LANES);
            for (int i = 0; i < 4; i += each)
                *(words *)(s->k + (d + i) / each * CHUNK + done) = word_of(bf16, 0, line, i);
        }
        for (long first = 0; first < LANES; first += 4) /* four positions of 16 dimensions */
            for (long d = 0; d < dim; d += LANES) {
                words line = *(const words *)(values + (offset + first) * dim + d * 4);
                for (int i = 0; i < 4; i += each)
                    *(words *)(s->v + (done + first + i) / each * s->padded + d) = word_of(bf16, 1, line, i);
            }
    }
}

/* Rows `first_row` to `first_row + rows` of the step, at positions from `position` on (behind all they see,
 * if they see the same), and one key-value head. */
INLINE void attend(const int bf16, const int coded, const Call *call, const int32_t *table, long first_row,
                   long rows, long position, long kv_head, Scratch *s) {
    long group = call->heads / call->kv_heads, vectors = rows * group;
    long n = call->dim * (bf16 ? 2 : 4) / 4, end = position + (call->causal ? rows : 0);
    begin(bf16, call, first_row, rows, kv_head, s, 0);
    long start =
        call->window > 0 && position + 1 > call->window ? (position + 1 - call->window) / CHUNK * CHUNK : 0;
    for (; start < end; start += CHUNK) {
        long count = end - start < CHUNK ? end - start : CHUNK, wide = (count + LANES - 1) / LANES * LANES;
        /* Words of positions that do not exist meet weights of 0, so they must be finite. */
        if (count < CHUNK) memset(s->v, 0, (size_t)(CHUNK * s->padded) * 4);
        if (coded)
            load_codes(bf16, call, table, kv_head, start, count, s);
        else
            load_chunk(bf16, call, table, kv_head, start, count, s);
        (bf16 ? set_bf16 : set_float)(vectors, wide, s->q, n, s->k, CHUNK, n, s->s, CHUNK);
        long p_stride = bf16 ? CHUNK / 2 : CHUNK;
        for (long m = 0; m < vectors; m++) {
            long own = position + m / group - start, high = own + 1 < count ? own + 1 : count;
            long low = call->window > 0 && own >= call->window ? own + 1 - call->window : 0;
            if (high < 0) high = 0;
            if (low > wide) low = wide;
            weigh(bf16, coded, s->s + m * CHUNK, s->p + m * p_stride, s->scales, low, high, wide, call->scale,
                  s->top + m, s->sum + m * LANES, s->o + m * s->padded, s->padded);
        }
        (bf16 ? add_bf16 : add_float)(vectors, s->padded, s->p, p_stride, s->v, s->padded,
                                      bf16 ? wide / 2 : wide, s->o, s->padded);
    }
    write_out(bf16, call, s, first_row, rows, kv_head, 0);
}
