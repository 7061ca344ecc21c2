/* Scores that become weights while the next ones are computed, where products of bfloat16 are instructions.
 *
 * Products keep some units of a processor busy and weights mostly others, so the weights of a few positions
 * are made between the products of the next, and scores never leave the registers. For that the largest score
 * must be known before. It is guessed from the first ones: weights are relative to a score that others may
 * exceed by SLACK powers of two, and the caller learns when one did. Two positions make a word of a weight.
 */
#pragma once
#include "attention.h"
#ifdef __AVX512BF16__

/* 2^(k/16) and its slope, less k/16 in the place of their exponents, as what is added there has it, too. */
static const words POWERS = {0x3F800000, 0x3F7DAAC3, 0x3F7B95C2, 0x3F79C3D3, 0x3F7837F0, 0x3F76F532,
                             0x3F75FED7, 0x3F75583F, 0x3F7504F3, 0x3F7508A4, 0x3F75672A, 0x3F76248C,
                             0x3F7744FD, 0x3F78CCDF, 0x3F7AC0C7, 0x3F7D257D};
static const words SLOPES = {0x3F317218, 0x3F314D47, 0x3F318182, 0x3F3212B8, 0x3F330509, 0x3F345CC0,
                             0x3F361E5B, 0x3F384E8A, 0x3F3AF233, 0x3F3B0739, 0x3F38D44F, 0x3F36E324,
                             0x3F3536A4, 0x3F33D1D6, 0x3F32B7E9, 0x3F31EC2D};

/* What there is to weigh. */
typedef struct {
    const word *const *keys; /* of each position, and some key for up to 7 behind the last */
    const uint32_t *q;
    const int32_t *low, *high; /* the positions that a column sees, the upper exclusive */
    const float *top;          /* of a column: what its scores are relative to, in powers of two */
    float scale;
    long n, count;
    uint32_t *p;
    float *sum;
} Pairs;

/* 2^(x scale - top), at most 2.4e-4 of it more or less: a fraction of what rounding to bfloat16 leaves. By
 * sixteenths and lines between them, which takes two of the instructions that compete with products. */
INLINE words weight_of(const int masked, floats x, floats scale, floats top, words seen, floats *most) {
    floats y = (floats)_mm512_fmsub_ps((__m512)x, (__m512)scale, (__m512)top);
    *most = larger(masked ? pick(seen, y, *most) : y, *most); /* passes over what is no number; sums do not */
    y = larger((floats){} - 120.0f, y);
    floats shifted = y + 786432.0f, r = y - (shifted - 786432.0f); /* 1.5 · 2^19: to sixteenths */
    __m512i sixteenths = (__m512i)shifted;
    words exponent = (words)_mm512_slli_epi32(sixteenths, 19);
    words power = (words)_mm512_permutexvar_epi32(sixteenths, (__m512i)POWERS) + exponent;
    words slope = (words)_mm512_permutexvar_epi32(sixteenths, (__m512i)SLOPES) + exponent;
    words weight = (words)fused((floats)slope, r, (floats)power);
    if (masked) weight &= seen;
    return weight;
}

/* A pair of weights from position `j` on, of one group of columns. What does not fit bfloat16 is cut off, and
 * sums are of what is left. */
INLINE void weigh_pair(const int masked, const Pairs *pairs, int column, long j, floats one, floats two,
                       uint32_t *to, floats *most, floats *sum) {
    floats scale = (floats){} + pairs->scale, top = *(const floats *)(pairs->top + column);
    words seen = {}, next = {};
    if (masked) {
        integers low = *(const integers *)(pairs->low + column), high = *(const integers *)(pairs->high + column);
        seen = (words)(((integers){} + (int)j >= low) & ((integers){} + (int)j < high));
        next = (words)(((integers){} + (int)j + 1 >= low) & ((integers){} + (int)j + 1 < high));
    }
    words first = weight_of(masked, one, scale, top, seen, most);
    words second = weight_of(masked, two, scale, top, next, most);
    __m512i both = _mm512_mask_mov_epi16(_mm512_srli_epi32((__m512i)first, 16), 0xAAAAAAAA, (__m512i)second);
    *sum = (floats)_mm512_dpbf16_ps((__m512)*sum, (__m512bh)both, (__m512bh)((words){} + 0x3F803F80));
    *(words *)to = (words)both;
}

/* `height` positions at once meet `cols` groups of columns. Whether no score exceeded what was allowed. */
INLINE int weigh_pairs(const int cols, const int height, const int masked, const Pairs *pairs) {
    const int units = height / 2 * cols;
    const long wide = cols * LANES, step = pairs->n / units, rest = pairs->n - step * (units - 1);
    floats sum[MAX_COLS] = {}, most = (floats){} - INFINITY, held[8][MAX_COLS] = {};
    uint32_t *to = pairs->p - height / 2 * wide;
    long j = 0;
    for (; j < pairs->count; j += height, to += height / 2 * wide) {
        floats now[8][MAX_COLS] = {};
        const uint32_t *q = pairs->q;
        const word *keys[8];
#pragma GCC unroll 8
        for (int i = 0; i < height; i++) keys[i] = pairs->keys[j + i];
#pragma GCC unroll 4
        for (int unit = 0; unit < units; unit++) {
            long steps = unit + 1 < units ? step : rest;
            for (long w = 0; w < steps; w++, q += wide) {
                words line[MAX_COLS];
#pragma GCC unroll 4
                for (int c = 0; c < cols; c++) line[c] = *(const words *)(q + c * LANES);
#pragma GCC unroll 8
                for (int i = 0; i < height; i++) {
                    words key = (words){} + *keys[i]++;
#pragma GCC unroll 4
                    for (int c = 0; c < cols; c++) now[i][c] = multiply_add(PAIRS, now[i][c], line[c], key);
                }
            }
            const int i = unit / cols * 2, c = unit % cols;
            if (j)
                weigh_pair(masked, pairs, c * LANES, j - height + i, held[i][c], held[i + 1][c],
                           to + i / 2 * wide + c * LANES, &most, &sum[c]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < height; i++)
#pragma GCC unroll 4
            for (int c = 0; c < cols; c++) held[i][c] = now[i][c];
    }
#pragma GCC unroll 4
    for (int unit = 0; unit < units; unit++) {
        const int i = unit / cols * 2, c = unit % cols;
        weigh_pair(masked, pairs, c * LANES, j - height + i, held[i][c], held[i + 1][c],
                   to + i / 2 * wide + c * LANES, &most, &sum[c]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++) *(floats *)(pairs->sum + c * LANES) = sum[c];
    return !_mm512_cmp_ps_mask((__m512)most, _mm512_set1_ps(SLACK), _CMP_GT_OS);
}

/* Functions of their own, most with sixteen sums of products, which take turns in being added to: a processor may
 * begin two additions in a cycle, each of which takes six. So what is weighed meanwhile waits in memory. */
#define WEIGH(COLS, HEIGHT)                                                                  \
    static __attribute__((noinline, noclone)) int weigh_##COLS(int masked, const Pairs *pairs) { \
        return masked || pairs->count % HEIGHT ? weigh_pairs(COLS, HEIGHT, 1, pairs)         \
                                               : weigh_pairs(COLS, HEIGHT, 0, pairs);        \
    }
WEIGH(1, 8)
WEIGH(2, 8)
WEIGH(3, 4)
WEIGH(4, 4)

static int weigh_group(long wide, int masked, const Pairs *pairs) {
    int (*const ways[MAX_COLS])(int, const Pairs *) = {weigh_1, weigh_2, weigh_3, weigh_4};
    return ways[wide / LANES - 1](masked, pairs);
}
#endif
