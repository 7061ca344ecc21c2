/* y = x Wᵀ (+ bias) (+ residual) with weights of 8 or 4 bits: whole numbers multiplied exactly, then scaled.
 *
 * Inputs form groups; a group of an output's weights has a scale and a zero point, one of a row's inputs a
 * scale. W lies in tiles of 64 outputs, and in a tile group after group, a panel each: for every four inputs the
 * 64 outputs' four bytes (in 4 bits outputs 0–15 are the lower halves of 16–31's, 32–47 of 48–63's), then 64
 * scales as floats and 64 zero points as bytes. So a tile is read once, from end to end, and a panel meets up to
 * MOST_ROWS rows while it is in the nearest cache. `kernels/linear/quantized_linear.py` says what is computed, in which order,
 * and nothing else may be. bits_ends.h makes bytes of rows and results of sums. Where the processor has registers of
 * tiles (tiles.h), which take 8 bits as they lie, more than a few rows are multiplied by these (tiles_of_bits.h).
 */
#include "bits_ends.h"
#include "tiles_of_bits.h"
#define STRIP (1 << 19) /* bytes of tiles that meet a part of the rows before the next part: they stay in a cache */
#define SOON 1024       /* bytes */
#define MOST_ROWS 48    /* that meet a panel before the next panel does: their sums stay near, too */
#define LATE_ROWS 4     /* that meet zero points last */
#define ROWS_EACH MAX_ROWS

/* The bytes of four inputs' weights of some outputs, from `at` on. */
INLINE wide_words read_lanes(const int bits, const uint8_t *w, int at) {
    if (bits == 8) return *(const wide_words *)(w + 4 * at);
    wide_words both = *(const wide_words *)(w + at / 32 * 64 + at % 16 * 4);
    if (at / 16 % 2) both >>= 4;
    return both & 0x0F0F0F0Fu;
}

/* Adds a panel times up to ROWS_EACH rows to sums [rows, 64], of `sixteens` of the outputs from `first` on. Zero
 * points lie at its end, which few rows would have to wait for. */
INLINE void part_of_block(const int bits, const int rows, const int first, const int sixteens, const int lines,
                          Panel p, Inputs x, float *sums, Ahead ahead) {
    const int are_late = rows <= LATE_ROWS, cols = sixteens * LANES / WIDE;
    wide_integers sum[ROWS_EACH][MAX_COLS * LANES / WIDE];
#pragma GCC unroll 16
    for (int j = 0; j < cols; j++) {
        wide_integers zero = widen_some(p.zeros + first + WIDE * j);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) sum[i][j] = zero * (are_late ? 0 : -x.totals[i]);
    }
    for (long k = 0; k < p.steps; k++) {
        wide_words line[MAX_COLS * LANES / WIDE];
#pragma GCC unroll 16
        for (int j = 0; j < cols; j++) line[j] = read_lanes(bits, p.weights + k * (32 * bits), first + j * WIDE);
        for (int l = 0; l < lines; l++) __builtin_prefetch(ahead.from + l * 64, 0, 2);
        ahead.from += ahead.step;
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            wide_words all = (wide_words){} + *(const word *)(x.bytes + i * x.group + 4 * k);
#pragma GCC unroll 16
            for (int j = 0; j < cols; j++) sum[i][j] = add_products(sum[i][j], line[j], all);
        }
    }
#pragma GCC unroll 16
    for (int j = 0; j < cols; j++) {
        long at = first + j * WIDE;
        wide_floats scale = *(const wide_floats *)(p.scales + 4 * at);
        wide_integers zero = widen_some(p.zeros + at);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            wide_integers whole = sum[i][j] - zero * (are_late ? x.totals[i] : 0);
            *(wide_floats *)(sums + i * WIDTH + at) += __builtin_convertvector(whole, wide_floats) * scale * x.scales[i];
        }
    }
}

/* The same of all outputs, as many at a time as have room in registers. */
INLINE void block(const int bits, const int rows, Panel p, Inputs x, float *sums, Ahead ahead) {
#pragma GCC unroll 4
    for (int at = 0; at < MAX_COLS; at += AT_ONCE(rows))
        part_of_block(bits, rows, at * LANES, AT_ONCE(rows), at ? 0 : ahead.lines, p, x, sums, ahead);
}

/* Rows in blocks of one size or one more; what to fetch meanwhile is for all of them together. */
typedef struct {
    long blocks, each, longer;
    Ahead ahead;
} Rows;

#define BLOCK_CASE(R) \
    case R: block(bits, R, p, x, sums, r.ahead); break;

/* The same for any number of rows. */
INLINE void panel(const int bits, Rows r, Panel p, Inputs x, float *sums) {
    for (long b = 0; b < r.blocks; b++) {
        long count = r.each + (b < r.longer);
        switch (count) {
            BLOCK_CASE(1)
            BLOCK_CASE(2)
            BLOCK_CASE(3)
            BLOCK_CASE(4)
            BLOCK_CASE(5)
            BLOCK_CASE(6)
        }
        x = inputs_from(x, count);
        sums += count * WIDTH;
        r.ahead.from += r.ahead.step * p.steps;
    }
}

/* A tile times up to MOST_ROWS rows: sums [rows, 64]. Meanwhile the next panel is fetched, or by rows that meet a
 * panel once what comes soon, since the processor's own fetching ends with each page. (4 bits gain nothing by that.) */
INLINE void tile_times(const int bits, long rows, const uint8_t *w, Inputs x, float *sums) {
    long bytes = panel_bytes(bits, x.group), blocks = (rows + ROWS_EACH - 1) / ROWS_EACH;
    int lines = blocks > 1 || bits == 8 ? (int)((bits / 2 + blocks - 1) / blocks) : 0;
    Rows r = {blocks, rows / blocks, rows % blocks, {0, 32 * bits / blocks, lines}};
    memset(sums, 0, (size_t)(rows * WIDTH) * sizeof *sums);
    for (long g = 0; g < x.groups; g++, w += bytes) {
        r.ahead.from = (const char *)w + (blocks > 1 ? bytes : SOON);
        panel(bits, r, panel_at(bits, w, x.group), x, sums);
        x = inputs_from(x, x.rows);
    }
}

/* The same of at least a few rows, a multiple of 16 of which is there. */
INLINE void tile_by_tiles(const int bits, long rows, const uint8_t *w, Inputs x, float *sums) {
    memset(sums, 0, (size_t)(rows * WIDTH) * sizeof *sums);
    for (long g = 0; g < x.groups; g++, w += panel_bytes(bits, x.group)) {
        panel_by_tiles(bits, rows, panel_at(bits, w, x.group), x, sums);
        x = inputs_from(x, x.rows);
    }
}

#define TILE_OF(BITS)                                                                                                   \
    static __attribute__((noinline)) void tile_of_##BITS(long rows, const uint8_t *w, Inputs x, float *sums) {          \
        if (x.by_tiles)                                                                                                 \
            tile_by_tiles(BITS, rows, w, x, sums);                                                                      \
        else                                                                                                            \
            tile_times(BITS, rows, w, x, sums);                                                                         \
    }
TILE_OF(8) TILE_OF(4)

typedef struct {
    const char *x;
    long x_stride;
    const uint8_t *w;
    const char *bias, *residual;
    char *y;
    long rows, in, out, group;
    Before before;
    Inputs rounded;
    int threads;
} Call;

INLINE void run(const int bf16, const int bits, const Call *c) {
    const long size = bf16 ? 2 : 4, groups = c->rounded.groups;
    const long tile_bytes = groups * panel_bytes(bits, c->group), strip = 1 + STRIP / tile_bytes;
    const long most = c->rounded.by_tiles ? ROWS_OF_TILES : MOST_ROWS, unit = c->rounded.by_tiles ? 16 : 1;
    const long tiles = (c->out + WIDTH - 1) / WIDTH, parts = (c->rows + most - 1) / most;
    const long units = (c->rows + unit - 1) / unit;
    const long at_once = parts > 1 ? 1 : (tiles + c->threads - 1) / c->threads; /* few rows read from end to end */
#pragma omp parallel num_threads(c->threads)
    {
#pragma omp for schedule(static) collapse(2)
        for (long row = 0; row < c->rows; row++)
            for (long group = 0; group < groups; group++) {
                long at = group * c->group, left = c->in - at < c->group ? c->in - at : c->group;
                const char *whole = c->x + row * c->x_stride * size, *own = whole + at * size;
                char ready[c->before.how ? left * size : 1];
                if (c->before.how) {
                    prepare(bf16, &c->before, whole, c->in, at, left, ready);
                    own = ready;
                }
                round_group(bf16, own, left, c->rounded, row, group);
            }
        if (c->rounded.by_tiles) begin_tiles();
#pragma omp for schedule(dynamic, at_once)
        for (long each = 0; each < tiles * parts; each++) {
            float sums[ROWS_OF_TILES * WIDTH];
            long begin = each / (strip * parts) * strip, rest = each - begin * parts;
            long abreast = tiles - begin < strip ? tiles - begin : strip;
            long tile = begin + rest % abreast, part = rest / abreast, from = tile * WIDTH;
            long first = part * units / parts * unit, last = (part + 1) * units / parts * unit;
            long rows = (last < c->rows ? last : c->rows) - first;
            long width = c->out - from < WIDTH ? c->out - from : WIDTH, at = (first * c->out + from) * size;
            if (bits == 8)
                tile_of_8(rows, c->w + tile * tile_bytes, inputs_from(c->rounded, first), sums);
            else
                tile_of_4(rows, c->w + tile * tile_bytes, inputs_from(c->rounded, first), sums);
            finish(bf16, rows, width, c->out, sums, c->bias ? c->bias + from * size : 0,
                   c->residual ? c->residual + at : 0, c->y + at);
        }
        if (c->rounded.by_tiles) end_tiles();
    }
}

/* x [rows, in] with x_stride elements from row to row, [rows, 2 · in] if it is gated, y and residual [rows, out]
 * contiguous, in float or bfloat16; `group` is a multiple of 4 and `in` its groups' inputs, the last of which
 * may be incomplete.
 * `how`, `norm` [in] and `eps` are a `Before`; gates are bfloat16, `in` and `group` then multiples of LANES.
 * `scratch` holds groups · (group + 8) bytes for each row, of which there are a multiple of 16. */
void sensorium_linear_bits(int bf16, int bits, const void *x, long x_stride, const void *w, const void *bias,
                           const void *residual, void *y, long rows, long in, long out, long group, int how,
                           const void *norm, float eps, char *scratch, int threads) {
    int by_tiles = tiles_take(bits, rows, group);
    long groups = (in + group - 1) / group, room = by_tiles ? (rows + 15) / 16 * 16 : rows, each = room * groups;
    Inputs rounded = {(int8_t *)scratch + 8 * each, (float *)scratch, (int32_t *)scratch + each,
                      room,                         group,            groups,
                      by_tiles};
    Call call = {x, x_stride, w, bias, residual, y, rows, in, out, group, {how, norm, eps}, rounded, threads};
    if (bf16 && bits == 8)
        run(1, 8, &call);
    else if (bf16)
        run(1, 4, &call);
    else if (bits == 8)
        run(0, 8, &call);
    else
        run(0, 4, &call);
}
