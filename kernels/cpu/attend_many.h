/* Attention for many query vectors, those of prompts, draft checks and encoders, as products of matrices.
 *
 * Query vectors are columns, sixteen to a line: keys meet them where they lie, a word of each position at a
 * time, and a softmax never sums across a line. Of values two positions of one dimension make a word in
 * bfloat16, as they do of weights. A column's result does not depend on those beside it.
 */
#include "attend_pairs.h"
#include "codes.h"
#define FIRST 6 /* positions from whose scores the largest is guessed */

/* Functions of their own, since a compiler that inlines them among the rest runs out of registers: of rows
 * whose words lie behind each other, and of columns whose words do. */
#define PRODUCT(NAME, BF16, ADD, STRIDE, STEP)                                                              \
    static __attribute__((noinline, noclone)) void NAME(long rows, long cols, const word *a, long a_stride, \
                                                        const uint32_t *b, long n, float *c) {              \
        product(BF16, rows, cols, ADD, a, STRIDE, STEP, b, cols, n, c, cols);                               \
    }
PRODUCT(score_bf16, 1, 0, a_stride, 1)
PRODUCT(score_float, 0, 0, a_stride, 1)
PRODUCT(score_codes_bf16, 1, 0, 1, a_stride)
PRODUCT(score_codes_float, 0, 0, 1, a_stride)
PRODUCT(add_bf16, 1, 1, 1, a_stride)
PRODUCT(add_float, 0, 1, 1, a_stride)

/* 16 × 16 words, rows `from` apart by `stride`, written as columns `to_stride` apart. */
INLINE void turn(const word *from, long stride, uint32_t *to, long to_stride, long rows) {
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
    for (int i = 0; i < 16; i++) *(words *)(to + i * to_stride) = x[i];
}

/* Values of `count` positions, `stride` bytes apart, starting `at` positions into the chunk. */
INLINE void pair_values(const int bf16, const char *from, long stride, long dim, long at, long count,
                        uint32_t *to, long padded) {
    for (long i = 0; i < count; i++) {
        if (!bf16) {
            memcpy(to + (at + i) * padded, from + i * stride, (size_t)dim * 4);
            continue;
        }
        const uint16_t *value = (const uint16_t *)(from + i * stride);
        uint32_t *pair = to + (at + i) / 2 * padded;
        if ((at + i) % 2) {
#pragma omp simd
            for (long d = 0; d < dim; d++) pair[d] |= (uint32_t)value[d] << 16;
        } else if (i + 1 < count) {
            const uint16_t *next = (const uint16_t *)(from + (i + 1) * stride);
#pragma omp simd
            for (long d = 0; d < dim; d++) pair[d] = value[d] | (uint32_t)next[d] << 16;
            i++;
        } else {
#pragma omp simd
            for (long d = 0; d < dim; d++) pair[d] = value[d];
        }
    }
}

/* Queries become columns, `wide` of them; those beyond the last are 0. */
INLINE void begin_many(const int bf16, const Call *call, long first_row, long rows, long position, long kv_head,
                       long wide, Scratch *s) {
    long group = call->heads / call->kv_heads, n = call->dim * (bf16 ? 2 : 4) / 4;
    uint32_t *lines = (uint32_t *)s->o; /* not used yet, and as large */
    for (long m = 0; m < wide; m += LANES) {
        long count = rows * group - m < LANES ? rows * group - m : LANES, w = 0;
        for (long i = 0; i < count; i++)
            memcpy(lines + i * n, query_at(bf16, call, first_row, kv_head, m + i), (size_t)(n * 4));
        for (; w + LANES <= n; w += LANES) turn(lines + w, n, s->q + w * wide + m, wide, count);
        for (; w < n; w++)
            for (long i = 0; i < LANES; i++) s->q[w * wide + m + i] = i < count ? lines[i * n + w] : 0;
        for (long i = 0; i < LANES; i++) {
            s->own[m + i] = (int32_t)(position + (m + i) / group);
            s->first[m + i] = (int32_t)first_seen(call, s->own[m + i]);
        }
        for (long i = 0; i < LANES; i++) s->top[m + i] = sink_of(call, kv_head, m + i) * 1.44269504f;
        *(floats *)(s->sum + m) = (floats){} + (call->sinks ? 1.0f : 0.0f);
    }
    memset(s->o, 0, (size_t)(call->dim * wide) * 4);
}

/* Scores of up to CHUNK positions, whose values are made ready, too. */
INLINE void score_many(const int bf16, const Call *call, const int32_t *table, long head, long start,
                       long count, long wide, Scratch *s) {
    long size = bf16 ? 2 : 4, n = call->dim * size / 4, bs = call->block_size, row = call->dim * size;
    for (long done = 0, now; done < count; done += now) {
        long at = start + done, offset = at % bs;
        now = bs - offset < count - done ? bs - offset : count - done;
        const char *key = call->cache + ((table[at / bs] * call->planes * call->kv_heads + head) * bs + offset) * row;
        (bf16 ? score_bf16 : score_float)(now, wide, (const word *)key, n, s->q, n, s->s + done * wide);
        pair_values(bf16, key + values_behind(call) * row, row, call->dim, done, now, s->v, s->padded);
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

/* 2^x up to 2^127; next to 0 from −126 down. */
INLINE wide_floats power_of_two(wide_floats x) {
    x = wide_larger((wide_floats){} - 126.0f, x);
    wide_floats shifted = x + 12582912.0f; /* adding 1.5 · 2^23 rounds to an integer */
    wide_floats r = x - (shifted - 12582912.0f), p = (wide_floats){} + 1.3264726624e-3f;
    p = wide_fused(p, r, (wide_floats){} + 9.6715129594e-3f);
    p = wide_fused(p, r, (wide_floats){} + 5.5507337478e-2f);
    p = wide_fused(p, r, (wide_floats){} + 2.4022242080e-1f);
    p = wide_fused(p, r, (wide_floats){} + 6.9314697759e-1f);
    p = wide_fused(p, r, (wide_floats){} + 1.0f);
    return (wide_floats)((wide_words)p + ((wide_words)shifted << 23));
}

/* Where the largest score there was has grown by much, weights become relative to it, and what was summed
 * before shrinks. */
INLINE wide_floats raise(const Call *call, wide_floats most, long wide, long m, Scratch *s) {
    wide_floats before = *(wide_floats *)(s->top + m);
    most = wide_pick((wide_words)(most > before + SLACK), most, before);
    if (memcmp(&most, &before, sizeof most)) {
        wide_floats shrink = power_of_two(before - most);
        shrink = wide_pick((wide_words)(before == (wide_floats){} - INFINITY), (wide_floats){}, shrink);
        *(wide_floats *)(s->top + m) = most;
        *(wide_floats *)(s->sum + m) *= shrink;
        for (long d = 0; d < call->dim; d++) *(wide_floats *)(s->o + d * wide + m) *= shrink;
    }
    return most;
}

/* Weights of one position, in bfloat16 rounded upper halves. */
INLINE wide_words weight_bits(const int bf16, const int coded, const int masked, const float *score, float scale,
                              const float *scales, wide_floats most, wide_floats *total) {
    wide_floats x = *(const wide_floats *)score, by = {}; /* masked scores are scaled already */
    by += masked ? 1.0f : coded ? scale * scales[0] : scale;
    wide_floats weight = power_of_two(wide_fused(x, by, -most));
    if (masked) weight = wide_pick((wide_words)(x == (wide_floats){} - INFINITY), (wide_floats){}, weight);
    *total += weight;
    if (coded) weight *= scales[CHUNK];
    return (wide_words)weight + (bf16 ? 0x8000u : 0);
}

/* Scores of a register's columns with `count` positions from `start` on become weights, relative to the largest
 * score there was; what was summed before shrinks where that has grown by much. `masked`: some column does not see some
 * position. Of coded keys and values `scales` go into scores, and into the weights that are left. */
INLINE void weigh_many(const int bf16, const int coded, const int masked, const Call *call, long start,
                       long count, long wide, long m, Scratch *s) {
    float *score = s->s + m;
    const wide_floats nothing = (wide_floats){} - INFINITY;
    const wide_integers own = *(const wide_integers *)(s->own + m) - (int)start;
    const wide_integers low = *(const wide_integers *)(s->first + m) - (int)start;
    float scale = call->scale * 1.44269504f;
    wide_floats most = *(wide_floats *)(s->top + m);
    for (long j = 0; j < count; j++) {
        wide_floats x = *(wide_floats *)(score + j * wide) * (coded ? scale * s->scales[j] : scale);
        if (masked) {
            wide_integers at = (wide_integers){} + (int)j;
            x = wide_pick((wide_words)((at <= own) & (at >= low)), x, nothing);
            *(wide_floats *)(score + j * wide) = x;
        }
        most = wide_larger(x, most);
    }
    most = raise(call, most, wide, m, s);
    wide_floats total = {};
    for (long j = 0; j < count; j++) {
        wide_words bits = weight_bits(bf16, coded, masked, score + j * wide, scale, s->scales + j, most, &total);
        if (bf16) { /* two positions to a word */
            wide_words second = {};
            if (++j < count)
                second = weight_bits(1, coded, masked, score + j * wide, scale, s->scales + j, most, &total);
            bits = bits >> 16 | (second & 0xFFFF0000u);
        }
        *(wide_words *)(s->p + (bf16 ? j / 2 : j) * wide + m) = bits;
    }
    *(wide_floats *)(s->sum + m) += total;
}

/* Columns become rows of the output. */
INLINE void end_many(const int bf16, const Call *call, long first_row, long rows, long kv_head, long wide,
                     const Scratch *s) {
    long group = call->heads / call->kv_heads, dim = call->dim;
    for (long m = 0; m < rows * group; m += LANES) {
        long count = rows * group - m < LANES ? rows * group - m : LANES;
        floats sum = *(const floats *)(s->sum + m);
        for (long d = 0; d < dim; d += LANES) {
            long some = dim - d < LANES ? dim - d : LANES;
            floats lines[LANES], turned[LANES];
            for (long i = 0; i < some; i++) lines[i] = *(const floats *)(s->o + (d + i) * wide + m) / sum;
            turn((const word *)lines, LANES, (uint32_t *)turned, LANES, some);
            for (long i = 0; i < count; i++) {
                long row = first_row + (m + i) / group, head = kv_head * group + (m + i) % group;
                char *to = call->out + ((row * call->heads + head) * dim + d) * (bf16 ? 2 : 4);
                halves narrowed = narrow_each(turned[i]);
                memcpy(to, bf16 ? (const void *)&narrowed : (const void *)&turned[i], (size_t)(some * (bf16 ? 2 : 4)));
            }
        }
    }
}

#include "attend_tiles.h"
#ifdef __AVX512BF16__
/* Raises what weights are relative to by the scores of the first `count` positions. */
INLINE void look(const Call *call, const Pairs *pairs, long count, long wide, Scratch *s) {
    for (long done = 0, now; done < count; done += now) {
        const word *key = pairs->keys[done];
        for (now = 1; now < CHUNK && done + now < count && pairs->keys[done + now] == key + now * pairs->n;) now++;
        score_bf16(now, wide, key, pairs->n, s->q, pairs->n, s->s);
        for (long m = 0; m < wide; m += LANES) {
            floats most = *(floats *)(s->top + m);
            integers low = *(integers *)(s->low + m) - (int)done, high = *(integers *)(s->high + m) - (int)done;
            for (int j = 0; j < now; j++) {
                words seen = (words)(((integers){} + j >= low) & ((integers){} + j < high));
                floats x = pick(seen, *(floats *)(s->s + j * wide + m), (floats){} - INFINITY);
                most = larger(x * pairs->scale, most);
            }
            raise(call, most, wide, m, s);
        }
    }
}

/* Where the keys of `count` positions lie, and in the scratch or the call their values, in pairs. */
INLINE const uint32_t *find(const Call *call, const int32_t *table, long head, long start, long count,
                            const word **keys, Scratch *s) {
    long n = call->dim / 2, bs = call->block_size, item = *table * call->kv_heads + head;
    const uint32_t *values = s->v;
    for (long done = 0, now; done < count; done += now) {
        long at = start + done, offset = at % bs;
        now = bs - offset < count - done ? bs - offset : count - done;
        const word *key = (const word *)call->keys + (item * bs + at) * n;
        if (call->cache) {
            key = (const word *)call->cache + ((table[at / bs] * call->planes * call->kv_heads + head) * bs + offset) * n;
            pair_values(1, (const char *)(key + values_behind(call) * n), n * 4, call->dim, done, now, s->v, s->padded);
        }
        for (long i = 0; i < now; i++) keys[done + i] = key + i * n;
    }
    for (long i = count; i < count + 7; i++) keys[i] = keys[count - 1];
    if (call->values)
        values = (const uint32_t *)call->values + (item * ((bs + 1) / 2) + start / 2) * s->padded;
    return values;
}

/* As `attend`, of queries, keys and values in bfloat16. */
INLINE void attend_pairs(const Call *call, const int32_t *table, long first_row, long rows, long position,
                         long kv_head, Scratch *s) {
    long vectors = rows * (call->heads / call->kv_heads), wide = (vectors + LANES - 1) / LANES * LANES;
    long end = position + (call->causal ? rows : 0);
    long begin = first_read(call, position);
    const word *keys[2 * CHUNK + 7];
    Pairs pairs = {keys, s->q, s->low, s->high, s->top, call->scale * 1.44269504f, call->dim / 2, 0, s->p, s->part};
    begin_many(1, call, first_row, rows, position, kv_head, wide, s);
    for (long start = begin; start < end; start += 2 * CHUNK) {
        pairs.count = end - start < 2 * CHUNK ? end - start : 2 * CHUNK;
        const uint32_t *values = find(call, table, kv_head, start, pairs.count, keys, s);
        integers last = (integers){} + (int)pairs.count;
        for (long m = 0; m < wide; m += LANES) {
            integers high = *(integers *)(s->own + m) - (int)start + 1;
            *(integers *)(s->low + m) = *(integers *)(s->first + m) - (int)start;
            *(integers *)(s->high + m) = (integers)pick((words)(high < last), (floats)high, (floats)last);
        }
        int masked = hides(call, position, rows, start, pairs.count);
        if (start == begin) look(call, &pairs, pairs.count < FIRST ? pairs.count : FIRST, wide, s);
        if (!weigh_group(wide, masked, &pairs)) {
            look(call, &pairs, pairs.count, wide, s);
            weigh_group(wide, masked, &pairs);
        }
        for (long m = 0; m < wide; m += LANES) *(floats *)(s->sum + m) += *(floats *)(s->part + m);
        add_bf16(call->dim, wide, values, s->padded, s->p, (pairs.count + 1) / 2, s->o);
    }
    end_many(1, call, first_row, rows, kv_head, wide, s);
}
#endif

/* Rows `first_row` to `first_row + rows` of the step, at positions from `position` on (behind all they see,
 * if they see the same), and one key-value head. */
INLINE void attend(const int bf16, const int coded, const Call *call, const int32_t *table, long first_row,
                   long rows, long position, long kv_head, Scratch *s) {
#ifdef __AVX512BF16__
    if (takes_tiles(bf16, coded, call->dim)) {
        attend_tiles(call, table, first_row, rows, position, kv_head, s);
        return;
    }
    if (bf16 && !coded) {
        attend_pairs(call, table, first_row, rows, position, kv_head, s);
        return;
    }
#endif
    long vectors = rows * (call->heads / call->kv_heads), wide = (vectors + LANES - 1) / LANES * LANES;
    long n = call->dim * (bf16 ? 2 : 4) / 4, end = position + (call->causal ? rows : 0);
    begin_many(bf16, call, first_row, rows, position, kv_head, wide, s);
    for (long start = first_read(call, position); start < end; start += CHUNK) {
        long count = end - start < CHUNK ? end - start : CHUNK;
        const uint32_t *values = s->v;
        if (coded) {
            load_codes(bf16, call, table, kv_head, start, count, s);
            (bf16 ? score_codes_bf16 : score_codes_float)(count, wide, s->k, CHUNK, s->q, n, s->s);
        } else if (call->keys) {
            long item = *table * call->kv_heads + kv_head, pairs = bf16 ? (call->block_size + 1) / 2 : call->block_size;
            const word *key = (const word *)call->keys + (item * call->block_size + start) * n;
            (bf16 ? score_bf16 : score_float)(count, wide, key, n, s->q, n, s->s);
            values = (const uint32_t *)call->values + (item * pairs + (bf16 ? start / 2 : start)) * s->padded;
        } else
            score_many(bf16, call, table, kv_head, start, count, wide, s);
        int masked = hides(call, position, rows, start, count);
        for (long m = 0; m < wide; m += WIDE) {
            if (masked)
                weigh_many(bf16, coded, 1, call, start, count, wide, m, s);
            else
                weigh_many(bf16, coded, 0, call, start, count, wide, m, s);
        }
        (bf16 ? add_bf16 : add_float)(call->dim, wide, values, s->padded, s->p, bf16 ? (count + 1) / 2 : count, s->o);
    }
    end_many(bf16, call, first_row, rows, kv_head, wide, s);
}
