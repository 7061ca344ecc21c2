/* What all ways of attending share: the call, scratch memory, the running softmax. Read attention.c first.
 */
#pragma once
#include <math.h>
#include "tile.h"
#define CHUNK 64 /* positions between two looks at the running maximum, at most */
#define SPAN 64 /* query vectors that share one reading of keys and values, at most */
#define TILED_SPAN 128 /* the same where products are so fast that reading counts */
#define NEAR_SPAN 32   /* where they are and values lie ready: of heads of 64 all that a chunk touches is 40 KiB then */
#define NEAR_DIM 64
#define SLACK 32.0f /* powers of two by which scores may exceed what weights are relative to */
#define ALIKE 32 /* rows of a sequence that are summed as if each were alone, at most */
#define FEW 8    /* query vectors up to which turning keys costs more than it saves */
#define AHEAD 8192 /* bytes between what is multiplied and what is fetched */

typedef struct {
    const char *query, *cache;
    char *out;
    const int32_t *tables, *query_starts, *contexts;
    long table_width, query_stride, heads, kv_heads, dim, block_size, window, causal;
    float scale;
    const char *const *memories; /* in place of a cache, each sequence's one block */
    const char *keys, *values; /* in place of a cache [sequences, heads, context, dim]; values in pairs, padded */
    long span; /* one of those */
    long chunk; /* 0: rows see all before them, or a window */
    const float *sinks; /* of each head, or 0: the score of nothing, which takes a part of the weights */
    long planes; /* of a block: 2, keys and values, or 1, latents, which are both */
} Call;

typedef struct {
    uint32_t *q, *k, *v, *p; /* words: queries, keys and values turned, weights */
    float *s, *o, *top,
        *sum; /* scores, outputs not yet divided, largest score and LANES sums of each vector */
    float *scales; /* of coded keys, then values */
    float *part;   /* sums of a chunk */
    int32_t *own, *first, *low, *high; /* position of each vector, the first it sees; which ones of a chunk it sees */
    long padded;
} Scratch;

INLINE uint32_t *take(char **from, long words_wanted) {
    uint32_t *here = (uint32_t *)*from;
    *from += (words_wanted * 4 + 63) / 64 * 64;
    return here;
}

static void lay_out(Scratch *s, char *base, long vectors, long dim) {
    char *at = base;
    s->padded = (dim + LANES - 1) / LANES * LANES;
    s->q = take(&at, vectors * dim);
    s->k = take(&at, (dim + LANES) * CHUNK);
    s->v = take(&at, CHUNK * s->padded);
    s->p = take(&at, vectors * CHUNK);
    s->s = (float *)take(&at, vectors * CHUNK);
    s->o = (float *)take(&at, vectors * s->padded);
    s->top = (float *)take(&at, vectors);
    s->sum = (float *)take(&at, vectors * LANES);
    s->scales = (float *)take(&at, 2 * CHUNK);
    s->part = (float *)take(&at, vectors);
    s->own = (int32_t *)take(&at, vectors);
    s->first = (int32_t *)take(&at, vectors);
    s->low = (int32_t *)take(&at, vectors);
    s->high = (int32_t *)take(&at, vectors);
}

static size_t scratch_bytes(long vectors, long dim) {
    long padded = dim + LANES;
    return 4 *
           (size_t)(vectors * (2 * padded + 2 * CHUNK + LANES + 6) + 2 * CHUNK * (padded + 1) + 17 * 64) / 64 * 64;
}

INLINE float largest(floats x) {
    const words turns[4] = {{8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7},
                            {4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11},
                            {2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13},
                            {1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14}};
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        floats turned = __builtin_shuffle(x, turns[i]);
        x = pick((words)(turned > x), turned, x);
    }
    return x[0];
}

/* Scores of one vector become weights; what was summed before shrinks when the maximum grows. Positions
 * `low` to `high` (exclusive) of the chunk are seen, `wide` are computed. Of coded keys and values `scales`
 * go into scores and into the weights that are left. */
INLINE void weigh(const int bf16, const int coded, float *score, uint32_t *weights, const float *scales,
                  long low, long high, long wide, float scale, float *top, float *sum, float *out,
                  long padded) {
    const integers lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const floats nothing = (floats){} - INFINITY;
    floats best = nothing, total = {};
    for (long j = 0; j < wide; j += LANES) {
        words seen = (words)((lanes >= (int)(low - j)) & (lanes < (int)(high - j)));
        floats x = *(floats *)(score + j) * scale;
        if (coded) x *= *(const floats *)(scales + j);
        x = pick(seen, x, nothing);
        *(floats *)(score + j) = x;
        best = pick((words)(x > best), x, best);
    }
    float most = largest(best);
    if (most > *top) {
        float shrink = *top == -INFINITY ? 0.0f : exponential((floats){} + (*top - most))[0];
        *top = most;
        *(floats *)sum *= shrink;
        for (long d = 0; d < padded; d += LANES) *(floats *)(out + d) *= shrink;
    }
    for (long j = 0; j < wide; j += LANES) {
        floats x = *(floats *)(score + j);
        floats weight = pick((words)(x == nothing), (floats){}, exponential(x - *top));
        total += weight;
        if (coded)
            weight = pick((words)(x == nothing), (floats){}, weight * *(const floats *)(scales + CHUNK + j));
        if (bf16)
            *(halves *)(weights + j / 2) = narrow_each(weight);
        else
            *(floats *)(weights + j) = weight;
    }
    *(floats *)sum += total;
}

INLINE void write_out(const int bf16, const Call *call, const Scratch *s, long first_row, long rows,
                      long kv_head, long v) {
    long group = call->heads / call->kv_heads, dim = call->dim;
    for (long m = 0; m < rows * group; m++) {
        long at = ((first_row + m / group) * call->heads + kv_head * group + m % group) * dim;
        const float *from = s->o + (v + m) * s->padded;
        float sum = 0.0f;
        for (int i = 0; i < LANES; i++) sum += s->sum[(v + m) * LANES + i];
        if (bf16) {
            uint16_t *to = (uint16_t *)call->out + at;
#pragma omp simd
            for (long d = 0; d < dim; d++) to[d] = narrow(from[d] / sum);
        } else {
            float *to = (float *)call->out + at;
#pragma omp simd
            for (long d = 0; d < dim; d++) to[d] = from[d] / sum;
        }
    }
}

/* The query of vector `m` of some rows and one key-value head. */
INLINE const char *query_at(const int bf16, const Call *call, long first_row, long kv_head, long m) {
    long group = call->heads / call->kv_heads;
    long at = (first_row + m / group) * call->query_stride + (kv_head * group + m % group) * call->dim;
    return call->query + at * (bf16 ? 2 : 4);
}

/* What few vectors read AHEAD bytes after `positions` from `at` on, `piece` bytes, of head `h` of those from `head`
 * to `last`, which come one after the other. */
typedef struct {
    long block, offset, head;
} Later;

INLINE Later later(const Call *call, const int32_t *table, long at, long end, long h, long head, long last,
                   long positions, long piece) {
    long steps = (AHEAD + piece - 1) / piece, heads = last - head, then = h + steps % heads;
    long on = at + steps / heads * positions;
    if (then >= last) then -= heads, on += positions;
    if (on >= end) on = at;
    return (Later){table[on / call->block_size], on % call->block_size, then};
}

/* How many vectors a head's values of a block lie behind its keys. */
INLINE long values_behind(const Call *call) { return (call->planes - 1) * call->kv_heads * call->block_size; }

/* The first position that one at `own` sees. */
INLINE long first_seen(const Call *call, long own) {
    if (call->chunk > 0) return own - own % call->chunk;
    return call->window > 0 && own >= call->window ? own + 1 - call->window : 0;
}

/* Where rows from `position` on begin to read, but for what they do not see of the first block. Blocks in front of it
 * may be another sequence's, and their entries of the table no blocks. */
INLINE long first_read(const Call *call, long position) {
    return first_seen(call, position) / call->block_size * call->block_size;
}

/* Whether some of `rows` rows from `position` on do not see all of `count` positions from `start` on. */
INLINE int hides(const Call *call, long position, long rows, long start, long count) {
    if (start + count > position + 1) return 1;
    return (call->window > 0 || call->chunk > 0) && first_seen(call, position + rows - 1) > start;
}

/* What vector `m` of a key-value head has seen before any position: the largest score. Its weight is 1. */
INLINE float sink_of(const Call *call, long kv_head, long m) {
    long group = call->heads / call->kv_heads;
    return call->sinks ? call->sinks[kv_head * group + m % group] : -INFINITY;
}

/* `vectors` of the scratch, from `v` on, have seen nothing yet but a sink. */
INLINE void clear(const Call *call, long kv_head, long vectors, Scratch *s, long v) {
    for (long m = v; m < v + vectors; m++) {
        s->top[m] = sink_of(call, kv_head, m - v);
        *(floats *)(s->sum + m * LANES) = (floats){};
        if (call->sinks) s->sum[m * LANES] = 1.0f;
    }
    memset(s->o + v * s->padded, 0, (size_t)(vectors * s->padded) * 4);
}

/* Vectors from `v` on of the scratch become the queries of one key-value head. */
INLINE void begin(const int bf16, const Call *call, long first_row, long rows, long kv_head, Scratch *s,
                  long v) {
    long vectors = rows * (call->heads / call->kv_heads), n = call->dim * (bf16 ? 2 : 4) / 4;
    for (long m = 0; m < vectors; m++)
        memcpy(s->q + (v + m) * n, query_at(bf16, call, first_row, kv_head, m), (size_t)(n * 4));
    clear(call, kv_head, vectors, s, v);
}
