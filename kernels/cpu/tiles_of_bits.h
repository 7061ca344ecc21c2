/* Rows that lie as tiles times a panel of weights of 8 or 4 bits (linear_bits.c), by registers of tiles.
 *
 * Sixteen steps of four inputs are a tile of sixteen outputs' bytes as they lie. Those of 4 bits are made bytes
 * first, once for all rows that meet them.
 */
#pragma once
#include "bits_ends.h"
#include "tiles.h"
#define STEPS 16           /* of four inputs, in a tile */
#define LARGEST_GROUP 1024 /* of 4 bits, whose bytes stay near */
#define ROWS_OF_TILES 64   /* that meet a panel before the next panel does */

/* 64 outputs' weights for one group of inputs. */
typedef struct {
    const uint8_t *weights;
    const uint8_t *scales; /* 64 floats */
    const uint8_t *zeros;
    long steps; /* of four inputs */
} Panel;

INLINE long panel_bytes(int bits, long group) { return 8 * bits * group + 5 * WIDTH; }

INLINE Panel panel_at(int bits, const uint8_t *w, long group) {
    const uint8_t *scales = w + 8 * bits * group;
    return (Panel){w, scales, scales + 4 * WIDTH, group / 4};
}

INLINE int tiles_take(int bits, long rows, long group) {
    return rows > MAX_ROWS && group % TILE_BYTES == 0 && (bits == 8 || group <= LARGEST_GROUP) && tiles_allowed();
}

/* The bytes of a panel of 4 bits, as those of 8 bits lie. */
INLINE void make_bytes(Panel p, uint8_t *to) {
    for (long k = 0; k < 2 * p.steps; k++, to += 2 * TILE_BYTES) {
        words both = *(const words *)(p.weights + k * TILE_BYTES);
        *(words *)to = both & 0x0F0F0F0Fu;
        *(words *)(to + TILE_BYTES) = both >> 4 & 0x0F0F0F0Fu;
    }
}

/* Whole numbers [rows, 32] of the outputs from `first` on, scaled, to their sums. */
INLINE void add_scaled(long rows, const int32_t *whole, long first, Panel p, Inputs x, float *sums) {
    const int cols = 2 * LANES / WIDE;
    wide_integers zero[2 * LANES / WIDE];
    wide_floats scale[2 * LANES / WIDE];
    for (int j = 0; j < cols; j++) {
        zero[j] = widen_some(p.zeros + first + WIDE * j);
        scale[j] = *(const wide_floats *)(p.scales + 4 * (first + WIDE * j));
    }
    for (long i = 0; i < rows; i++, whole += 2 * LANES)
        for (int j = 0; j < cols; j++) {
            wide_integers sum = *(const wide_integers *)(whole + WIDE * j) - zero[j] * x.totals[i];
            *(wide_floats *)(sums + i * WIDTH + first + WIDE * j) +=
                __builtin_convertvector(sum, wide_floats) * scale[j] * x.scales[i];
        }
}

/* Adds a panel times rows to sums [rows, 64]. While the first rows meet it the next panel is fetched; one of 4 bits is
 * read from end to end, which processors notice by themselves. */
INLINE void panel_by_tiles(const int bits, long rows, Panel p, Inputs x, float *sums) {
    uint8_t bytes[bits == 4 ? x.group * WIDTH : 1] __attribute__((aligned(64)));
    int32_t whole[2 * 16 * 2 * LANES] __attribute__((aligned(64)));
    const uint8_t *weights = bits == 4 ? bytes : p.weights;
    if (bits == 4) make_bytes(p, bytes);
    for (long first = 0; first < WIDTH; first += 2 * LANES)
        for (long row = 0; row < rows; row += 32) {
            Inputs from = inputs_from(x, row);
            const uint32_t *a = (const uint32_t *)from.bytes, *w = (const uint32_t *)weights + first;
            /* Each half of the outputs fetches half of what each turn will read. */
            long next = panel_bytes(bits, x.group) + (first ? LINES_OF_TILES * 64 - 4 * first : 0);
            long ahead = bits == 8 && !row ? next : 0, left = rows - row, second = 4 * x.group;
            if (left > 16)
                product_of_tiles(1, 1, a, second, TILE, w, WIDTH, p.steps / STEPS, ahead, whole, 2 * LANES);
            else
                product_of_tiles(1, 0, a, second, TILE, w, WIDTH, p.steps / STEPS, ahead, whole, 2 * LANES);
            add_scaled(left < 32 ? left : 32, whole, first, p, from, sums + row * WIDTH);
        }
}
