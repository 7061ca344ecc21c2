/* Both ends of a product in whole numbers: rows made bytes, and sums made results. linear_bits.c stands between.
 */
#pragma once
#include "rows.h"
#define WIDTH 64 /* outputs that lie together */
#define SMALLEST 1e-30f
#define TILE_BYTES 64 /* of a row of a tile */

/* Rows made whole numbers, group after group: bytes [groups, rows, group], and for each group of a row its scale
 * and the bytes' sum [groups, rows]. To be multiplied by tiles sixteen rows are bytes [group / 64, 16, 64]; there
 * are then as many rows as whole tiles have, of which the last ones may be anything. */
typedef struct {
    int8_t *bytes;
    float *scales;
    int32_t *totals;
    long rows, group, groups;
    int by_tiles;
} Inputs;

/* By tiles only for whole ones. */
INLINE Inputs inputs_from(Inputs x, long row) {
    x.bytes += row * x.group;
    x.scales += row;
    x.totals += row;
    return x;
}

/* Where 64 bytes of a row's group lie, which follow each other. */
INLINE int8_t *bytes_of(Inputs x, long row, long group, long piece) {
    long at = group * x.rows + row;
    if (!x.by_tiles) return x.bytes + at * x.group + piece * TILE_BYTES;
    return x.bytes + (at - row % 16) * x.group + (piece * 16 + row % 16) * TILE_BYTES;
}

/* `size` numbers of a row to its bytes of a group, those behind the end zero. A group that is not finite gets NaN
 * for a scale, one as good as zero gets zero. */
INLINE void round_group(const int bf16, const void *x, long size, Inputs to, long row, long group) {
    union {
        uint32_t bits;
        float value;
    } most = {largest_bits(bf16, x, size)};
    int is_finite = most.bits < 0x7F800000u, is_some = is_finite && most.value > SMALLEST;
    float factor = is_some ? 127.0f / most.value : 0.0f;
    long at = group * to.rows + row, given = is_some ? size : 0;
    integers sums = {};
    int32_t total = 0;
    for (long from = 0; from < to.group; from += TILE_BYTES) {
        int8_t *bytes = bytes_of(to, row, group, from / TILE_BYTES);
        long i = from, end = to.group - from < TILE_BYTES ? to.group : from + TILE_BYTES;
        long last = given < end ? given : end;
        for (; i + LANES <= last; i += LANES) {
            integers whole = to_whole_each(load_each(bf16, x, i) * factor);
            *(plain_bytes *)(bytes + i - from) = lowest_bytes(whole);
            sums += whole;
        }
        for (; i < last; i++) {
            int32_t whole = to_whole(load(bf16, x, i) * factor);
            bytes[i - from] = (int8_t)whole;
            total += whole;
        }
        for (; i < end; i++) bytes[i - from] = 0;
    }
    for (int j = 0; j < LANES; j++) total += sums[j];
    to.totals[at] = total;
    to.scales[at] = is_some ? most.value / 127.0f : is_finite ? 0.0f : NAN;
}

/* sums [rows, 64] + bias + residual, rounded, to the first `width` of rows of `out`. */
INLINE void finish(const int bf16, long rows, long width, long out, float *sums, const void *bias,
                   const void *residual, void *y) {
    for (long i = 0; i < rows; i++, sums += WIDTH) {
        long at = i * out, j = 0;
        for (; j + LANES <= width; j += LANES) {
            floats sum = *(const floats *)(sums + j);
            if (bias) sum += load_each(bf16, bias, j);
            if (residual) sum += load_each(bf16, residual, at + j);
            if (bf16)
                *(halves *)((uint16_t *)y + at + j) = narrow_exactly(sum);
            else
                *(floats *)((float *)y + at + j) = sum;
        }
        for (; j < width; j++) {
            float sum = sums[j];
            if (bias) sum += load(bf16, bias, j);
            if (residual) sum += load(bf16, residual, at + j);
            store(bf16, y, at + j, sum);
        }
    }
}
