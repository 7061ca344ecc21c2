/* A decoder's layers for few rows of bfloat16 or float, one call after the other as the Python wrappers would call
 * them.
 *
 * Between two calls an interpreter needs some ten microseconds, and much more where a step has read so much
 * that it is in no cache. Everything that is computed is computed by the other files.
 */
#include "activation.h"
#include "experts.h"

/* Norms are weights, of layer norms with their biases. `query` and `cross_out` are there where a decoder listens;
 * norms of heads may be 0. Keys and values lie at `place` of the cache, under the tables of a `group` of layers.
 * `sinks` [heads] may be 0. Where there is a mixture of experts, it stands for the last two products. */
typedef struct {
    Product qkv, out, query, cross_out, up, down;
    const void *norm, *cross_norm, *last_norm, *query_norm, *key_norm;
    long window, group, place;
    const float *sinks;
    const Mixture *mixture;
} Layer;

/* What all layers share. The middle is gated if `activation` is below 0. Queries and keys are turned where there
 * are cosines; they then have `half` pairs of them. */
typedef struct {
    long bf16, num_layers, rows, heads, kv_heads, dim, norm, activation;
    const float *cos, *sin;
    char *cache;
    long layer_bytes, coded, blocks, block_size;
    const int64_t *const *slots;  /* of each group */
    const int32_t *const *tables; /* of each group */
    const int32_t *starts, *contexts;
    long table_width, sequences;
    const char *const *memories; /* [layers, listeners] */
    const int32_t *listener_starts, *lengths;
    long listeners, memories_coded;
    char *scratch; /* as much as any product wants */
    long threads;
} Step;

typedef struct {
    char *qkv, *query, *mixed, *middle, *normed;
} Space;

INLINE void multiply_all(const Product *p, const Step *s, float eps, const void *x, long stride, int how,
                         const void *norm, int activation, const void *residual, void *y) {
    Shared shared = {(int)s->bf16, (int)s->threads, s->scratch};
    Before before = {how, norm, eps};
    multiply(p, shared, x, s->rows, stride, before, activation, residual, y);
}

/* Attention of the rows to their own sequences, to `mixed`; keys and values are in the cache then. */
static long attend_own(const Layer *l, const Step *s, float head_eps, float scale, Space at) {
    const int64_t *slots = s->slots[l->group];
    char *cache = s->cache + l->place * s->layer_bytes;
    long width = s->heads * s->dim, stride = width + 2 * s->kv_heads * s->dim, size = s->bf16 ? 2 : 4, bad;
    int bf16 = (int)s->bf16, threads = (int)s->threads;
    char *key = at.qkv + size * width, *value = key + size * s->kv_heads * s->dim;
    const char *query = s->cos ? at.query : at.qkv;
    if (s->cos)
        bad = sensorium_attention_inputs(bf16, (int)s->coded, at.qkv, stride, s->rows, s->heads, s->kv_heads,
                                         s->dim / 2, l->query_norm, l->key_norm, head_eps, s->cos, s->sin, cache,
                                         s->blocks, s->block_size, slots, at.query, threads);
    else if (s->coded)
        bad = sensorium_write_codes(bf16, cache, s->blocks, slots, key, stride, value, stride, s->rows, s->kv_heads,
                                    s->block_size, s->dim, threads);
    else
        bad = sensorium_write_kv(cache, s->blocks, slots, key, size * stride, value, size * stride, s->rows,
                                 s->kv_heads, s->block_size, size * s->dim);
    if (bad >= 0) return bad;
    sensorium_attention(bf16, (int)s->coded, query, s->cos ? width : stride, cache, s->tables[l->group],
                        s->table_width, s->starts, s->contexts, s->sequences, s->heads, s->kv_heads, s->dim,
                        s->block_size, l->window, 0, 1, scale, l->sinks, 2, at.mixed, threads);
    return -1;
}

/* x [rows, size] becomes what is behind the layers. `eps` is that of norms, `head_eps` of heads' norms; scores are
 * scaled. Gives the number of a row whose slot the cache lacks, −1 if all is well. */
long sensorium_layers(const Layer *layers, const Step *s, float eps, float head_eps, float scale, char *x) {
    const Layer *first = layers;
    long width = s->heads * s->dim, bytes = (s->bf16 ? 2 : 4) * s->rows, bad = -1;
    char *memory = malloc((size_t)(bytes * (first->qkv.out + 2 * width + first->up.out + first->qkv.in)));
    Space at = {memory, memory + bytes * first->qkv.out, memory + bytes * (first->qkv.out + width),
                memory + bytes * (first->qkv.out + 2 * width),
                memory + bytes * (first->qkv.out + 2 * width + first->up.out)};
    int norm = (int)s->norm, gated = s->activation < 0, activation = gated ? NONE : (int)s->activation;
    for (long i = 0; i < s->num_layers && bad < 0; i++) {
        const Layer *l = layers + i;
        long size = l->qkv.in;
        multiply_all(&l->qkv, s, eps, x, size, norm, l->norm, NONE, 0, at.qkv);
        bad = attend_own(l, s, head_eps, scale, at);
        if (bad >= 0) break;
        multiply_all(&l->out, s, eps, at.mixed, width, AS_IT_IS, 0, NONE, x, x);
        if (s->listeners) {
            multiply_all(&l->query, s, eps, x, size, norm, l->cross_norm, NONE, 0, at.query);
            sensorium_cross_attention((int)s->bf16, (int)s->memories_coded, at.query, width,
                                      s->memories + i * s->listeners, s->listener_starts, s->lengths, s->listeners, s->heads, s->dim,
                                      scale, at.mixed, (int)s->threads);
            multiply_all(&l->cross_out, s, eps, at.mixed, width, AS_IT_IS, 0, NONE, x, x);
        }
        if (l->mixture) {
            sensorium_rms_norm((int)s->bf16, x, s->rows, size, 1, 0, l->last_norm, eps, at.normed, size,
                               (int)s->threads);
            sensorium_mixture((int)s->bf16, l->mixture, at.normed, s->rows, size, x, s->scratch, (int)s->threads);
            continue;
        }
        multiply_all(&l->up, s, eps, x, size, norm, l->last_norm, activation, 0, at.middle);
        multiply_all(&l->down, s, eps, at.middle, l->up.out, gated ? GATED : AS_IT_IS, 0, NONE, x, x);
    }
    free(memory);
    return bad;
}
