/* A layer's experts as experts.c takes them. */
#pragma once
#include "product.h"

/* Each expert's first product and its last, with a gate between them: GATED, or CLAMPED by its `limits`. */
typedef struct {
    const Product *up, *down; /* [experts] */
    long experts, gate;
    const float *limits;
} Experts;

/* Which experts a row goes to: those of the largest softmax of `router` · row (+ bias), [experts, size]. Their shares
 * are softmax's, or are `normalized` to be one together. */
typedef struct {
    Experts experts;
    const void *router, *bias;
    long choices, normalized;
} Mixture;

void sensorium_mixture(int bf16, const Mixture *mixture, const void *x, long rows, long size, void *y, char *scratch,
                       int threads);
