/* What of one source file another one calls; each says above its own what it means. */
#pragma once
#include <stdint.h>

void sensorium_linear(int kind, int bf16, const void *x, long x_stride, const void *w, const void *bias,
                      const void *residual, void *y, long rows, long in, long out, long tile, long depth,
                      int activation, int how, const void *norm, float eps, int threads);

void sensorium_linear_bits(int bf16, int bits, const void *x, long x_stride, const void *w, const void *bias,
                           const void *residual, void *y, long rows, long in, long out, long group, int how,
                           const void *norm, float eps, char *scratch, int threads);

void sensorium_activate(int bf16, int activation, const void *x, void *y, long count, int threads);

void sensorium_attention(int bf16, int coded, const void *query, long query_stride, const void *cache,
                         const int32_t *tables, long table_width, const int32_t *query_starts,
                         const int32_t *contexts, long sequences, long heads, long kv_heads, long dim,
                         long block_size, long window, long chunk, int causal, float scale,
                         const float *sinks, long planes, void *out, int threads);

void sensorium_cross_attention(int bf16, int coded, const void *query, long query_stride,
                               const char *const *memories, const int32_t *query_starts,
                               const int32_t *contexts, long sequences, long heads, long dim, float scale,
                               void *out, int threads);

long sensorium_write_kv(char *cache, long blocks, const int64_t *slots, const char *key, long key_stride,
                        const char *value, long value_stride, long rows, long heads, long block_size,
                        long row_bytes);

long sensorium_write_codes(int bf16, char *cache, long blocks, const int64_t *slots, const void *key,
                           long key_stride, const void *value, long value_stride, long rows, long heads,
                           long block_size, long dim, int threads);

long sensorium_attention_inputs(int bf16, int coded, const void *qkv, long stride, long rows, long heads,
                                long kv_heads, long half, const void *query_norm, const void *key_norm,
                                float eps, const float *cos, const float *sin, char *cache, long blocks,
                                long block_size, const int64_t *slots, char *query, int threads);

void sensorium_rms_norm(int bf16, const void *x, long outer, long outer_stride, long inner, long inner_stride,
                        const void *weight, float eps, void *y, long size, int threads);
