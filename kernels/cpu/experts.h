/* A layer's experts as experts.c takes them. */
#pragma once
#include "product.h"

/* Each expert's first product and its last, with a gate between them: GATED, or CLAMPED by its `limits`. */
typedef struct {
    const Product *up, *down; /* [experts] */
    long experts, gate;
    const float *limits;
} Experts;
