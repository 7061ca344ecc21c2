/* What follows a product: GELU by the error function or by tanh, or ReLU. */
#pragma once
#include "tile.h"

enum { NONE, GELU, GELU_TANH, RELU };

#define FAR 12.9f /* from here on Φ's tail is nothing */

/* x · Φ(x), for results in bfloat16. The logarithm of Φ's tail is so smooth that a polynomial of |x| gives it, fitted
 * to be within 6e-5, and the tail is two to the power of it: nothing cancels where x is far below zero, and nothing is
 * divided. */
INLINE floats gelu(floats x) {
    floats z = (floats)((words)x & 0x7FFFFFFFu);
    floats p = fused((floats){} - 2.012395361e-9f, z, (floats){} + 1.452877569e-7f);
    p = fused(p, z, (floats){} - 4.617327249e-6f);
    p = fused(p, z, (floats){} + 8.553009684e-5f);
    p = fused(p, z, (floats){} - 1.034397748e-3f);
    p = fused(p, z, (floats){} + 8.723312989e-3f);
    p = fused(p, z, (floats){} - 5.408888683e-2f);
    p = fused(p, z, (floats){} - 4.586362839e-1f);
    p = fused(p, z, (floats){} - 1.151051044f);
    p = fused(p, z, (floats){} - 1.000025749f);
    floats whole = p + 12582912.0f; /* 1.5 · 2^23 rounds: its last bits are the whole number */
    floats r = p - (whole - 12582912.0f), two = (floats){} + 9.570101276e-3f;
    two = fused(two, r, (floats){} + 5.591785908e-2f);
    two = fused(two, r, (floats){} + 2.402474433e-1f);
    two = fused(two, r, (floats){} + 6.931217909e-1f);
    two = fused(two, r, (floats){} + 9.999992847e-1f);
    floats tail = (floats)((words)two + ((words)whole << 23));
    tail = pick((words)(z >= FAR), (floats){}, tail);
    return x * pick((words)(x < 0.0f), tail, 1.0f - tail);
}

/* The same for float. Φ's tail is half of t · e^(p(t) − x² / 2) with t = 1 / (1 + |x| / √8) and a polynomial p that is
 * within 5e-8. */
INLINE floats gelu_float(floats x) {
    floats t = 1.0f / ((floats)((words)x & 0x7FFFFFFFu) * 0.35355339f + 1.0f);
    floats p = fused((floats){} + 1.405071318e-1f, t, (floats){} - 6.566158533e-1f);
    p = fused(p, t, (floats){} + 1.099438429f);
    p = fused(p, t, (floats){} - 6.195233464e-1f);
    p = fused(p, t, (floats){} - 1.441735029e-1f);
    p = fused(p, t, (floats){} + 3.546786308e-2f);
    p = fused(p, t, (floats){} + 2.287414297e-2f);
    p = fused(p, t, (floats){} + 3.891171515e-1f);
    p = fused(p, t, (floats){} + 9.983414412e-1f);
    p = fused(p, t, (floats){} - 1.265433431f);
    floats tail = t * 0.5f * exponential(x * x * -0.5f + p);
    return x * pick((words)(x < 0.0f), tail, 1.0f - tail);
}

/* x / (1 + e^-a), where the larger of both e^a and e^-a is not formed. */
INLINE floats gelu_tanh(floats x) {
    floats a = (x * x * x * 0.044715f + x) * 1.59576912f; /* 2 √(2 / π) */
    floats tail = exponential(pick((words)(a < 0.0f), a, -a));
    tail = pick((words)(tail > 2e-38f), tail, (floats){});
    return x * pick((words)(x < 0.0f), tail, (floats){} + 1.0f) / (tail + 1.0f);
}

INLINE floats activated(const int bf16, int activation, floats x) {
    if (activation == GELU) return bf16 ? gelu(x) : gelu_float(x);
    if (activation == GELU_TANH) return gelu_tanh(x);
    return activation == RELU ? pick((words)(x < 0.0f), (floats){}, x) : x;
}
