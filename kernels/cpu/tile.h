/* One product of small matrices, C[rows, cols] (+)= A[rows, n] B[n, cols], on which linear.c and
 * attention.c stand.
 *
 * Everything is counted in 32-bit words: a float, or two neighbouring bfloat16 along n. So B is either
 * float [n, cols] or bfloat16 [n/2, cols, 2], which is how oneDNN packs weights and what AVX-512's
 * vdpbf16ps eats. Without that instruction pairs are widened. Sums are float. Bytes are multiplied by
 * `add_products`, exactly.
 */
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
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

/* Compilers take bytes one at a time where an instruction takes all. */
INLINE integers widen_bytes(plain_bytes x) {
#ifdef __AVX512F__
    return (integers)_mm512_cvtepu8_epi32((__m128i)x);
#else
    return __builtin_convertvector(x, integers);
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

INLINE floats multiply_add_each(const int bf16, floats sum, words all, words b) {
    if (!bf16) return fused((floats)all, (floats)b, sum);
#ifdef __AVX512BF16__
    return (floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)(all), (__m512bh)(b));
#else
    return sum + (floats)(all << 16) * (floats)(b << 16) +
           (floats)(all & 0xFFFF0000u) * (floats)(b & 0xFFFF0000u);
#endif
}

INLINE floats multiply_add(const int bf16, floats sum, uint32_t a, words b) {
    return multiply_add_each(bf16, sum, (words){} + a, b);
}

/* sum + the four products of each lane's unsigned bytes with its signed ones. */
INLINE integers add_products(integers sum, words weights, words x) {
#if defined(__AVX512VNNI__)
    return (integers)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, (__m512i)x);
#elif defined(__AVX2__)
    union {
        words all;
        __m256i half[2];
    } w = {weights}, a = {x}, s = {(words)sum};
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
#ifdef __AVXVNNI__
        s.half[i] = _mm256_dpbusd_avx_epi32(s.half[i], w.half[i], a.half[i]);
#else
        const __m256i lower = _mm256_set1_epi16(255);
        __m256i even = _mm256_madd_epi16(_mm256_and_si256(w.half[i], lower),
                                         _mm256_srai_epi16(_mm256_slli_epi16(a.half[i], 8), 8));
        __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(w.half[i], 8), _mm256_srai_epi16(a.half[i], 8));
        s.half[i] = _mm256_add_epi32(s.half[i], _mm256_add_epi32(even, odd));
#endif
    }
    return (integers)s.all;
#else
#pragma GCC unroll 4
    for (int byte = 0; byte < 4; byte++)
        sum += (integers)(weights >> 8 * byte & 255) * ((integers)(x << (24 - 8 * byte)) >> 24);
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

INLINE void tile(const int bf16, const int rows, const int cols, const int lines, const int add,
                 const word *a, long a_stride, long a_step, const uint32_t *b, long b_stride, long b_half, long n,
                 float *c, long c_stride, Ahead ahead) {
    floats sum[MAX_ROWS][MAX_COLS];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < cols; j++)
            sum[i][j] = add ? *(floats *)(c + i * c_stride + j * LANES) : (floats){};
    for (long k = 0; k < n; k++) {
        words line[MAX_COLS];
#pragma GCC unroll 4
        for (int j = 0; j < cols; j++)
            line[j] = *(const words *)(b + k * b_stride + j / 2 * b_half + j % 2 * LANES);
#pragma GCC unroll 4
        for (int l = 0; l < lines; l++) __builtin_prefetch(ahead.from + k * ahead.step + l * 64, 0, 2);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            words all = (words){} + a[i * a_stride + k * a_step];
            IN_TURN(all);
#pragma GCC unroll 4
            for (int j = 0; j < cols; j++) sum[i][j] = multiply_add_each(bf16, sum[i][j], all, line[j]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < cols; j++) *(floats *)(c + i * c_stride + j * LANES) = sum[i][j];
}

#define ROWS_CASE(R, COLS, LINES) \
    case R: tile(bf16, R, COLS, LINES, add, a, a_stride, a_step, b, b_stride, b_half, n, c, c_stride, ahead); break;
#define ROWS_SWITCH(COLS, LINES)                                                      \
    switch (rows) {                                                                   \
        ROWS_CASE(1, COLS, LINES)                                                     \
        ROWS_CASE(2, COLS, LINES) ROWS_CASE(3, COLS, LINES) ROWS_CASE(4, COLS, LINES) \
            ROWS_CASE(5, COLS, LINES) ROWS_CASE(6, COLS, LINES)                       \
    }

/* Up to six rows times 64 columns, the second 32 of which lie `b_half` words behind the first. */
INLINE void wide_tile(const int bf16, const int lines, long rows, const int add, const word *a,
                      long a_stride, long a_step, const uint32_t *b, long b_stride, long b_half, long n,
                      float *c, long c_stride, Ahead ahead){ROWS_SWITCH(4, lines)}

/* Up to six rows times 16 columns. */
INLINE void narrow_tile(const int bf16, long rows, const int add, const word *a, long a_stride,
                        long a_step, const uint32_t *b, long b_stride, long n, float *c, long c_stride) {
    const Ahead ahead = {0, 0, 0};
    const long b_half = 0;
    ROWS_SWITCH(1, 0)
}

/* Any number of rows, columns a multiple of 16. A word of A lies `a_stride` behind that of the row before
 * and `a_step` behind that of the column before. */
INLINE void product(const int bf16, long rows, long cols, const int add, const word *a, long a_stride,
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
                wide_tile(bf16, 0, count, add, from, a_stride, a_step, b + j, b_stride, 2 * LANES, n, to, c_stride,
                          nothing);
            else
                narrow_tile(bf16, count, add, from, a_stride, a_step, b + j, b_stride, n, to, c_stride);
        }
        j += wide ? MAX_COLS * LANES : LANES;
    }
}
