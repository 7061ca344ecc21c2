/* Attention for many query vectors where products of tiles are instructions: bfloat16, heads of whole tiles.
 *
 * Keys are met where they lie, sixteen positions to a tile, and queries are columns, as in attend_many.h, which
 * this is a part of. Scores of a chunk go through memory that the core holds. Of values a row is a dimension
 * and a word two positions: those of an encoder are laid so once, those of a cache chunk by chunk.
 */
#pragma once
#include "attend_pairs.h"
#include "tiles.h"

/* Whether heads are made of whole tiles, and there are any that the system lets us use. */
static int takes_tiles(int bf16, int coded, long dim) {
#ifdef __AVX512BF16__
    return bf16 && !coded && dim % 32 == 0 && tiles_allowed();
#else
    (void)bf16, (void)coded, (void)dim;
    return 0;
#endif
}

/* Pairs of positions [pairs, padded] become [dim, stride]; what is missing of sixteen pairs is 0. */
INLINE void turn_values(const uint32_t *from, long padded, long dim, long pairs, uint32_t *to, long stride) {
    for (long pair = 0; pair < pairs; pair += LANES)
        for (long d = 0; d < dim; d += LANES)
            turn(from + pair * padded + d, padded, to + d * stride + pair, stride,
                 pairs - pair < LANES ? pairs - pair : LANES);
}

#ifdef __AVX512BF16__
/* c [32, 16 or 32] = or += a [32 rows, 16 `steps` words] · b [16 `steps` words, columns]; rows of `a` in two halves. */
INLINE void multiply_tiles(const int two, const int add, const uint32_t *upper, const uint32_t *lower, long a_stride,
                           const uint32_t *b, long wide, long steps, float *c) {
    before_loading();
    if (add) {
        load_tile(0, c, wide);
        load_tile(1, c + 16 * wide, wide);
        if (two) {
            load_tile(2, c + 16, wide);
            load_tile(3, c + 16 * wide + 16, wide);
        }
    } else {
        clear_tile(0);
        clear_tile(1);
        if (two) {
            clear_tile(2);
            clear_tile(3);
        }
    }
    for (long k = 0; k < steps * 16; k += 16) {
        load_tile(4, upper + k, a_stride);
        load_tile(6, b + k * wide, wide);
        add_tiles(0, 4, 6);
        load_tile(5, lower + k, a_stride);
        add_tiles(1, 5, 6);
        if (two) {
            load_tile(7, b + k * wide + 16, wide);
            add_tiles(2, 4, 7);
            add_tiles(3, 5, 7);
        }
    }
    store_tile(0, c, wide);
    store_tile(1, c + 16 * wide, wide);
    if (two) {
        store_tile(2, c + 16, wide);
        store_tile(3, c + 16 * wide + 16, wide);
    }
}

/* The same for all `wide` columns. */
INLINE void multiply_all(const int add, const uint32_t *upper, const uint32_t *lower, long a_stride, const uint32_t *b,
                         long wide, long steps, float *c) {
    long m = 0;
    for (; m + 32 <= wide; m += 32) multiply_tiles(1, add, upper, lower, a_stride, b + m, wide, steps, c + m);
    if (m < wide) multiply_tiles(0, add, upper, lower, a_stride, b + m, wide, steps, c + m);
}

/* Sixteen keys from position `at` on: where they lie, or copied there if they lie in several places or fewer are left. */
INLINE const uint32_t *sixteen_keys(const Call *call, const int32_t *table, long head, long at, long end,
                                    uint32_t *copy) {
    long n = call->dim / 2, bs = call->block_size;
    for (long i = 0; i < 16; i++) {
        long block = (at + i) / bs, offset = (at + i) % bs;
        const uint32_t *key = (const uint32_t *)call->keys + ((*table * call->kv_heads + head) * bs + offset) * n;
        if (at + i >= end) break;
        if (call->cache)
            key = (const uint32_t *)call->cache + ((table[block] * call->planes * call->kv_heads + head) * bs + offset) * n;
        if (!i && offset + 16 <= bs) return key;
        memcpy(copy + i * n, key, (size_t)(n * 4));
    }
    return copy;
}

/* Scores of a chunk, from `start` on, in s->s [count, wide]. */
INLINE void score_tiles(const Call *call, const int32_t *table, long head, long start, long count, long wide,
                        Scratch *s) {
    long n = call->dim / 2;
    uint32_t *copies = s->k + call->dim * CHUNK / 2;
    for (long j = 0; j < count; j += 32) {
        const uint32_t *keys = sixteen_keys(call, table, head, start + j, start + count, copies + j * n), *next = keys;
        if (j + 16 < count) next = sixteen_keys(call, table, head, start + j + 16, start + count, copies + (j + 16) * n);
        multiply_all(0, keys, next, n, s->q, wide, n / 16, s->s + j * wide);
    }
}

/* Scores of sixteen columns become weights in s->p, those of a last half pair included. */
INLINE void weigh_column(const int masked, const Call *call, const Pairs *pairs, long wide, long m, Scratch *s) {
    const float *score = s->s + m;
    floats most = (floats){} - INFINITY, exceeds = most, sum = {};
    integers low = *(integers *)(s->low + m), high = *(integers *)(s->high + m);
    for (long j = 0; j < pairs->count; j++) {
        floats x = *(const floats *)(score + j * wide);
        if (masked) x = pick((words)(((integers){} + (int)j >= low) & ((integers){} + (int)j < high)), x, (floats){} - INFINITY);
        most = larger(x, most);
    }
    raise(call, most * pairs->scale, wide, m, s);
    for (long j = 0; j < pairs->count; j += 2)
        weigh_pair(masked, pairs, (int)m, j, *(const floats *)(score + j * wide), *(const floats *)(score + (j + 1) * wide),
                   pairs->p + j / 2 * wide + m, &exceeds, &sum);
    *(floats *)(s->sum + m) += sum;
}

static __attribute__((noinline)) void weigh_tiles(int masked, const Call *call, const Pairs *pairs, long wide, Scratch *s) {
    for (long m = 0; m < wide; m += LANES)
        if (masked)
            weigh_column(1, call, pairs, wide, m, s);
        else
            weigh_column(0, call, pairs, wide, m, s);
    long made = (pairs->count + 1) / 2, wanted = (made + 15) / 16 * 16;
    memset(pairs->p + made * wide, 0, (size_t)((wanted - made) * wide) * 4);
}

/* Values of a chunk as [dim, *stride]. */
INLINE const uint32_t *turned_values(const Call *call, const int32_t *table, long head, long start, long count,
                                     long *stride, Scratch *s) {
    long dim = call->dim, bs = call->block_size, row = dim * 2;
    if (call->values) {
        *stride = (bs + 31) / 32 * 16;
        return (const uint32_t *)call->values + (*table * call->kv_heads + head) * dim * *stride + start / 2;
    }
    for (long done = 0, now; done < count; done += now) {
        long at = start + done, offset = at % bs;
        now = bs - offset < count - done ? bs - offset : count - done;
        const char *key = call->cache + ((table[at / bs] * call->planes * call->kv_heads + head) * bs + offset) * row;
        pair_values(1, key + values_behind(call) * row, row, dim, done, now, s->v, s->padded);
    }
    *stride = CHUNK / 2;
    turn_values(s->v, s->padded, dim, (count + 1) / 2, s->k, *stride);
    return s->k;
}

/* As `attend`. */
static __attribute__((noinline)) void attend_tiles(const Call *call, const int32_t *table, long first_row, long rows,
                                                   long position, long kv_head, Scratch *s) {
    long vectors = rows * (call->heads / call->kv_heads), wide = (vectors + LANES - 1) / LANES * LANES;
    long end = position + (call->causal ? rows : 0), start = first_read(call, position), stride;
    Pairs pairs = {0, s->q, s->low, s->high, s->top, call->scale * 1.44269504f, call->dim / 2, 0, s->p, s->part};
    begin_many(1, call, first_row, rows, position, kv_head, wide, s);
    begin_tiles();
    for (; start < end; start += CHUNK) {
        pairs.count = end - start < CHUNK ? end - start : CHUNK;
        score_tiles(call, table, kv_head, start, pairs.count, wide, s);
        integers last = (integers){} + (int)pairs.count;
        for (long m = 0; m < wide; m += LANES) {
            integers high = *(integers *)(s->own + m) - (int)start + 1;
            *(integers *)(s->low + m) = *(integers *)(s->first + m) - (int)start;
            *(integers *)(s->high + m) = (integers)pick((words)(high < last), (floats)high, (floats)last);
        }
        int masked = hides(call, position, rows, start, pairs.count);
        weigh_tiles(masked || pairs.count % 2, call, &pairs, wide, s);
        const uint32_t *values = turned_values(call, table, kv_head, start, pairs.count, &stride, s);
        for (long d = 0; d < call->dim; d += 32)
            multiply_all(1, values + d * stride, values + (d + 16) * stride, stride, s->p, wide, (pairs.count + 31) / 32,
                         s->o + d * wide);
    }
    end_tiles();
    end_many(1, call, first_row, rows, kv_head, wide, s);
}
#endif
