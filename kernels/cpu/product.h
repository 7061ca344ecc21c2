/* A product by a weight of numbers or of codes, whichever it is. */
#pragma once
#include "calls.h"
#include "rows.h"

/* As `sensorium_linear` takes it, or with `bits` of a weight and inputs of a `group` as `sensorium_linear_bits`. */
typedef struct {
    const void *w, *bias;
    long in, out, kind, tile, depth, bits, group;
} Product;

/* What products of a step share; `scratch` is as much as any of them wants. */
typedef struct {
    int bf16, threads;
    char *scratch;
} Shared;

/* x [rows, in] with `stride` elements from row to row → y [rows, out]. */
INLINE void multiply(const Product *p, Shared s, const void *x, long rows, long stride, Before before, int activation,
                     const void *residual, void *y) {
    if (!p->bits) {
        sensorium_linear((int)p->kind, s.bf16, x, stride, p->w, p->bias, residual, y, rows, p->in, p->out, p->tile,
                         p->depth, activation, before.how, before.weight, before.eps, s.threads);
        return;
    }
    sensorium_linear_bits(s.bf16, (int)p->bits, x, stride, p->w, p->bias, residual, y, rows, p->in, p->out, p->group,
                          before.how, before.weight, before.eps, s.scratch, s.threads);
    if (activation) sensorium_activate(s.bf16, activation, y, y, rows * p->out, s.threads);
}
