/* A mixture of experts for few rows: the router's choice, each chosen expert's two products, their weighed sum.
 *
 * Rows are sorted by expert, so that each expert's weights are read once. Results are kept in that order until all are
 * computed: a row adds up those of its own choices, in their order, whatever other rows chose.
 */
#include "calls.h"
#include "experts.h"

/* What one call computes with. */
typedef struct {
    long *first;         /* [experts + 1], of each the first of its rows */
    long *place;         /* [rows, choices], where a choice's result lies; −1 if its expert is out of range */
    char *inputs;        /* [rows · choices, size], by expert */
    char *middle;        /* of the largest expert's rows */
    char *results;       /* [rows · choices, size], by expert */
} Space;

static void sort_rows(long experts, const int64_t *chosen, long count, Space s) {
    for (long e = 0; e <= experts; e++) s.first[e] = 0;
    for (long i = 0; i < count; i++)
        if (chosen[i] >= 0 && chosen[i] < experts) s.first[chosen[i] + 1]++;
    for (long e = 0; e < experts; e++) s.first[e + 1] += s.first[e];
    for (long i = 0; i < count; i++) s.place[i] = -1;
    /* Counting up each expert's next place leaves `first` at that of the following expert, so it is shifted back. */
    for (long i = 0; i < count; i++)
        if (chosen[i] >= 0 && chosen[i] < experts) s.place[i] = s.first[chosen[i]]++;
    for (long e = experts; e > 0; e--) s.first[e] = s.first[e - 1];
    s.first[0] = 0;
}

/* y [rows, size] = the weighed results of each row (+ residual). */
INLINE void add_up(const int bf16, long rows, long choices, long size, const float *weights, const void *residual,
                   Space s, void *y) {
    for (long row = 0; row < rows; row++)
        for (long i = 0; i < size; i += LANES) {
            floats sum = {};
            for (long c = row * choices; c < (row + 1) * choices; c++)
                if (s.place[c] >= 0) sum += load_each(bf16, s.results, s.place[c] * size + i) * weights[c];
            if (residual) sum = round_each(bf16, sum) + load_each(bf16, residual, row * size + i);
            store_each(bf16, y, row * size + i, sum);
        }
}

static void run(const Experts *e, Shared shared, const char *x, long rows, long size, const int64_t *chosen,
                const float *weights, long choices, const void *residual, void *y) {
    long bytes = size * (shared.bf16 ? 2 : 4), all = rows * choices, num = e->experts, most = 0;
    long *counts = malloc((size_t)(num + 1 + all) * sizeof *counts);
    Space s = {counts, counts + num + 1, 0, 0, 0};
    sort_rows(num, chosen, all, s);
    for (long each = 0; each < num; each++)
        if (s.first[each + 1] - s.first[each] > most) most = s.first[each + 1] - s.first[each];
    s.inputs = malloc((size_t)(2 * all * bytes + most * e->up->out * (shared.bf16 ? 2 : 4)));
    s.results = s.inputs + all * bytes;
    s.middle = s.results + all * bytes;
    for (long i = 0; i < all; i++)
        if (s.place[i] >= 0) memcpy(s.inputs + s.place[i] * bytes, x + i / choices * bytes, (size_t)bytes);
    const Before as_it_is = {AS_IT_IS, 0, 0}, gate = {(int)e->gate, e->limits, 0};
    for (long each = 0; each < num; each++) {
        long first = s.first[each], count = s.first[each + 1] - first;
        if (!count) continue;
        multiply(e->up + each, shared, s.inputs + first * bytes, count, size, as_it_is, 0, 0, s.middle);
        multiply(e->down + each, shared, s.middle, count, e->up[each].out, gate, 0, 0, s.results + first * bytes);
    }
    if (shared.bf16)
        add_up(1, rows, choices, size, weights, residual, s, y);
    else
        add_up(0, rows, choices, size, weights, residual, s, y);
    free(s.inputs);
    free(counts);
}

/* x [rows, size], contiguous; of each row its experts and their weights [rows, choices] → y [rows, size]. A number
 * out of range adds nothing, and the experts of a row differ. `size` is a multiple of LANES. */
void sensorium_experts(int bf16, const Experts *experts, const void *x, long rows, long size, const int64_t *chosen,
                       const float *weights, long choices, void *y, char *scratch, int threads) {
    Shared shared = {bf16, threads, scratch};
    run(experts, shared, x, rows, size, chosen, weights, choices, 0, y);
}

INLINE float scalar_product(const int bf16, const void *a, const void *b, long size) {
    floats sums = {};
    for (long i = 0; i < size; i += LANES) sums += load_each(bf16, a, i) * load_each(bf16, b, i);
    return added_up(sums);
}

/* A row's experts and their shares, the largest first. `scores` [experts] are the router's. */
INLINE void choose(const int bf16, const Mixture *m, const float *scores, int64_t *chosen, float *shares) {
    long num = m->experts.experts;
    float sum = 0.0f, rest = 0.0f;
    for (long c = 0; c < m->choices; c++) {
        long best = -1;
        for (long e = 0; e < num; e++) {
            int is_taken = 0;
            for (long before = 0; before < c; before++) is_taken |= chosen[before] == e;
            if (!is_taken && (best < 0 || scores[e] > scores[best])) best = e;
        }
        chosen[c] = best;
        shares[c] = expf(scores[best] - scores[chosen[0]]);
        sum += shares[c];
    }
    if (!m->normalized)
        for (long e = 0; e < num; e++) rest += expf(scores[e] - scores[chosen[0]]);
    for (long c = 0; c < m->choices; c++) shares[c] = rounded(bf16, shares[c] / (m->normalized ? sum : rest));
}

INLINE void route(const int bf16, const Mixture *m, const void *x, long rows, long size, int64_t *chosen, float *shares,
                  int threads) {
    long num = m->experts.experts;
#pragma omp parallel for num_threads(threads) if (rows * num * size >= 65536)
    for (long row = 0; row < rows; row++) {
        float scores[num];
        for (long e = 0; e < num; e++) {
            float score = scalar_product(bf16, past(bf16, x, row * size), past(bf16, m->router, e * size), size);
            scores[e] = rounded(bf16, score + (m->bias ? load(bf16, m->bias, e) : 0.0f));
        }
        choose(bf16, m, scores, chosen + row * m->choices, shares + row * m->choices);
    }
}

/* y [rows, size] becomes itself and what the mixture makes of x [rows, size]. */
void sensorium_mixture(int bf16, const Mixture *m, const void *x, long rows, long size, void *y, char *scratch,
                       int threads) {
    Shared shared = {bf16, threads, scratch};
    int64_t *chosen = malloc((size_t)(rows * m->choices) * (sizeof *chosen + sizeof(float)));
    float *shares = (float *)(chosen + rows * m->choices);
    if (bf16)
        route(1, m, x, rows, size, chosen, shares, threads);
    else
        route(0, m, x, rows, size, chosen, shares, threads);
    run(&m->experts, shared, x, rows, size, chosen, shares, m->choices, y, y);
    free(chosen);
}
