/* Registers of 16 × 16 words and their products, which some processors have (AMX): bfloat16 pairs times bfloat16 pairs,
 * added to floats, and signed bytes times unsigned ones, added to whole numbers. With WRITTEN_OUT they are plain C, so that what is built on them can be checked anywhere; else there
 * are none, `tiles_allowed` says so, and the rest does nothing.
 */
#pragma once
#include <math.h>
#include "tile.h"

#if defined(__AMX_BF16__) && defined(__AMX_INT8__) && defined(__AVX512BF16__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

/* The system saves these registers only for processes that have asked (Linux: ARCH_REQ_XCOMP_PERM, XTILEDATA). */
static int tiles_allowed(void) {
    static int answer; /* 0: not asked yet */
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (!known) {
        known = syscall(SYS_arch_prctl, 0x1023, 18) ? -1 : 1;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known > 0;
}

/* All eight registers are whole ones, until `end_tiles`. Static, since compilers see the first bytes read only. */
INLINE void begin_tiles(void) {
    static const struct {
        uint8_t palette, start, none[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shapes = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&shapes);
}

#define end_tiles() _tile_release()
/* Compilers do not know that `load_tile` reads memory: what was written before must have been. */
#define before_loading() __asm__ volatile("" ::: "memory")
#define clear_tile(c) _tile_zero(c)
#define load_tile(c, from, stride) _tile_loadd(c, from, (stride) * 4)
#define store_tile(c, to, stride) _tile_stored(c, to, (stride) * 4)
#define add_tiles(c, a, b) _tile_dpbf16ps(c, a, b)
#define add_tiles_of_bytes(c, a, b) _tile_dpbsud(c, a, b)

#elif defined(WRITTEN_OUT)
#define tiles_allowed() 1
#define begin_tiles() ((void)0)
#define end_tiles() ((void)0)
#define before_loading() ((void)0)
static __thread uint32_t tiles_there[8][16][16];

INLINE void clear_tile(int c) { memset(tiles_there[c], 0, sizeof tiles_there[c]); }

INLINE void load_tile(int c, const void *from, long stride) {
    for (int i = 0; i < 16; i++) memcpy(tiles_there[c][i], (const uint32_t *)from + i * stride, 64);
}

INLINE void store_tile(int c, void *to, long stride) {
    for (int i = 0; i < 16; i++) memcpy((uint32_t *)to + i * stride, tiles_there[c][i], 64);
}

INLINE float half_of(uint32_t pair, int upper) {
    union {
        uint32_t bits;
        float number;
    } half = {upper ? pair & 0xFFFF0000u : pair << 16};
    return half.number;
}

/* The first and the second of each pair are summed apart, and then added: so the instruction does. */
INLINE void add_tiles(int c, int a, int b) {
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            float sum, parts[2] = {};
            for (int k = 0; k < 16; k++)
                for (int half = 0; half < 2; half++)
                    parts[half] = fmaf(half_of(tiles_there[a][i][k], half), half_of(tiles_there[b][k][j], half), parts[half]);
            memcpy(&sum, &tiles_there[c][i][j], 4);
            sum += parts[0] + parts[1];
            memcpy(&tiles_there[c][i][j], &sum, 4);
        }
}

INLINE void add_tiles_of_bytes(int c, int a, int b) {
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            for (int k = 0; k < 16; k++)
                for (int byte = 0; byte < 4; byte++) {
                    int32_t x = (int8_t)(tiles_there[a][i][k] >> 8 * byte);
                    tiles_there[c][i][j] += (uint32_t)(x * (uint8_t)(tiles_there[b][k][j] >> 8 * byte));
                }
}

#else
#define tiles_allowed() 0
#define begin_tiles() ((void)0)
#define end_tiles() ((void)0)
#define before_loading() ((void)0)
#define clear_tile(c) ((void)0)
#define load_tile(c, from, stride) ((void)(from), (void)(stride))
#define store_tile(c, to, stride) ((void)(to), (void)(stride))
#define add_tiles(c, a, b) ((void)0)
#define add_tiles_of_bytes(c, a, b) ((void)0)
#endif

/* Registers are numbers that compilers must see: so no function. */
#define ADD_TILES(are_bytes, c, a, b) \
    if (are_bytes)                    \
        add_tiles_of_bytes(c, a, b);  \
    else                              \
        add_tiles(c, a, b)

#define TILE (16 * 16)    /* words of a register */
#define LINES_OF_TILES 32 /* cache lines that two of them are */

/* One or two tiles of rows times two that lie side by side → words [16 or 32, 32] at `to`. Distances are in words: from
 * the first rows to the second, from one turn's rows to the next, between rows of the right side and of the result. What
 * lies `ahead` bytes behind the right side is fetched meanwhile, if that is anywhere. */
INLINE void product_of_tiles(const int are_bytes, const int two, const uint32_t *x, long x_second, long x_step,
                             const uint32_t *w, long w_stride, long turns, long ahead, void *to, long to_stride) {
    uint32_t *result = to;
    before_loading();
    clear_tile(0);
    clear_tile(1);
    if (two) {
        clear_tile(2);
        clear_tile(3);
    }
    for (long turn = 0; turn < turns; turn++, x += x_step, w += 16 * w_stride) {
        if (ahead)
#pragma GCC unroll 32
            for (int l = 0; l < LINES_OF_TILES; l++) __builtin_prefetch((const char *)w + ahead + l * 64, 0, 2);
        load_tile(4, x, 16);
        load_tile(6, w, w_stride);
        ADD_TILES(are_bytes, 0, 4, 6);
        load_tile(7, w + 16, w_stride);
        ADD_TILES(are_bytes, 1, 4, 7);
        if (two) {
            load_tile(5, x + x_second, 16);
            ADD_TILES(are_bytes, 2, 5, 6);
            ADD_TILES(are_bytes, 3, 5, 7);
        }
    }
    store_tile(0, result, to_stride);
    store_tile(1, result + 16, to_stride);
    if (two) {
        store_tile(2, result + 16 * to_stride, to_stride);
        store_tile(3, result + 16 * to_stride + 16, to_stride);
    }
}
