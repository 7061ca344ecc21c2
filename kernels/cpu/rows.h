/* What a row goes through before it is multiplied: an RMS norm, a layer norm, silu(gate) · up of its two halves, or the
 * clamped gate of gpt-oss, whose gates and ups lie in turn.
 *
 * Every bfloat16 result is rounded where the torch reference beside the Python wrapper rounds. Sums are always
 * added up in one order, and nothing is left to the compiler's contraction, so that all processors agree, and
 * a row is the same whether it goes through alone (elementwise.c) or within a product.
 */
#pragma once
#include <math.h>
#include "tile.h"
#define PIECE 512 /* elements of a gated row that a thread takes at a time */

enum { AS_IT_IS, NORMED, GATED, CENTRED, CLAMPED };

typedef struct {
    int how;
    const void *weight; /* of the norm; behind that of a layer norm its bias; float [2] of what is clamped */
    float eps;
} Before;

/* Whether a row is made of one twice as long. */
INLINE int is_gated(int how) { return how == GATED || how == CLAMPED; }

INLINE float rounded(const int bf16, float x) { return bf16 ? widen(narrow(x)) : x; }

INLINE void store(const int bf16, void *to, long i, float x) {
    if (bf16)
        ((uint16_t *)to)[i] = narrow(x);
    else
        ((float *)to)[i] = x;
}

INLINE const void *past(const int bf16, const void *from, long elements) {
    return (const char *)from + elements * (bf16 ? 2 : 4);
}

INLINE floats load_each(const int bf16, const void *from, long i) {
    return bf16 ? widen_each(*(const halves *)((const uint16_t *)from + i))
                : *(const floats *)((const float *)from + i);
}

INLINE void store_each(const int bf16, void *to, long i, floats x) {
    if (bf16)
        *(halves *)((uint16_t *)to + i) = narrow_each(x);
    else
        *(floats *)((float *)to + i) = x;
}

INLINE floats round_each(const int bf16, floats x) { return bf16 ? widen_each(narrow_each(x)) : x; }

INLINE float added_up(floats x) {
    float eight[8], four[4];
    for (int j = 0; j < 8; j++) eight[j] = x[j] + x[j + 8];
    for (int j = 0; j < 4; j++) four[j] = eight[j] + eight[j + 4];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

INLINE float norm_factor(const int bf16, const void *x, long size, float eps) {
    floats sums[2] = {};
    long i = 0;
    for (; i + 2 * LANES <= size; i += 2 * LANES)
        for (int j = 0; j < 2; j++) {
            floats part = load_each(bf16, x, i + j * LANES);
            sums[j] += part * part;
        }
    float squares = added_up(sums[0] + sums[1]);
    for (; i < size; i++) squares += load(bf16, x, i) * load(bf16, x, i);
    return 1.0f / sqrtf(squares / (float)size + eps);
}

INLINE void scale_row(const int bf16, const void *x, const void *weight, float factor, void *y, long count) {
#pragma omp simd
    for (long i = 0; i < count; i++)
        store(bf16, y, i, load(bf16, weight, i) * rounded(bf16, load(bf16, x, i) * factor));
}

/* Elements of a row of `size` from `first` on, less the row's mean, over its deviation; rounded once. */
INLINE void centre_row(const int bf16, const void *x, long size, const void *weight, float eps, long first,
                       long count, void *y) {
    const void *bias = past(bf16, weight, size);
    floats sums = {}, squares = {};
    long i = 0;
    for (; i + LANES <= size; i += LANES) sums += load_each(bf16, x, i);
    float mean = added_up(sums), rest = 0.0f;
    for (; i < size; i++) mean += load(bf16, x, i);
    mean /= (float)size;
    for (i = 0; i + LANES <= size; i += LANES) {
        floats part = load_each(bf16, x, i) - mean;
        squares += part * part;
    }
    for (; i < size; i++) rest += (load(bf16, x, i) - mean) * (load(bf16, x, i) - mean);
    float factor = 1.0f / sqrtf((added_up(squares) + rest) / (float)size + eps);
#pragma omp simd
    for (long j = first; j < first + count; j++)
        store(bf16, y, j - first,
              (load(bf16, x, j) - mean) * factor * load(bf16, weight, j) + load(bf16, bias, j));
}

/* count is a multiple of LANES. */
INLINE void gate_row(const int bf16, const void *gate, const void *up, void *y, long count) {
    for (long i = 0; i < count; i += LANES) {
        floats x = load_each(bf16, gate, i), silu = x / (exponential(-x) + 1.0f);
        if (bf16) silu = widen_each(narrow_exactly(silu));
        silu *= load_each(bf16, up, i);
        if (bf16)
            *(halves *)((uint16_t *)y + i) = narrow_exactly(silu);
        else
            *(floats *)((float *)y + i) = silu;
    }
}

/* gate · sigmoid(alpha · gate) · (up + 1) of pairs of a gate and an up, of which none is beyond the limit; `limits` are
 * alpha and that. count is a multiple of LANES. */
INLINE void clamp_row(const int bf16, const void *pairs, const float *limits, void *y, long count) {
    const floats limit = (floats){} + limits[1];
    for (long i = 0; i < count; i += LANES) {
        floats gate, up;
        for (int j = 0; j < LANES; j++) {
            gate[j] = load(bf16, pairs, 2 * (i + j));
            up[j] = load(bf16, pairs, 2 * (i + j) + 1);
        }
        gate = -larger(-limit, -gate);
        up = larger(-limit, -larger(-limit, -up));
        floats swish = round_each(bf16, 1.0f / (exponential(-round_each(bf16, gate * limits[0])) + 1.0f));
        store_each(bf16, y, i, round_each(bf16, up + 1.0f) * round_each(bf16, gate * swish));
    }
}

/* `count` elements of a row of `size`, from `first` on, to y. A gated row is as long again. */
INLINE void prepare(const int bf16, const Before *before, const void *x, long size, long first, long count,
                    void *y) {
    const void *own = past(bf16, x, first);
    if (before->how == NORMED)
        scale_row(bf16, own, past(bf16, before->weight, first), norm_factor(bf16, x, size, before->eps), y,
                  count);
    else if (before->how == CENTRED)
        centre_row(bf16, x, size, before->weight, before->eps, first, count, y);
    else if (before->how == CLAMPED)
        clamp_row(bf16, past(bf16, own, first), before->weight, y, count);
    else
        gate_row(bf16, own, past(bf16, own, size), y, count);
}
