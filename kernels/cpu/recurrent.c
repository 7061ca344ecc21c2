/* Recurrent layers over states in slots: a short convolution, and the gated delta rule with everything between the
 * projections of its layer.
 *
 * Everything is float. A sequence's rows follow each other, from `starts` of it on, and its state is changed where it
 * lies, `slot_size` floats behind that of the slot before. Each number is computed in one order, so that a row is the
 * same in any company and any division into steps.
 */
#include "rows.h"
#define CHANNELS 512         /* of a convolution that a thread takes at a time */
#define WORTH_THREADS 65536  /* numbers from which a second thread pays for being woken */
#define AT_A_TIME 4          /* lines of a state: what meets them fits the registers */
#define NORM_EPSILON 1e-6f   /* of queries and keys */

/* The first sequence whose slot is out of range, or −1. */
static long missing(const int64_t *slots, long sequences, long num_slots) {
    for (long i = 0; i < sequences; i++)
        if (slots[i] < 0 || slots[i] >= num_slots) return i;
    return -1;
}

INLINE floats silu_each(floats x) { return x / (exponential(-x) + 1.0f); }

typedef struct {
    const float *x, *taps, *bias;
    float *y;
    long x_stride, channels, width;
    int is_activated;
} Convolution;

/* Channels from `at` on of one sequence: rows `x`, behind those of its `tail` [width − 1, channels]. */
static void convolve(const Convolution *c, float *tail, long first, long rows, long at, long count) {
    long before = c->width - 1;
    const float *from[c->width];
    for (long row = 0; row < rows; row++) {
        float *to = c->y + (first + row) * c->channels + at;
        for (long tap = 0; tap < c->width; tap++) {
            long index = row + tap - before;
            from[tap] = at + (index < 0 ? tail + (before + index) * c->channels : c->x + (first + index) * c->x_stride);
        }
        long i = 0;
        for (; i + LANES <= count; i += LANES) {
            floats sum = {};
            if (c->bias) sum = *(const floats *)(c->bias + at + i);
            for (long tap = 0; tap < c->width; tap++)
                sum += *(const floats *)(from[tap] + i) * *(const floats *)(c->taps + tap * c->channels + at + i);
            *(floats *)(to + i) = c->is_activated ? silu_each(sum) : sum;
        }
        for (; i < count; i++) {
            float sum = c->bias ? c->bias[at + i] : 0.0f;
            for (long tap = 0; tap < c->width; tap++) sum += from[tap][i] * c->taps[tap * c->channels + at + i];
            to[i] = c->is_activated ? silu_each((floats){} + sum)[0] : sum;
        }
    }
    for (long j = 0; j < before; j++) { /* each from behind where it goes */
        long index = rows + j - before;
        const float *last = index < 0 ? tail + (rows + j) * c->channels : c->x + (first + index) * c->x_stride;
        memmove(tail + j * c->channels + at, last + at, (size_t)count * sizeof *tail);
    }
}

/* x [rows, channels] with x_stride elements from row to row; taps [width, channels], the oldest row's first; bias
 * [channels] or 0; states [slots, width − 1, channels] are the rows before, the oldest first → y [rows, channels],
 * through SiLU if it is activated. Returns −1, or the first sequence whose slot is out of range, having changed
 * nothing. */
long sensorium_short_convolution(const float *x, long x_stride, float *states, long num_slots, long slot_size,
                                 const int64_t *slots, const int32_t *starts, long sequences, const float *taps,
                                 const float *bias, long channels, long width, int is_activated, float *y,
                                 int threads) {
    long bad = missing(slots, sequences, num_slots), pieces = (channels + CHANNELS - 1) / CHANNELS;
    if (bad >= 0) return bad;
    Convolution call = {x, taps, bias, y, x_stride, channels, width, is_activated};
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (starts[sequences] * channels >= WORTH_THREADS)
    for (long each = 0; each < sequences * pieces; each++) {
        long i = each / pieces, at = each % pieces * CHANNELS;
        convolve(&call, states + slots[i] * slot_size, starts[i], starts[i + 1] - starts[i], at,
                 channels - at < CHANNELS ? channels - at : CHANNELS);
    }
    return -1;
}

/* What a row does to a state: S = decay · S + key ⊗ correction. */
typedef struct {
    float decay;
    float *key, *query, *correction;
} Row;

/* `n` lines of a state. If `update`, by `old`; then, if `recall`, their products with the key and the query of `next`
 * are added to `recalled` and `answered`. */
INLINE void lines(const int n, const int update, const int recall, float *state, long line, long size, const Row *old,
                  const Row *next, float *recalled, float *answered) {
    float *from = state + line * size;
    long j = 0;
    for (; j + WIDE <= size; j += WIDE) {
        wide_floats sums[2] = {}, correction = {};
        if (recall) sums[0] = *(wide_floats *)(recalled + j), sums[1] = *(wide_floats *)(answered + j);
        if (update) correction = *(wide_floats *)(old->correction + j);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            wide_floats s = *(wide_floats *)(from + i * size + j);
            if (update) {
                s = wide_fused((wide_floats){} + old->key[line + i], correction, s * old->decay);
                *(wide_floats *)(from + i * size + j) = s;
            }
            if (recall) {
                sums[0] = wide_fused((wide_floats){} + next->key[line + i], s, sums[0]);
                sums[1] = wide_fused((wide_floats){} + next->query[line + i], s, sums[1]);
            }
        }
        if (recall) *(wide_floats *)(recalled + j) = sums[0], *(wide_floats *)(answered + j) = sums[1];
    }
    for (; j < size; j++)
        for (int i = 0; i < n; i++) {
            float *s = from + i * size + j;
            if (update) *s = *s * old->decay + old->key[line + i] * old->correction[j];
            if (recall) recalled[j] += next->key[line + i] * *s, answered[j] += next->query[line + i] * *s;
        }
}

#define SWEEP(NAME, UPDATE, RECALL)                                                                                    \
    static void NAME(float *state, long key_size, long size, const Row *old, const Row *next, float *recalled,         \
                     float *answered) {                                                                                \
        long line = 0;                                                                                                 \
        for (; line + AT_A_TIME <= key_size; line += AT_A_TIME)                                                        \
            lines(AT_A_TIME, UPDATE, RECALL, state, line, size, old, next, recalled, answered);                        \
        for (; line < key_size; line++) lines(1, UPDATE, RECALL, state, line, size, old, next, recalled, answered);    \
    }
SWEEP(sweep_recalling, 0, 1)
SWEEP(sweep_updating, 1, 0)
SWEEP(sweep_both, 1, 1)

typedef struct {
    const float *qkv, *b, *a, *rates, *dt_bias, *gate, *norm;
    float *y;
    long qkv_stride, ab_stride, gate_stride, heads, key_heads, key_size, value_size;
    float most_beta, eps;
} Rule;

/* To length `scale`. */
INLINE void normed(const float *x, long size, float scale, float *y) {
    float squares = 0.0f;
    floats sums = {};
    long i = 0;
    for (; i + LANES <= size; i += LANES) sums += *(const floats *)(x + i) * *(const floats *)(x + i);
    for (; i < size; i++) squares += x[i] * x[i];
    float factor = scale / sqrtf(added_up(sums) + squares + NORM_EPSILON);
    for (i = 0; i < size; i++) y[i] = x[i] * factor;
}

INLINE float dot(const float *x, const float *y, long size) {
    float sum = 0.0f;
    floats sums = {};
    long i = 0;
    for (; i + LANES <= size; i += LANES) sums += *(const floats *)(x + i) * *(const floats *)(y + i);
    for (; i < size; i++) sum += x[i] * y[i];
    return added_up(sums) + sum;
}

/* A head's output after its RMS norm, times silu(gate). */
INLINE void norm_and_gate(const float *x, const float *weight, float eps, const float *gate, float *y, long size) {
    float factor = norm_factor(0, x, size, eps);
    long i = 0;
    for (; i + LANES <= size; i += LANES)
        *(floats *)(y + i) = *(const floats *)(weight + i) * (*(const floats *)(x + i) * factor) *
                             silu_each(*(const floats *)(gate + i));
    for (; i < size; i++) y[i] = weight[i] * (x[i] * factor) * silu_each((floats){} + gate[i])[0];
}

/* One head of one sequence: rows from `first` to before `end`. */
static void one_head(const Rule *c, float *state, long head, long first, long end) {
    long key_size = c->key_size, size = c->value_size, keys = c->key_heads * key_size;
    float vectors[2 * (2 * key_size + size)], recalled[size], answered[size];
    Row rows[2];
    for (int i = 0; i < 2; i++) {
        float *own = vectors + i * (2 * key_size + size);
        rows[i] = (Row){0.0f, own, own + key_size, own + 2 * key_size};
    }
    for (long row = first; row < end; row++) {
        Row *next = rows + row % 2, *old = rows + (row + 1) % 2;
        const float *query = c->qkv + row * c->qkv_stride + head / (c->heads / c->key_heads) * key_size;
        const float *value = c->qkv + row * c->qkv_stride + 2 * keys + head * size;
        float step = c->a[row * c->ab_stride + head] + c->dt_bias[head];
        float beta = c->most_beta / (1.0f + expf(-c->b[row * c->ab_stride + head]));
        next->decay = expf(c->rates[head] * (step > 20.0f ? step : log1pf(expf(step))));
        normed(query, key_size, 1.0f / sqrtf((float)key_size), next->query);
        normed(query + keys, key_size, 1.0f, next->key);
        memset(recalled, 0, sizeof recalled);
        memset(answered, 0, sizeof answered);
        if (row == first)
            sweep_recalling(state, key_size, size, 0, next, recalled, answered);
        else
            sweep_both(state, key_size, size, old, next, recalled, answered);
        /* Sᵀq of the state after the row is that of the state before it, plus what the row's own correction adds. */
        float own = dot(next->query, next->key, key_size);
        for (long j = 0; j < size; j++) {
            next->correction[j] = beta * (value[j] - next->decay * recalled[j]);
            answered[j] = next->decay * answered[j] + own * next->correction[j];
        }
        float *to = c->y + (row * c->heads + head) * size;
        if (c->norm)
            norm_and_gate(answered, c->norm, c->eps, c->gate + row * c->gate_stride + head * size, to, size);
        else
            memcpy(to, answered, sizeof answered);
    }
    sweep_updating(state, key_size, size, rows + (end - 1) % 2, 0, 0, 0);
}

/* qkv [rows, …]: queries and keys [key_heads, key_size], values [heads, value_size], with qkv_stride elements from row
 * to row; b and a [rows, heads] with ab_stride: beta is most_beta · sigmoid(b), the decay of a row exp(rates ·
 * softplus(a + dt_bias)). Queries and keys are made of length 1, queries then divided by √key_size. If there is a
 * `norm` [value_size], each head's output goes through this RMS norm and is multiplied by silu(gate); gate [rows,
 * heads, value_size] has gate_stride. states [slots, heads, key_size, value_size] → y [rows, heads, value_size].
 * Returns what the convolution returns. */
long sensorium_gated_delta_rule(const float *qkv, long qkv_stride, const float *b, const float *a, long ab_stride,
                                const float *rates, const float *dt_bias, float most_beta, const float *gate,
                                long gate_stride, const float *norm, float eps, float *states, long num_slots,
                                long slot_size, const int64_t *slots, const int32_t *starts, long sequences,
                                long heads, long key_heads, long key_size, long value_size, float *y, int threads) {
    long bad = missing(slots, sequences, num_slots), state = key_size * value_size;
    if (bad >= 0) return bad;
    Rule call = {qkv,         b,           a,     rates,     dt_bias,  gate,       norm,      y,  qkv_stride,
                 ab_stride, gate_stride, heads, key_heads, key_size, value_size, most_beta, eps};
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (starts[sequences] * heads * state >= WORTH_THREADS)
    for (long each = 0; each < sequences * heads; each++) {
        long i = each / heads, head = each % heads;
        if (starts[i] < starts[i + 1])
            one_head(&call, states + slots[i] * slot_size + head * state, head, starts[i], starts[i + 1]);
    }
    return -1;
}
