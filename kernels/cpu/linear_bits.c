/* y = x Wᵀ (+ bias) (+ residual) with weights of 8 or 4 bits: whole numbers multiplied exactly, then scaled.
 *
 * Inputs form groups; a group of an output's weights has a scale and a zero point, one of a row's inputs a
 * scale. W lies in tiles of 64 outputs, and in a tile group after group: for every four inputs the 64 outputs'
 * four bytes each (in 4 bits outputs 0–15 are the lower halves of 16–31's, 32–47 of 48–63's), then 64 scales
 * as floats and 64 zero points as bytes. So a tile is read once, from end to end, and meets all rows there.
 * `kernels/linear_bits.py` says what is computed, in which order, and nothing else may be. Rows may go through a
 * norm or a gate first (rows.h).
 */
#include "rows.h"
#define WIDTH 64
#define MOST_ROWS 48 /* that meet a tile before the next rows do: their sums stay near */
#define SMALLEST 1e-30f
#define SOON 4096 /* bytes */
#ifdef __AVX512F__
#define ROWS_EACH MAX_ROWS
#else
#define ROWS_EACH 2 /* their 8 sums of two halves each fill the registers, and the compiler is done soon */
#endif

/* The bytes of four inputs' weights: 64 outputs as four times 16. */
INLINE void read_step(const int bits, const uint8_t *w, words *line) {
#pragma GCC unroll 4
    for (int j = 0; j < MAX_COLS; j++) {
        if (bits == 8) {
            line[j] = *(const words *)(w + 64 * j);
        } else {
            words both = *(const words *)(w + 64 * (j / 2));
            line[j] = (j % 2 ? both >> 4 : both) & 0x0F0F0F0Fu;
        }
    }
}

/* Rows made whole numbers: [rows, depth] bytes, and for each group of a row its scale and the bytes' sum. */
typedef struct {
    const int8_t *bytes;
    const float *scales;
    const int32_t *totals;
    long depth, groups;
} Inputs;

/* A tile: `groups` blocks of `steps` times four inputs, `block` bytes apart. */
typedef struct {
    const uint8_t *from;
    long steps, block;
} Bits;

/* Up to ROWS_EACH rows times 64 outputs; sums are written to y [rows, 64]. */
INLINE void few(const int bits, const int rows, Bits w, Inputs x, float *y, Ahead ahead) {
    const long step_bytes = 32 * bits;
    const uint8_t *from = w.from;
    for (long g = 0; g < x.groups; g++, from += w.block) {
        integers sum[ROWS_EACH][MAX_COLS] = {};
        const int8_t *a = x.bytes + g * w.steps * 4;
        for (long k = 0; k < w.steps; k++) {
            words line[MAX_COLS];
            read_step(bits, from + k * step_bytes, line);
            for (int l = 0; l < ahead.lines; l++) __builtin_prefetch(ahead.from + l * 64, 0, 2);
            ahead.from += ahead.step;
#pragma GCC unroll 6
            for (int i = 0; i < rows; i++) {
                words all = (words){} + *(const word *)(a + i * x.depth + 4 * k);
#pragma GCC unroll 4
                for (int j = 0; j < MAX_COLS; j++) sum[i][j] = add_products(sum[i][j], line[j], all);
            }
        }
        const uint8_t *scales = from + w.steps * step_bytes, *zeros = scales + 4 * WIDTH;
#pragma GCC unroll 4
        for (int j = 0; j < MAX_COLS; j++) {
            floats scale = *(const floats *)(scales + 64 * j);
            integers zero = __builtin_convertvector(*(const plain_bytes *)(zeros + LANES * j), integers);
#pragma GCC unroll 6
            for (int i = 0; i < rows; i++) {
                integers whole = sum[i][j] - zero * x.totals[i * x.groups + g];
                floats part = __builtin_convertvector(whole, floats) * scale * x.scales[i * x.groups + g];
                floats *to = (floats *)(y + i * WIDTH + j * LANES);
                *to = (g ? *to : (floats){}) + part;
            }
        }
    }
}

#define BITS_CASE(R) \
    case R: few(bits, R, w, own, to, ahead); break;

/* One tile times some rows. Where they are all there is, the next tile is fetched meanwhile; by the only pass
 * what comes soon, since the processor's own fetching ends with each page. (4 bits gain nothing by that.) */
INLINE void one_tile(const int bits, long rows, int are_all, Bits w, Inputs x, float *y) {
    long passes = (rows + ROWS_EACH - 1) / ROWS_EACH, bytes = x.groups * w.block;
    int lines = are_all && (passes > 1 || bits == 8) ? (int)((bits / 2 + passes - 1) / passes) : 0;
    const char *next = (const char *)w.from + (passes > 1 ? bytes : SOON);
    for (long pass = 0; pass < passes; pass++) {
        long first = pass * rows / passes, count = (pass + 1) * rows / passes - first;
        Ahead ahead = {next + pass * (bytes / passes), 32 * bits / passes, lines};
        Inputs own = {x.bytes + first * x.depth, x.scales + first * x.groups, x.totals + first * x.groups,
                      x.depth, x.groups};
        float *to = y + first * WIDTH;
        switch (count) {
            BITS_CASE(1)
            BITS_CASE(2)
#if ROWS_EACH > 2
            BITS_CASE(3)
            BITS_CASE(4)
            BITS_CASE(5)
            BITS_CASE(6)
#endif
        }
    }
}

static __attribute__((noinline)) void tile_of_8(long rows, int are_all, Bits w, Inputs x, float *y) {
    one_tile(8, rows, are_all, w, x, y);
}

static __attribute__((noinline)) void tile_of_4(long rows, int are_all, Bits w, Inputs x, float *y) {
    one_tile(4, rows, are_all, w, x, y);
}

/* `size` numbers to `group` bytes, those behind the end zero. A group that is not finite gets NaN for a scale,
 * one as good as zero gets zero. */
INLINE void round_group(const int bf16, const void *x, long size, long group, int8_t *to, float *scale,
                        int32_t *total) {
    union {
        uint32_t bits;
        float value;
    } most = {largest_bits(bf16, x, size)};
    int is_finite = most.bits < 0x7F800000u, is_some = is_finite && most.value > SMALLEST;
    float factor = is_some ? 127.0f / most.value : 0.0f;
    int32_t sum = 0;
    if (is_some) {
#pragma omp simd reduction(+ : sum)
        for (long i = 0; i < size; i++) {
            int32_t whole = to_whole(load(bf16, x, i) * factor);
            to[i] = (int8_t)whole;
            sum += whole;
        }
    } else {
        memset(to, 0, (size_t)size);
    }
    memset(to + size, 0, (size_t)(group - size));
    *total = sum;
    *scale = is_some ? most.value / 127.0f : is_finite ? 0.0f : NAN;
}

/* sums [rows, 64] + bias + residual, rounded. */
INLINE void finish(const int bf16, long rows, long width, long out, float *sums, const void *bias,
                   const void *residual, void *y) {
    for (long i = 0; i < rows; i++) {
        float *sum = sums + i * WIDTH;
        if (bias)
#pragma omp simd
            for (long j = 0; j < width; j++) sum[j] += load(bf16, bias, j);
        if (residual)
#pragma omp simd
            for (long j = 0; j < width; j++) sum[j] += load(bf16, residual, i * out + j);
        if (bf16) {
            uint16_t *to = (uint16_t *)y + i * out;
#pragma omp simd
            for (long j = 0; j < width; j++) to[j] = narrow(sum[j]);
        } else {
            memcpy((float *)y + i * out, sum, (size_t)width * sizeof *sum);
        }
    }
}

typedef struct {
    const char *x;
    long x_stride;
    const uint8_t *w;
    const char *bias, *residual;
    char *y;
    long rows, in, out, group;
    Before before;
    int8_t *bytes;
    float *scales;
    int32_t *totals;
    int threads;
} Call;

INLINE void run(const int bf16, int bits, const Call *c) {
    long size = bf16 ? 2 : 4, groups = (c->in + c->group - 1) / c->group, depth = groups * c->group;
    long steps = c->group / 4, block = 32 * bits * steps + 5 * WIDTH;
    long tiles = (c->out + WIDTH - 1) / WIDTH, parts = (c->rows + MOST_ROWS - 1) / MOST_ROWS;
#pragma omp parallel num_threads(c->threads)
    {
#pragma omp for schedule(static)
        for (long each = 0; each < c->rows * groups; each++) {
            long row = each / groups, at = each % groups * c->group;
            long left = c->in - at < c->group ? c->in - at : c->group;
            const char *whole = c->x + row * c->x_stride * size, *own = whole + at * size;
            char ready[c->before.how ? left * size : 1];
            if (c->before.how) {
                prepare(bf16, &c->before, whole, c->in, at, left, ready);
                own = ready;
            }
            round_group(bf16, own, left, c->group, c->bytes + row * depth + at, c->scales + each,
                        c->totals + each);
        }
#pragma omp for schedule(static)
        for (long each = 0; each < tiles * parts; each++) {
            float sums[MOST_ROWS * WIDTH];
            long t = each / parts, part = each % parts;
            long first = part * c->rows / parts, rows = (part + 1) * c->rows / parts - first;
            long width = c->out - t * WIDTH < WIDTH ? c->out - t * WIDTH : WIDTH;
            long at = (first * c->out + t * WIDTH) * size;
            Bits w = {c->w + t * groups * block, steps, block};
            Inputs x = {c->bytes + first * depth, c->scales + first * groups, c->totals + first * groups,
                        depth, groups};
            if (bits == 8)
                tile_of_8(rows, parts == 1, w, x, sums);
            else
                tile_of_4(rows, parts == 1, w, x, sums);
            finish(bf16, rows, width, c->out, sums, c->bias ? c->bias + t * WIDTH * size : 0,
                   c->residual ? c->residual + at : 0, c->y + at);
        }
    }
}

/* x [rows, in] with x_stride elements from row to row, [rows, 2 · in] if it is gated, y and residual [rows, out]
 * contiguous, in float or bfloat16; `group` is a multiple of 4 and `in` its groups' inputs, the last of which
 * may be incomplete.
 * `how`, `norm` [in] and `eps` are a `Before`; gates are bfloat16, `in` and `group` then multiples of LANES.
 * `scratch` holds rows · groups · (group + 8) bytes. */
void sensorium_linear_bits(int bf16, int bits, const void *x, long x_stride, const void *w, const void *bias,
                           const void *residual, void *y, long rows, long in, long out, long group, int how,
                           const void *norm, float eps, char *scratch, int threads) {
    long groups = (in + group - 1) / group, bytes = rows * groups * 4;
    Call call = {x,  x_stride, w,   bias,  residual, y, rows,
                 in, out,      group, {how, norm, eps}, (int8_t *)scratch + 2 * bytes, (float *)scratch,
                 (int32_t *)(scratch + bytes), threads};
    if (bf16)
        run(1, bits, &call);
    else
        run(0, bits, &call);
}
