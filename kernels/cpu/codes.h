/* Keys and values of 8 bits: how they lie in a cache and how one is written. `kernels/attention/kv_quantization.py` says the
 * same in torch.
 *
 * A vector is whole numbers up to ±127 and a scale in bfloat16. What a head keeps of a block of positions is
 * one record: first the numbers, then a scale for each position. Keys lie, 16 positions after 16, as the
 * positions' words of four neighbouring dimensions, plus 128; values as each dimension's bytes of four
 * neighbouring positions. So 64 bytes of either meet a query's, or the weights', four bytes at once. Blocks
 * are multiples of 16 positions, vectors of 16 dimensions.
 */
#pragma once
#include "tile.h"
#define MIDDLE 128 /* what is added to keys */

INLINE long record_bytes(long block_size, long dim) { return block_size * (dim + 2); }

/* One vector, to place `offset` of its head's record. The scale is rounded up, so that no number exceeds 127;
 * that of a vector that is not finite is no number. */
INLINE void write_codes(const int bf16, const int is_value, const void *x, long dim, uint8_t *record,
                        long block_size, long offset) {
    union {
        uint32_t bits;
        float value;
    } most = {largest_bits(bf16, x, dim)}, step;
    int is_finite = most.bits < 0x7F800000u;
    step.value = most.value / 127.0f;
    uint16_t scale = is_finite ? (uint16_t)((step.bits + 0xFFFF) >> 16) : 0x7FC0;
    memcpy(record + block_size * dim + 2 * offset, &scale, 2);
    float divisor = is_finite && scale ? widen(scale) : 1.0f;
    uint8_t bytes[dim];
#pragma omp simd
    for (long i = 0; i < dim; i++)
        bytes[i] = (uint8_t)((is_finite ? to_whole(load(bf16, x, i) / divisor) : 0) + (is_value ? 0 : MIDDLE));
    if (is_value)
        for (long i = 0; i < dim; i++) record[(offset / 4 * dim + i) * 4 + offset % 4] = bytes[i];
    else
        for (long i = 0; i < dim / 4; i++)
            memcpy(record + ((offset / 16 * (dim / 4) + i) * 16 + offset % 16) * 4, bytes + 4 * i, 4);
}
