/* One product of small matrices, C[rows, cols] (+)= A[rows, n] B[n, cols], on which linear.c and
 * attention.c stand.
 *
 * Everything is counted in 32-bit words: a float, or two neighbouring numbers of 16 bits along n. So B is
 * float [n, cols], bfloat16 [n/2, cols, 2], which is how oneDNN packs weights and what AVX-512's vdpbf16ps
 * eats, or float16 [n/2, cols/16, 2, 16]. Without that instruction, and where A is float, numbers are widened
 * one after the other. Sums are float. Bytes are multiplied by `add_products`, exactly.
 */
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define LANES 16
#define MAX_ROWS 6 /* 6 × 4 sums, 4 words of B and a broadcast fit AVX-512's 32 registers */
#define MAX_COLS 4
#define INLINE static inline __attribute__((always_inline))

typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t integers __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint8_t plain_bytes __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint16_t halves __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint32_t word __attribute__((aligned(2), may_alias)); /* a pair of bfloat16 starts anywhere */

INLINE float widen(uint16_t x) {
    union {
        uint32_t bits;
        float value;
    } u = {(uint32_t)x << 16};
    return u.value;
}

/* To nearest even, as torch rounds; NaN stays NaN. */
INLINE uint16_t narrow(float x) {
    union {
        float value;
        uint32_t bits;
    } u = {x};
    uint32_t rounded = (u.bits + 0x7FFF + ((u.bits >> 16) & 1)) >> 16;
    return (uint16_t)(x == x ? rounded : 0x7FC0);
}

INLINE float load(const int bf16, const void *from, long i) {
    return bf16 ? widen(((const uint16_t *)from)[i]) : ((const float *)from)[i];
}

/* Magnitude of the largest of some numbers, as bits: beyond infinity's if one is none. */
INLINE uint32_t largest_bits(const int bf16, const void *x, long size) {
    uint32_t largest = 0;
    if (bf16) {
        uint16_t half = 0;
#pragma omp simd reduction(max : half)
        for (long i = 0; i < size; i++) {
            uint16_t magnitude = ((const uint16_t *)x)[i] & 0x7FFF;
            half = magnitude > half ? magnitude : half;
        }
        largest = (uint32_t)half << 16;
    } else {
#pragma omp simd reduction(max : largest)
        for (long i = 0; i < size; i++) {
            uint32_t magnitude = ((const uint32_t *)x)[i] & 0x7FFFFFFFu;
            largest = magnitude > largest ? magnitude : largest;
        }
    }
    return largest;
}

/* To the nearest whole number, even ones where two are near, of anything below 2^22. */
INLINE int32_t to_whole(float x) {
    union {
        float value;
        int32_t bits;
    } u = {x + 12582912.0f}; /* 1.5 · 2^23 */
    return u.bits - 0x4B400000;
}

INLINE integers to_whole_each(floats x) {
#ifdef __AVX512F__
    return (integers)_mm512_cvtps_epi32((__m512)x);
#else
    return (integers)(x + 12582912.0f) - 0x4B400000;
#endif
}

INLINE plain_bytes lowest_bytes(integers x) {
#ifdef __AVX512F__
    return (plain_bytes)_mm512_cvtepi32_epi8((__m512i)x);
#else
    return __builtin_convertvector(x, plain_bytes);
#endif
}

/* a where the mask is all ones, b where it is all zeros. */
INLINE floats pick(words mask, floats a, floats b) {
    return (floats)(((words)a & mask) | ((words)b & ~mask));
}

/* The same of 16 at once. */
INLINE halves narrow_plainly(floats x) {
    words bits = (words)x, rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    words kept = (words)(x == x);
    return __builtin_convertvector((rounded & kept) | (0x7FC0u & ~kept), halves);
}

/* By the instruction where there is one, which takes what is below 2^-126 for 0. */
INLINE halves narrow_each(floats x) {
#ifdef __AVX512BF16__
    return (halves)_mm512_cvtneps_pbh((__m512)x);
#else
    return narrow_plainly(x);
#endif
}

/* As narrow_plainly, fast where no number is so small. */
INLINE halves narrow_exactly(floats x) {
#if defined(__AVX512BF16__) && defined(__AVX512DQ__)
    if (!_mm512_fpclass_ps_mask((__m512)x, 0x01 | 0x20 | 0x80)) return (halves)_mm512_cvtneps_pbh((__m512)x);
#endif
    return narrow_plainly(x);
}

INLINE floats widen_each(halves x) {
#ifdef __AVX512F__
    return (floats)(_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)x), 16));
#else
    return (floats)(__builtin_convertvector(x, words) << 16);
#endif
}

/* The larger of each lane; b where either is no number. */
INLINE floats larger(floats a, floats b) {
#ifdef __AVX512F__
    return (floats)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return pick((words)(a > b), a, b);
#endif
}

/* a b + c, rounded once where there is an instruction for it. */
INLINE floats fused(floats a, floats b, floats c) {
#ifdef __AVX512F__
    return (floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
    return a * b + c;
#endif
}

/* e^x within two units in the last place for x ≤ 88; next to 0 from −87 down. */
INLINE floats exponential(floats x) {
    x = larger((floats){} - 87.0f, x);
    x = -larger((floats){} - 88.0f, -x);
    floats n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* adding 1.5 · 2^23 rounds to an integer */
    floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    floats p = (floats){} + 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (floats)((__builtin_convertvector(n, integers) + 127) << 23);
}

/* What a register of this processor holds. Sums that a loop carries are of these: what is larger than a
 * register compilers keep in memory. */
#if defined(__AVX512F__)
#define WIDE 16
#elif defined(__AVX2__)
#define WIDE 8
#else
#define WIDE 4
#endif
typedef float wide_floats __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));
typedef uint32_t wide_words __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));
typedef int32_t wide_integers __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));

/* Compilers take bytes one at a time where an instruction takes all. */
INLINE wide_integers widen_some(const uint8_t *bytes) {
#if defined(__AVX512F__)
    return (wide_integers)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)bytes));
#elif defined(__AVX2__)
    return (wide_integers)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)bytes));
#else
    wide_integers all;
    for (int i = 0; i < WIDE; i++) all[i] = bytes[i];
    return all;
#endif
}

/* a where the mask is all ones, b where it is all zeros. */
INLINE wide_floats wide_pick(wide_words mask, wide_floats a, wide_floats b) {
    return (wide_floats)(((wide_words)a & mask) | ((wide_words)b & ~mask));
}

/* The larger of each lane; b where either is no number. */
INLINE wide_floats wide_larger(wide_floats a, wide_floats b) {
#if defined(__AVX512F__)
    return (wide_floats)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (wide_floats)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return wide_pick((wide_words)(a > b), a, b);
#endif
}

/* a b + c, rounded once where there is an instruction for it. */
INLINE wide_floats wide_fused(wide_floats a, wide_floats b, wide_floats c) {
#if defined(__AVX512F__)
    return (wide_floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (wide_floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (wide_floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

/* The types of what is multiplied, of A and of B: both float or both pairs of bfloat16, or a float A and a B of
 * pairs or of float16. */
enum { FLOATS, PAIRS, WIDE_PAIRS, WIDE_HALVES };
#define IS_WIDENED(kind) ((kind) >= WIDE_PAIRS)
#ifdef __AVX512BF16__
#define PARTS(kind) (IS_WIDENED(kind) ? 2 : 1) /* of a word of B one after the other */
#else
#define PARTS(kind) ((kind) == FLOATS ? 1 : 2)
#endif

INLINE wide_words part_of_pairs(const int part, wide_words pairs) {
    if (part) return pairs & 0xFFFF0000u;
    return pairs << 16;
}

/* Finite float16. */
INLINE wide_floats widen_halves(const uint16_t *from) {
#if defined(__AVX512F__)
    return (wide_floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#elif defined(__AVX2__) && defined(__F16C__)
    return (wide_floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
#elif defined(__aarch64__)
    return (wide_floats)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
#else
    wide_words bits;
    for (int i = 0; i < WIDE; i++) bits[i] = from[i];
    return (wide_floats)((wide_words)((wide_floats)((bits & 0x7FFF) << 13) * 0x1p112f) | (bits & 0x8000) << 16);
#endif
}

/* Lanes of B, those from `inside` on of sixteen. */
INLINE wide_words load_lanes(const int kind, const int part, const int inside, const uint32_t *from) {
    if (kind == WIDE_HALVES)
        return (wide_words)widen_halves((const uint16_t *)(from - inside) + part * LANES + inside);
    wide_words lanes = *(const wide_words *)from;
    return PARTS(kind) == 2 ? part_of_pairs(part, lanes) : lanes;
}

/* A word of A for all lanes. */
INLINE wide_words load_all(const int kind, const int part, const word *a, long k, long step) {
    if (IS_WIDENED(kind)) return (wide_words){} + a[(2 * k + part) * step];
    wide_words all = (wide_words){} + a[k * step];
    return PARTS(kind) == 2 ? part_of_pairs(part, all) : all;
}

/* sum + the products of lanes, of which `kind` PAIRS has two each. */
INLINE wide_floats multiply_add(const int kind, wide_floats sum, wide_words a, wide_words b) {
#ifdef __AVX512BF16__
    if (kind == PAIRS) return (wide_floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    if (kind == PAIRS) {
        sum = wide_fused((wide_floats)part_of_pairs(0, a), (wide_floats)part_of_pairs(0, b), sum);
        a = part_of_pairs(1, a);
        b = part_of_pairs(1, b);
    }
#endif
    return wide_fused((wide_floats)a, (wide_floats)b, sum);
}

/* sum + the four products of each lane's unsigned bytes with its signed ones. */
INLINE wide_integers add_products(wide_integers sum, wide_words weights, wide_words x) {
#if defined(__AVX512VNNI__)
    return (wide_integers)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, (__m512i)x);
#elif defined(__AVX512BW__)
    __m512i w = (__m512i)weights, a = (__m512i)x;
    __m512i even = _mm512_madd_epi16(_mm512_and_si512(w, _mm512_set1_epi16(255)),
                                     _mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8));
    __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(w, 8), _mm512_srai_epi16(a, 8));
    return sum + (wide_integers)_mm512_add_epi32(even, odd);
#elif defined(__AVXVNNI__) && !defined(__AVX512F__)
    return (wide_integers)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)weights, (__m256i)x);
#elif defined(__AVX2__) && !defined(__AVX512F__)
    __m256i w = (__m256i)weights, a = (__m256i)x;
    __m256i even = _mm256_madd_epi16(_mm256_and_si256(w, _mm256_set1_epi16(255)),
                                     _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8));
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(w, 8), _mm256_srai_epi16(a, 8));
    return sum + (wide_integers)_mm256_add_epi32(even, odd);
#else
#pragma GCC unroll 4
    for (int byte = 0; byte < 4; byte++)
        sum += (wide_integers)(weights >> 8 * byte & 255) * ((wide_integers)(x << (24 - 8 * byte)) >> 24);
    return sum;
#endif
}

/* Keeps the compiler from making all rows' words at once, for which there are not enough registers. */
#ifdef __AVX512F__
#define IN_TURN(x) __asm__ volatile("" : "+v"(x))
#else
#define IN_TURN(x)
#endif

/* What to bring towards the core while computing: `lines` cache lines at every step, `step` bytes apart. */
typedef struct {
    const char *from;
    long step;
    int lines;
} Ahead;

/* Columns come in sixteens, the second 32 `b_half` words behind the first. Those of one call have sums that fit the
 * registers. */
INLINE void tile(const int kind, const int rows, const int sixteens, const int lines, const int add, const word *a,
                 long a_stride, long a_step, const uint32_t *b, long b_stride, long b_half, long n, float *c,
                 long c_stride, Ahead ahead) {
    const int cols = sixteens * LANES / WIDE;
    wide_floats sum[MAX_ROWS][MAX_COLS * LANES / WIDE];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int j = 0; j < cols; j++)
            sum[i][j] = add ? *(wide_floats *)(c + i * c_stride + j * WIDE) : (wide_floats){};
    for (long k = 0; k < n; k++) {
#pragma GCC unroll 4
        for (int l = 0; l < lines; l++) __builtin_prefetch(ahead.from + k * ahead.step + l * 64, 0, 2);
#pragma GCC unroll 2
        for (int part = 0; part < (PARTS(kind)); part++) {
            wide_words line[MAX_COLS * LANES / WIDE];
#pragma GCC unroll 16
            for (int j = 0; j < cols; j++)
                line[j] = load_lanes(kind, part, j * WIDE % LANES,
                                     b + k * b_stride + j * WIDE / 32 * b_half + j * WIDE % 32);
#pragma GCC unroll 6
            for (int i = 0; i < rows; i++) {
                wide_words all = load_all(kind, part, a + i * a_stride, k, a_step);
                IN_TURN(all);
#pragma GCC unroll 16
                for (int j = 0; j < cols; j++)
                    sum[i][j] = multiply_add(PARTS(kind) == 2 ? FLOATS : kind, sum[i][j], all, line[j]);
            }
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int j = 0; j < cols; j++) *(wide_floats *)(c + i * c_stride + j * WIDE) = sum[i][j];
}

/* Sixteens of columns that so many rows take at a time: their sums fit the registers. */
#ifdef __AVX512F__
#define AT_ONCE(rows) MAX_COLS
#else
#define AT_ONCE(rows) ((rows) == 1 ? 4 : (rows) <= 3 ? 2 : 1)
#endif

/* `sixteens` of columns, as many at a time as registers allow, which share what is to be fetched. */
INLINE void tiles(const int kind, const int rows, const int sixteens, const int lines, const int add, const word *a,
                  long a_stride, long a_step, const uint32_t *b, long b_stride, long b_half, long n, float *c,
                  long c_stride, Ahead ahead) {
    const int each = AT_ONCE(rows) < sixteens ? AT_ONCE(rows) : sixteens;
    const int turns = sixteens / each, sharing = lines < turns ? lines : turns, own = sharing ? lines / sharing : 0;
    const Ahead share = {ahead.from, sharing ? ahead.step / sharing : 0, 0};
#pragma GCC unroll 4
    for (int turn = 0; turn < turns; turn++) {
        const int at = turn * each;
        const uint32_t *from = b + at / 2 * b_half + at % 2 * LANES;
        const Ahead next = {share.from + turn * share.step * n, share.step, 0};
        tile(kind, rows, each, turn < sharing ? own : 0, add, a, a_stride, a_step, from, b_stride, b_half, n,
             c + at * LANES, c_stride, next);
    }
}

#define ROWS_CASE(R, COLS, LINES) \
    case R: tiles(kind, R, COLS, LINES, add, a, a_stride, a_step, b, b_stride, b_half, n, c, c_stride, ahead); break;
#define ROWS_SWITCH(COLS, LINES)                                                      \
    switch (rows) {                                                                   \
        ROWS_CASE(1, COLS, LINES)                                                     \
        ROWS_CASE(2, COLS, LINES) ROWS_CASE(3, COLS, LINES) ROWS_CASE(4, COLS, LINES) \
            ROWS_CASE(5, COLS, LINES) ROWS_CASE(6, COLS, LINES)                       \
    }

/* Up to six rows times 64 columns. */
INLINE void wide_tile(const int kind, const int lines, long rows, const int add, const word *a,
                      long a_stride, long a_step, const uint32_t *b, long b_stride, long b_half, long n,
                      float *c, long c_stride, Ahead ahead){ROWS_SWITCH(4, lines)}

/* Up to six rows times 16 columns. */
INLINE void narrow_tile(const int kind, long rows, const int add, const word *a, long a_stride,
                        long a_step, const uint32_t *b, long b_stride, long n, float *c, long c_stride) {
    const Ahead ahead = {0, 0, 0};
    const long b_half = 0;
    ROWS_SWITCH(1, 0)
}

/* Any number of rows, columns a multiple of 16, of floats or pairs. A word of A lies `a_stride` behind that of the row
 * before and `a_step` behind that of the column before. */
INLINE void product(const int kind, long rows, long cols, const int add, const word *a, long a_stride,
                    long a_step, const uint32_t *b, long b_stride, long n, float *c, long c_stride) {
    const Ahead nothing = {0, 0, 0};
    long groups = (rows + MAX_ROWS - 1) / MAX_ROWS;
    for (long j = 0; j < cols;) {
        int wide = cols - j >= MAX_COLS * LANES;
        for (long g = 0; g < groups; g++) {
            long first = g * rows / groups, count = (g + 1) * rows / groups - first;
            const word *from = a + first * a_stride;
            float *to = c + first * c_stride + j;
            if (wide)
                wide_tile(kind, 0, count, add, from, a_stride, a_step, b + j, b_stride, 2 * LANES, n, to, c_stride,
                          nothing);
            else
                narrow_tile(kind, count, add, from, a_stride, a_step, b + j, b_stride, n, to, c_stride);
        }
        j += wide ? MAX_COLS * LANES : LANES;
    }
}
