/* What surrounds the products of a decoder layer, in one pass each: norms, rotary embedding, the write
 * of new keys and values, and these three at once.
 *
 * Every bfloat16 result is rounded where the torch reference beside the Python wrapper rounds, so both are
 * equal up to the order of sums. A vector is `size` contiguous elements; outer ones have strides in
 * elements.
 */
#include "activation.h"
#include "calls.h"
#include "codes.h"
#include "rows.h"
#define WORTH_THREADS 65536 /* elements from which a second thread pays for being woken */

INLINE void rms_norm(const int bf16, const void *x, long outer, long outer_stride, long inner,
                     long inner_stride, const void *weight, float eps, void *y, long size, int threads) {
#pragma omp parallel for num_threads(threads) if (outer * inner * size >= WORTH_THREADS)
    for (long row = 0; row < outer * inner; row++) {
        const void *from = past(bf16, x, row / inner * outer_stride + row % inner * inner_stride);
        void *to = (void *)past(bf16, y, row * size);
        scale_row(bf16, from, weight, norm_factor(bf16, from, size, eps), to, size);
    }
}

void sensorium_rms_norm(int bf16, const void *x, long outer, long outer_stride, long inner,
                        long inner_stride, const void *weight, float eps, void *y, long size, int threads) {
    if (bf16)
        rms_norm(1, x, outer, outer_stride, inner, inner_stride, weight, eps, y, size, threads);
    else
        rms_norm(0, x, outer, outer_stride, inner, inner_stride, weight, eps, y, size, threads);
}

/* x [rows, size] with stride elements from row to row, weight and behind it bias [size] → y [rows, size]. */
void sensorium_layer_norm(int bf16, const void *x, long rows, long stride, const void *weight, float eps, void *y,
                          long size, int threads) {
#pragma omp parallel for num_threads(threads) if (rows * size >= WORTH_THREADS)
    for (long row = 0; row < rows; row++) {
        const void *from = past(bf16, x, row * stride);
        void *to = (void *)past(bf16, y, row * size);
        if (bf16)
            centre_row(1, from, size, weight, eps, 0, size, to);
        else
            centre_row(0, from, size, weight, eps, 0, size, to);
    }
}

/* x [rows, 2 · size] with stride elements from row to row, gates first → y [rows, size]; size is a multiple of
 * LANES. */
void sensorium_silu_mul(int bf16, const void *x, long rows, long stride, void *y, long size, int threads) {
    long pieces = (size + PIECE - 1) / PIECE;
#pragma omp parallel for num_threads(threads) if (rows * size >= WORTH_THREADS)
    for (long each = 0; each < rows * pieces; each++) {
        long row = each / pieces, first = each % pieces * PIECE;
        long count = size - first < PIECE ? size - first : PIECE;
        const void *gate = past(bf16, x, row * stride + first), *up = past(bf16, gate, size);
        void *to = (void *)past(bf16, y, row * size + first);
        if (bf16)
            gate_row(1, gate, up, to, count);
        else
            gate_row(0, gate, up, to, count);
    }
}

INLINE void activate(const int bf16, int activation, const void *x, void *y, long i, long end) {
    for (; i + LANES <= end; i += LANES) {
        floats made = activated(bf16, activation, load_each(bf16, x, i));
        if (bf16)
            *(halves *)((uint16_t *)y + i) = narrow_plainly(made);
        else
            *(floats *)((float *)y + i) = made;
    }
    for (; i < end; i++) store(bf16, y, i, activated(bf16, activation, (floats){} + load(bf16, x, i))[0]);
}

/* x [count] → y, as a product has it that activates its own results. */
void sensorium_activate(int bf16, int activation, const void *x, void *y, long count, int threads) {
    long pieces = (count + PIECE - 1) / PIECE;
#pragma omp parallel for num_threads(threads) if (count >= WORTH_THREADS)
    for (long piece = 0; piece < pieces; piece++) {
        long i = piece * PIECE, end = i + PIECE < count ? i + PIECE : count;
        if (bf16)
            activate(1, activation, x, y, i, end);
        else
            activate(0, activation, x, y, i, end);
    }
}

INLINE void rotary(const int bf16, const void *x, long rows, long row_stride, long heads, long head_stride,
                   const float *cos, const float *sin, void *y, long half, int threads) {
#pragma omp parallel for num_threads(threads) if (rows * heads * half >= WORTH_THREADS)
    for (long row = 0; row < rows; row++)
        for (long head = 0; head < heads; head++) {
            const void *from = past(bf16, x, row * row_stride + head * head_stride);
            void *to = (void *)past(bf16, y, (row * heads + head) * 2 * half);
#pragma omp simd
            for (long i = 0; i < half; i++) {
                float a = load(bf16, from, i), b = load(bf16, from, half + i);
                float c = rounded(bf16, cos[row * half + i]), s = rounded(bf16, sin[row * half + i]);
                store(bf16, to, i, rounded(bf16, a * c) + rounded(bf16, -b * s));
                store(bf16, to, half + i, rounded(bf16, b * c) + rounded(bf16, a * s));
            }
        }
}

void sensorium_rotary(int bf16, const void *x, long rows, long row_stride, long heads, long head_stride,
                      const float *cos, const float *sin, void *y, long half, int threads) {
    if (bf16)
        rotary(1, x, rows, row_stride, heads, head_stride, cos, sin, y, half, threads);
    else
        rotary(0, x, rows, row_stride, heads, head_stride, cos, sin, y, half, threads);
}

/* The first row whose slot the cache lacks, or −1. */
static long outside(const int64_t *slots, long rows, long num_slots) {
    for (long row = 0; row < rows; row++)
        if (slots[row] < 0 || slots[row] >= num_slots) return row;
    return -1;
}

/* cache [blocks, 2, heads, block_size, row bytes]; key and value rows with strides in bytes. Writes nothing
 * and gives the number of a row whose slot the cache lacks; −1 if all is well. */
long sensorium_write_kv(char *cache, long blocks, const int64_t *slots, const char *key, long key_stride,
                        const char *value, long value_stride, long rows, long heads, long block_size,
                        long row_bytes) {
    long bad = outside(slots, rows, blocks * block_size);
    if (bad >= 0) return bad;
    for (long row = 0; row < rows; row++) {
        long plane = heads * block_size * row_bytes;
        char *to = cache + slots[row] / block_size * 2 * plane + slots[row] % block_size * row_bytes;
        for (long head = 0; head < heads; head++) {
            char *at = to + head * block_size * row_bytes;
            memcpy(at, key + row * key_stride + head * row_bytes, (size_t)row_bytes);
            memcpy(at + plane, value + row * value_stride + head * row_bytes, (size_t)row_bytes);
        }
    }
    return -1;
}

/* Keys and values [heads, dim] of one position, as codes. */
INLINE void write_row(const int bf16, char *cache, long slot, const void *key, const void *value, long heads,
                      long block_size, long dim) {
    long record = record_bytes(block_size, dim), offset = slot % block_size;
    uint8_t *to = (uint8_t *)cache + slot / block_size * 2 * heads * record;
    for (long head = 0; head < heads; head++, to += record) {
        write_codes(bf16, 0, past(bf16, key, head * dim), dim, to, block_size, offset);
        write_codes(bf16, 1, past(bf16, value, head * dim), dim, to + heads * record, block_size, offset);
    }
}

/* As `sensorium_write_kv`, into a cache of codes; strides are in elements. */
long sensorium_write_codes(int bf16, char *cache, long blocks, const int64_t *slots, const void *key,
                           long key_stride, const void *value, long value_stride, long rows, long heads,
                           long block_size, long dim, int threads) {
    long bad = outside(slots, rows, blocks * block_size);
    if (bad >= 0) return bad;
#pragma omp parallel for num_threads(threads) if (rows * heads * dim >= WORTH_THREADS)
    for (long row = 0; row < rows; row++) {
        const void *k = past(bf16, key, row * key_stride), *v = past(bf16, value, row * value_stride);
        if (bf16)
            write_row(1, cache, slots[row], k, v, heads, block_size, dim);
        else
            write_row(0, cache, slots[row], k, v, heads, block_size, dim);
    }
    return -1;
}

/* One head: x [2 · half] normed if there is a weight, then turned by cosines and sines, to y; half is a
 * multiple of LANES. */
INLINE void norm_and_turn(const int bf16, const void *x, const void *weight, float eps, const float *cos,
                          const float *sin, void *y, long half) {
    floats factor = {};
    if (weight) factor += norm_factor(bf16, x, 2 * half, eps);
    for (long i = 0; i < half; i += LANES) {
        floats part[2];
        for (int j = 0; j < 2; j++) {
            part[j] = load_each(bf16, x, j * half + i);
            if (weight)
                part[j] =
                    round_each(bf16, load_each(bf16, weight, j * half + i) * round_each(bf16, part[j] * factor));
        }
        floats c = round_each(bf16, *(const floats *)(cos + i));
        floats s = round_each(bf16, *(const floats *)(sin + i));
        store_each(bf16, y, i, round_each(bf16, part[0] * c) + round_each(bf16, -part[1] * s));
        store_each(bf16, y, half + i, round_each(bf16, part[1] * c) + round_each(bf16, part[0] * s));
    }
}

typedef struct {
    const void *qkv, *query_norm, *key_norm;
    const float *cos, *sin;
    const int64_t *slots;
    char *cache, *query;
    long stride, rows, heads, kv_heads, half, block_size;
    float eps;
} Inputs;

INLINE void attention_inputs(const int bf16, int coded, const Inputs *c, int threads) {
    long vectors = c->heads + 2 * c->kv_heads, bytes = 2 * c->half * (bf16 ? 2 : 4);
#pragma omp parallel for num_threads(threads) if (c->rows * vectors * c->half >= WORTH_THREADS)
    for (long row = 0; row < c->rows; row++) {
        const char *from = past(bf16, c->qkv, row * c->stride);
        const float *cos = c->cos + row * c->half, *sin = c->sin + row * c->half;
        for (long head = 0; head < c->heads; head++)
            norm_and_turn(bf16, from + head * bytes, c->query_norm, c->eps, cos, sin,
                          c->query + (row * c->heads + head) * bytes, c->half);
        const char *key = from + c->heads * bytes, *value = key + c->kv_heads * bytes;
        if (coded) {
            char turned[c->kv_heads * bytes];
            for (long head = 0; head < c->kv_heads; head++)
                norm_and_turn(bf16, key + head * bytes, c->key_norm, c->eps, cos, sin, turned + head * bytes,
                              c->half);
            write_row(bf16, c->cache, c->slots[row], turned, value, c->kv_heads, c->block_size, 2 * c->half);
            continue;
        }
        long slot = c->slots[row], plane = c->kv_heads * c->block_size * bytes;
        char *to = c->cache + slot / c->block_size * 2 * plane + slot % c->block_size * bytes;
        for (long head = 0; head < c->kv_heads; head++, to += c->block_size * bytes) {
            norm_and_turn(bf16, key + head * bytes, c->key_norm, c->eps, cos, sin, to, c->half);
            memcpy(to + plane, value + head * bytes, (size_t)bytes);
        }
    }
}

/* qkv [rows, heads + 2 · kv_heads, 2 · half] with stride elements from row to row → query [rows, heads,
 * 2 · half], and keys and values in the cache as `sensorium_write_kv` has it, or `sensorium_write_codes`;
 * gives what these give. Norms may be 0; half is a multiple of LANES. */
long sensorium_attention_inputs(int bf16, int coded, const void *qkv, long stride, long rows, long heads,
                                long kv_heads, long half, const void *query_norm, const void *key_norm, float eps,
                                const float *cos, const float *sin, char *cache, long blocks,
                                long block_size, const int64_t *slots, char *query, int threads) {
    Inputs call = {qkv,    query_norm, key_norm, cos,      sin,  slots,      cache, query,
                   stride, rows,       heads,    kv_heads, half, block_size, eps};
    long bad = outside(slots, rows, blocks * block_size);
    if (bad >= 0) return bad;
    if (bf16)
        attention_inputs(1, coded, &call, threads);
    else
        attention_inputs(0, coded, &call, threads);
    return -1;
}
