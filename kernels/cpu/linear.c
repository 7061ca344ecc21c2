/* y = x Wᵀ (+ bias) (+ residual) for few rows: a decode step, which reads every weight once.
 *
 * W lies as oneDNN packs it: [out/64, in/2, 64, 2] in bfloat16, [out/64, in, 64] in float. While the rows
 * meet one tile of 64 outputs, the next tile is fetched, so that reading and computing overlap.
 */
#include "tile.h"
#define WIDTH 64

INLINE void one_tile(const int bf16, long passes, long rows, const word *x, long stride, const uint32_t *w,
                     long n, float *sums) {
    for (long pass = 0; pass < passes; pass++) {
        long first = pass * rows / passes, count = (pass + 1) * rows / passes - first;
        long step = 256 / passes; /* this pass's share of a row of the next tile */
        Ahead ahead = {(const char *)(w + n * WIDTH) + pass * step * n, step, 0};
        const word *a = x + first * stride;
        float *c = sums + first * WIDTH;
        if (passes == 1)
            wide_tile(bf16, 0, count, 0, a, stride, w, WIDTH, n, c, WIDTH, ahead);
        else if (passes <= 3)
            wide_tile(bf16, 2, count, 0, a, stride, w, WIDTH, n, c, WIDTH, ahead);
        else
            wide_tile(bf16, 1, count, 0, a, stride, w, WIDTH, n, c, WIDTH, ahead);
    }
}

INLINE void finish(const int bf16, long rows, long width, long out, const float *sums, const void *bias,
                   const void *residual, void *y) {
    for (long i = 0; i < rows; i++) {
        const float *sum = sums + i * WIDTH;
        if (bf16) {
            const uint16_t *b = bias, *r = residual ? (const uint16_t *)residual + i * out : 0;
            uint16_t *to = (uint16_t *)y + i * out;
#pragma omp simd
            for (long j = 0; j < width; j++)
                to[j] = narrow(sum[j] + (b ? widen(b[j]) : 0.0f) + (r ? widen(r[j]) : 0.0f));
        } else {
            const float *b = bias, *r = residual ? (const float *)residual + i * out : 0;
            float *to = (float *)y + i * out;
#pragma omp simd
            for (long j = 0; j < width; j++) to[j] = sum[j] + (b ? b[j] : 0.0f) + (r ? r[j] : 0.0f);
        }
    }
}

INLINE void run(const int bf16, const void *x, long x_stride, const void *w, const void *bias,
                const void *residual, void *y, long rows, long in, long out, int threads) {
    long size = bf16 ? 2 : 4, n = bf16 ? in / 2 : in, stride = bf16 ? x_stride / 2 : x_stride;
    long tiles = (out + WIDTH - 1) / WIDTH, passes = (rows + MAX_ROWS - 1) / MAX_ROWS;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long t = 0; t < tiles; t++) {
        float sums[rows * WIDTH];
        long width = out - t * WIDTH < WIDTH ? out - t * WIDTH : WIDTH, at = t * WIDTH * size;
        one_tile(bf16, passes, rows, x, stride, (const uint32_t *)w + t * n * WIDTH, n, sums);
        finish(bf16, rows, width, out, sums, bias ? (const char *)bias + at : 0,
               residual ? (const char *)residual + at : 0, (char *)y + at);
    }
}

/* x [rows, in] with x_stride elements from row to row (even in bfloat16); y and residual [rows, out]
 * contiguous. */
void sensorium_linear(int bf16, const void *x, long x_stride, const void *w, const void *bias,
                      const void *residual, void *y, long rows, long in, long out, int threads) {
    if (bf16)
        run(1, x, x_stride, w, bias, residual, y, rows, in, out, threads);
    else
        run(0, x, x_stride, w, bias, residual, y, rows, in, out, threads);
}
