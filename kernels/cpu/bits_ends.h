/* Both ends of a product in whole numbers: rows made bytes, and sums made results. linear_bits.c stands between.
 */
#pragma once
#include "rows.h"
#define WIDTH 64 /* outputs that lie together */
#define SMALLEST 1e-30f

/* Rows made whole numbers, group after group: bytes [groups, rows, group], and for each group of a row its scale
 * and the bytes' sum [groups, rows]. */
typedef struct {
    int8_t *bytes;
    float *scales;
    int32_t *totals;
    long rows, group, groups;
} Inputs;

INLINE Inputs inputs_from(Inputs x, long row) {
    return (Inputs){x.bytes + row * x.group, x.scales + row, x.totals + row, x.rows, x.group, x.groups};
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
    long at = group * to.rows + row, i = 0;
    int8_t *bytes = to.bytes + at * to.group;
    integers sums = {};
    int32_t total = 0;
    if (is_some) {
        for (; i + LANES <= size; i += LANES) {
            integers whole = to_whole_each(load_each(bf16, x, i) * factor);
            *(plain_bytes *)(bytes + i) = lowest_bytes(whole);
            sums += whole;
        }
        for (; i < size; i++) {
            int32_t whole = to_whole(load(bf16, x, i) * factor);
            bytes[i] = (int8_t)whole;
            total += whole;
        }
        for (int j = 0; j < LANES; j++) total += sums[j];
    }
    memset(bytes + i, 0, (size_t)(to.group - i));
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
