/* y = activation(x Wᵀ (+ bias)) (+ residual). Rows may go through a norm or a gate first (rows.h).
 *
 * W lies in tiles of 64 outputs, B of tile.h each; those of bfloat16 for rows of bfloat16 as oneDNN packs them,
 * with 64 or 32 outputs, [out/tile, depth/2, tile, 2], where `depth` is `in` or a little more. Tiles of 32 are
 * what oneDNN wants where the processor has AMX. Few rows are a decode step, which reads every weight once:
 * while they meet 64 outputs, the next 64 are fetched, so that reading and computing overlap. Many rows meet
 * all weights a share at a time. An output is one sum from the first input to the last either way.
 */
#include "activation.h"
#include "calls.h"
#include "rows.h"
#include "tiles.h"
#define WIDTH 64
#define AMX_WORDS 16
#define AMX_ROWS 3 /* 3 × 8 sums and what meets them fit AVX-512's 32 registers */
#define FEW 64     /* rows that meet all weights together */
#define SHARE 256  /* of many rows meet them at a time: with 128 outputs' weights 1024 inputs fit in the second cache */
#define PIECES 8   /* that a thread takes of many rows, more or less */

/* The weights of 64 outputs: `n` words of each, `stride` words apart; where the second 32 begin. */
typedef struct {
    const uint32_t *from;
    long n, stride, half, words;
} Tiles;

/* What a pass over some of the rows fetches of the next 64 outputs. */
INLINE Ahead share_of_next(Tiles w, long pass, long passes) {
    long step = (256 + passes - 1) / passes;
    Ahead ahead = {(const char *)(w.from + w.words) + pass * step * w.n, step, 0};
    return ahead;
}

/* Up to six rows times 64 outputs: apart from all else, which would want its registers. */
#define BLOCK(KIND, LINES)                                                                                  \
    static __attribute__((noinline)) void block_##KIND##_##LINES(long rows, const word *x, long stride,     \
                                                                 const uint32_t *w, long n, float *sums,    \
                                                                 Ahead ahead) {                             \
        wide_tile(KIND, LINES, rows, 0, x, stride, 1, w, WIDTH, WIDTH / 2, n, sums, WIDTH, ahead);          \
    }
#define BLOCKS(KIND) BLOCK(KIND, 0) BLOCK(KIND, 1) BLOCK(KIND, 2) BLOCK(KIND, 4)
#define BLOCK_CASE(KIND)                                             \
    case KIND:                                                       \
        if (lines == 0) block_##KIND##_0(rows, x, stride, w, n, sums, ahead); \
        if (lines == 1) block_##KIND##_1(rows, x, stride, w, n, sums, ahead); \
        if (lines == 2) block_##KIND##_2(rows, x, stride, w, n, sums, ahead); \
        if (lines == 4) block_##KIND##_4(rows, x, stride, w, n, sums, ahead); \
        break;
BLOCKS(FLOATS) BLOCKS(PAIRS) BLOCKS(WIDE_PAIRS) BLOCKS(WIDE_HALVES)

INLINE void one_block(const int kind, int lines, long rows, const word *x, long stride, const uint32_t *w, long n,
                      float *sums, Ahead ahead) {
    switch (kind) {
        BLOCK_CASE(FLOATS)
        BLOCK_CASE(PAIRS)
        BLOCK_CASE(WIDE_PAIRS)
        BLOCK_CASE(WIDE_HALVES)
    }
}

/* Lines of the next tile to fetch at every step of one of so many passes. Where one pass reads weights from end to end
 * processors notice by themselves. */
INLINE int lines_ahead(long passes, long rows) {
    if (passes == 1) return AT_ONCE(rows) < MAX_COLS ? 4 : 0;
    return passes <= 3 ? 2 : 1;
}

INLINE void one_tile(const int kind, long rows, const word *x, long stride, Tiles w, float *sums) {
    long passes = (rows + MAX_ROWS - 1) / MAX_ROWS;
    for (long pass = 0; pass < passes; pass++) {
        long first = pass * rows / passes, count = (pass + 1) * rows / passes - first;
        one_block(kind, lines_ahead(passes, rows), count, x + first * stride, stride, w.from, w.n,
                  sums + first * WIDTH, share_of_next(w, pass, passes));
    }
}

/* Up to three rows of floats times bfloat16 weights, summed as AMX sums: 16 words at a time, the first and
 * the second of each pair apart. So this and oneDNN's product, which takes many rows, agree in every bit. */
INLINE void amx_rows(const int rows, const int lines, const float *x, long stride, Tiles w, float *sums,
                     Ahead ahead) {
    const words upper = (words){} + 0xFFFF0000u;
    for (long begin = 0; begin < w.n; begin += AMX_WORDS) {
        long end = begin + AMX_WORDS < w.n ? begin + AMX_WORDS : w.n;
        floats first[AMX_ROWS][MAX_COLS] = {}, second[AMX_ROWS][MAX_COLS] = {};
        for (long k = begin; k < end; k++) {
#pragma GCC unroll 2
            for (int l = 0; l < lines; l++) __builtin_prefetch(ahead.from + k * ahead.step + l * 64, 0, 2);
#pragma GCC unroll 4
            for (int j = 0; j < MAX_COLS; j++) {
                words b = *(const words *)(w.from + k * w.stride + j / 2 * w.half + j % 2 * LANES);
                words low = b << 16, high = b & upper;
#pragma GCC unroll 3
                for (int i = 0; i < rows; i++) {
                    first[i][j] = fused((floats){} + x[i * stride + 2 * k], (floats)low, first[i][j]);
                    second[i][j] = fused((floats){} + x[i * stride + 2 * k + 1], (floats)high, second[i][j]);
                }
            }
        }
#pragma GCC unroll 3
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < MAX_COLS; j++)
                *(floats *)(sums + i * WIDTH + j * LANES) += first[i][j] + second[i][j];
    }
}

INLINE void one_amx_tile(long rows, const float *x, long stride, Tiles w, float *sums) {
    long passes = (rows + AMX_ROWS - 1) / AMX_ROWS;
    memset(sums, 0, (size_t)(rows * WIDTH) * sizeof *sums);
    for (long pass = 0; pass < passes; pass++) {
        long first = pass * rows / passes, count = (pass + 1) * rows / passes - first;
        Ahead ahead = share_of_next(w, pass, passes);
        const float *a = x + first * stride;
        float *c = sums + first * WIDTH;
        switch (count) {
            case 1: amx_rows(1, 2, a, stride, w, c, ahead); break;
            case 2: amx_rows(2, 2, a, stride, w, c, ahead); break;
            default: amx_rows(3, 2, a, stride, w, c, ahead);
        }
    }
}

/* A row of `n` words, or zeros, among those that lie as tiles [n / 16, tiles, 16 rows, 16]. */
INLINE void lay_row(const uint32_t *from, long n, long row, long tiles, uint32_t *to) {
    for (long k = 0; k < n; k += 16) {
        uint32_t *words = to + (k / 16 * tiles + row / 16) * TILE + row % 16 * 16;
        if (from)
            memcpy(words, from + k, 64);
        else
            memset(words, 0, 64);
    }
}

/* As `one_amx_tile`, of rows that lie as tiles, with sums of whole ones. */
static __attribute__((noinline)) void all_tiles(long tiles, const uint32_t *x, Tiles w, float *sums) {
    for (long half = 0; half < 2; half++)
        for (long t = 0; t < tiles; t += 2) {
            const uint32_t *from = x + t * TILE, *weights = w.from + half * w.half;
            float *to = sums + t * 16 * WIDTH + half * WIDTH / 2;
            long ahead = t ? 0 : 4 * LINES_OF_TILES * 64;
            if (t + 1 < tiles)
                product_of_tiles(0, 1, from, TILE, tiles * TILE, weights, w.stride, w.n / 16, ahead, to, WIDTH);
            else
                product_of_tiles(0, 0, from, TILE, tiles * TILE, weights, w.stride, w.n / 16, ahead, to, WIDTH);
        }
}

/* The sums of `rows` rows with `width` outputs each as they are stored. */
INLINE void finish(const int bf16, int activation, long rows, long width, const float *sums, const void *bias,
                   const void *residual, long residual_stride, void *y, long stride) {
    for (long i = 0; i < rows; i++) {
        const float *sum = sums + i * WIDTH;
        const void *more = residual ? past(bf16, residual, i * residual_stride) : 0;
        void *to = (void *)past(bf16, y, i * stride);
        long j = 0;
        for (; j + LANES <= width; j += LANES) {
            floats x = *(const floats *)(sum + j);
            if (bias) x += load_each(bf16, bias, j);
            if (more) x += load_each(bf16, more, j);
            if (activation) x = activated(bf16, activation, round_each(bf16, x));
            store_each(bf16, to, j, x);
        }
        for (; j < width; j++) {
            float x = sum[j] + (bias ? load(bf16, bias, j) : 0.0f) + (more ? load(bf16, more, j) : 0.0f);
            if (activation) x = activated(bf16, activation, (floats){} + rounded(bf16, x))[0];
            store(bf16, to, j, x);
        }
    }
}

typedef struct {
    const char *x;
    long x_stride;
    const void *w;
    const char *bias, *residual;
    char *y;
    long rows, in, out, tile, depth;
    int activation;
    Before before;
    int threads;
    int in_planes; /* y is [out / 64, rows, 64] */
} Call;

/* Stores the sums of `rows` rows from `row` on with the tile `t` of 64 outputs. */
INLINE void finish_tile(const int bf16, const Call *c, long row, long rows, long t, const float *sums) {
    long size = bf16 ? 2 : 4, at = t * WIDTH, below = row * c->out + at;
    long width = c->out - at < WIDTH ? c->out - at : WIDTH, stride = c->in_planes ? WIDTH : c->out;
    finish(bf16, c->activation, rows, width, sums, c->bias ? c->bias + at * size : 0,
           c->residual ? c->residual + below * size : 0, c->out,
           c->y + (c->in_planes ? at * c->rows + row * WIDTH : below) * size, stride);
}

/* The rows as they are multiplied: prepared in `ready`, and as floats in `wide`, where there are these. */
INLINE void make_ready(const int bf16, const Call *c, char *ready, float *wide) {
    long size = bf16 ? 2 : 4, piece = is_gated(c->before.how) ? PIECE : c->in,
         pieces = (c->in + piece - 1) / piece;
#pragma omp for schedule(static)
    for (long each = 0; each < c->rows * pieces; each++) {
        long row = each / pieces, first = each % pieces * piece, at = row * c->in + first;
        long count = c->in - first < piece ? c->in - first : piece;
        const char *from = c->x + row * c->x_stride * size;
        if (ready) prepare(bf16, &c->before, from, c->in, first, count, ready + at * size);
        const uint16_t *whole = (const uint16_t *)(ready ? ready + at * size : from + first * size);
        for (long k = 0; wide && k < count; k++) wide[at + k] = widen(whole[k]);
    }
}

/* Words of a tile's outputs are each one input, or two. */
INLINE long words_of(const int kind, long inputs) { return kind == FLOATS ? inputs : inputs / 2; }

/* How far apart rows are that lie `elements` apart, as they are multiplied. */
INLINE long words_apart(const int kind, long elements) { return kind == PAIRS ? elements / 2 : elements; }

INLINE void run(const int kind, const int bf16, const Call *c) {
    long rows = c->rows, tile = c->tile, words = words_of(kind, c->depth) * WIDTH;
    long half = tile == WIDTH ? WIDTH / 2 : words / 2, tiles = (c->out + WIDTH - 1) / WIDTH;
    int as_amx = kind == PAIRS && tile < WIDTH;
    long row_tiles = 0; /* where rows are multiplied as tiles: how many of them */
    if (as_amx && rows > AMX_ROWS && c->in % 32 == 0 && tiles_allowed()) row_tiles = (rows + 15) / 16;
    int is_wide = bf16 && ((as_amx && !row_tiles) || IS_WIDENED(kind));
    uint32_t *laid = row_tiles ? malloc((size_t)(row_tiles * 16 * c->in * 2)) : 0;
    float *wide = is_wide ? malloc((size_t)(rows * c->in) * sizeof *wide) : 0;
    char *ready = c->before.how ? malloc((size_t)(rows * c->in) * (bf16 ? 2 : 4)) : 0;
    const void *x = wide ? (const void *)wide : ready ? ready : c->x;
    long stride = words_apart(kind, wide || ready ? c->in : c->x_stride);
#pragma omp parallel num_threads(c->threads)
    {
        if (ready || wide) make_ready(bf16, c, ready, wide);
        if (laid) {
#pragma omp for schedule(static)
            for (long row = 0; row < row_tiles * 16; row++)
                lay_row(row < rows ? (const uint32_t *)x + row * stride : 0, c->in / 2, row, row_tiles, laid);
            begin_tiles();
        }
#pragma omp for schedule(static)
        for (long t = 0; t < tiles; t++) {
            float sums[(row_tiles ? row_tiles * 16 : rows) * WIDTH];
            Tiles own = {(const uint32_t *)c->w + t * words, words_of(kind, c->in), tile, half, words};
            if (as_amx && c->out - t * WIDTH <= tile) own.half = 0; /* there are no second 32 */
            if (laid)
                all_tiles(row_tiles, laid, own, sums);
            else if (as_amx)
                one_amx_tile(rows, wide, c->in, own, sums);
            else
                one_tile(kind, rows, x, stride, own, sums);
            finish_tile(bf16, c, 0, rows, t, sums);
        }
        if (laid) end_tiles();
    }
    free(wide);
    free(ready);
    free(laid);
}

/* Towards the core while a block is multiplied: what is added to it, of which each row lies elsewhere. */
INLINE void fetch_residual(const int bf16, const Call *c, long row, long rows, long t) {
    for (long i = row; c->residual && i < row + rows; i++)
        for (long j = 0; j < WIDTH; j += bf16 ? 32 : 16)
            __builtin_prefetch(past(bf16, c->residual, i * c->out + t * WIDTH + j), 0, 3);
}

/* The tile `t` of 64 outputs of the blocks of rows `x` from `first` to `last` (exclusive) of `blocks`. */
INLINE void some_blocks(const int kind, const int bf16, const Call *c, const word *x, long stride, long t, long first,
                        long last, long blocks) {
    long n = words_of(kind, c->in), words = words_of(kind, c->depth) * WIDTH;
    Tiles own = {(const uint32_t *)c->w + t * words, n, WIDTH, WIDTH / 2, words};
    for (long block = first; block < last; block++) {
        float sums[MAX_ROWS * WIDTH];
        long row = block * c->rows / blocks, count = (block + 1) * c->rows / blocks - row;
        Ahead ahead = share_of_next(own, block - first, last - first);
        fetch_residual(bf16, c, row, count, t);
        one_block(kind, 1, count, x + row * stride, stride, own.from, n, sums, ahead);
        finish_tile(bf16, c, row, count, t, sums);
    }
}

/* Where registers hold the sums of few columns, these should lie together: a tile becomes floats [4, in, 16], which
 * a share of the rows then meets sixteen columns at a time. */
INLINE void widen_tile(const int kind, const uint32_t *from, long n, float *to) {
    for (long at = 0; at < WIDTH; at += LANES) {
        float *panel = to + at * n * PARTS(kind);
        for (long k = 0; k < n; k++)
            for (int part = 0; part < PARTS(kind); part++, panel += LANES)
                for (int j = 0; j < LANES; j += WIDE)
                    *(wide_words *)(panel + j) = load_lanes(kind, part, j, from + k * WIDTH + at + j);
    }
}

static __attribute__((noinline)) void panel_of_block(long rows, const word *x, long stride, const float *panel, long n,
                                                     float *sums) {
    narrow_tile(FLOATS, rows, 0, x, stride, 1, (const uint32_t *)panel, LANES, n, sums, WIDTH);
}

INLINE void some_panels(const int kind, const int bf16, const Call *c, const word *x, long stride, long t, long first,
                        long last, long blocks, float *panels, float *sums) {
    long words = words_of(kind, c->depth) * WIDTH, begin = first * c->rows / blocks, end = last * c->rows / blocks;
    widen_tile(kind, (const uint32_t *)c->w + t * words, words_of(kind, c->in), panels);
    for (long at = 0; at < WIDTH; at += LANES)
        for (long block = first; block < last; block++) {
            long row = block * c->rows / blocks, count = (block + 1) * c->rows / blocks - row;
            panel_of_block(count, x + row * stride, stride, panels + at * c->in, c->in,
                           sums + (row - begin) * WIDTH + at);
        }
    finish_tile(bf16, c, begin, end - begin, t, sums);
}

/* As `run`, for more rows, as they are, and tiles of 64. Threads take some tiles of a share of the rows at a time,
 * and in the end wait for such a piece at most. */
INLINE void run_many(const int kind, const int bf16, const Call *c) {
    long blocks = (c->rows + MAX_ROWS - 1) / MAX_ROWS, shares = (c->rows + SHARE - 1) / SHARE;
    long tiles = (c->out + WIDTH - 1) / WIDTH, all = shares * tiles, pieces = PIECES * c->threads;
    int is_wide = bf16 && IS_WIDENED(kind);
    float *wide = is_wide ? malloc((size_t)(c->rows * c->in) * sizeof *wide) : 0;
    const word *x = wide ? (const word *)wide : (const word *)c->x;
    long stride = words_apart(kind, wide ? c->in : c->x_stride);
    int in_panels = WIDE < LANES && kind != PAIRS;
#pragma omp parallel num_threads(c->threads)
    {
        float *panels = in_panels ? malloc((size_t)(WIDTH * (c->in + SHARE + 2 * MAX_ROWS)) * sizeof *panels) : 0;
        if (wide) make_ready(bf16, c, 0, wide);
#pragma omp for schedule(dynamic)
        for (long piece = 0; piece < pieces; piece++)
            for (long i = piece * all / pieces; i < (piece + 1) * all / pieces; i++) {
                long share = i / tiles, first = share * blocks / shares, last = (share + 1) * blocks / shares;
                if (in_panels)
                    some_panels(kind, bf16, c, x, stride, i % tiles, first, last, blocks, panels,
                                panels + WIDTH * c->in);
                else
                    some_blocks(kind, bf16, c, x, stride, i % tiles, first, last, blocks);
            }
        free(panels);
    }
    free(wide);
}

INLINE void run_any(const int kind, const int bf16, const Call *c) {
    if (c->rows > FEW || c->in_planes)
        run_many(kind, bf16, c);
    else
        run(kind, bf16, c);
}

static void start(int kind, int bf16, const Call *c) {
    if (kind == FLOATS)
        run_any(FLOATS, 0, c);
    else if (kind == PAIRS)
        run_any(PAIRS, 1, c);
    else if (kind == WIDE_HALVES)
        run_any(WIDE_HALVES, 0, c);
    else if (bf16)
        run_any(WIDE_PAIRS, 1, c);
    else
        run_any(WIDE_PAIRS, 0, c);
}

/* Whether rows of bfloat16 meet tiles of 32 outputs by an instruction, where `in` is a multiple of 32. */
int sensorium_has_tiles(void) { return tiles_allowed(); }

/* x [rows, in] with x_stride elements from row to row (even of PAIRS), [rows, 2 · in] if it is gated; y and
 * residual [rows, out] contiguous. Rows and results are bfloat16 or float; `kind` says what they are multiplied
 * with: FLOATS and WIDE_HALVES float rows, PAIRS those of bfloat16. `in` is even but of FLOATS. `how`, `norm` [in] and
 * `eps` are a `Before`; of what is gated `in` is a multiple of LANES. More rows than FEW come as they are, with
 * tiles of 64. */
void sensorium_linear(int kind, int bf16, const void *x, long x_stride, const void *w, const void *bias,
                      const void *residual, void *y, long rows, long in, long out, long tile, long depth,
                      int activation, int how, const void *norm, float eps, int threads) {
    Call call = {x, x_stride, w, bias, residual, y, rows, in, out, tile, depth, activation, {how, norm, eps}, threads, 0};
    start(kind, bf16, &call);
}

/* The same of tiles of 64, with y [out / 64, rows, 64]. */
void sensorium_linear_planes(int kind, int bf16, const void *x, long x_stride, const void *w, const void *bias, void *y,
                             long rows, long in, long out, long depth, int threads) {
    Call call = {x, x_stride, w, bias, 0, y, rows, in, out, WIDTH, depth, NONE, {AS_IT_IS, 0, 0}, threads, 1};
    start(kind, bf16, &call);
}
