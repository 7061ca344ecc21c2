/* Attention of ragged rows over a paged cache [blocks, 2, kv_heads, block_size, dim], as flash attention:
 * causal, or of every row to all of its sequence.
 *
 * An item of work is one sequence, one or more of its key-value heads, and up to SPAN query vectors (rows
 * times the heads of a group) that read them; threads take items as they come. Items of few vectors go
 * through attend_few.h, or attend_codes.h where the cache is of 8 bits, others through attend_many.h.
 */
#include "attend_codes.h"
#include "attend_few.h"
#include "attend_many.h"

static long rows_at_once(const Call *call) {
    long group = call->heads / call->kv_heads;
    return group >= SPAN ? 1 : SPAN / group;
}

/* How many heads an item takes: all when sequences alone keep the threads busy, one when keys are turned.
 */
static long heads_at_once(const Call *call, long vectors, long words_of_head, long items, int threads) {
    if (vectors > FEW || words_of_head % LANES) return 1;
    long wanted = items / (4 * threads); /* items were counted per head */
    long heads = wanted < 1 ? 1 : wanted > call->kv_heads ? call->kv_heads : wanted;
    while (call->kv_heads % heads) heads--;
    return heads;
}

#define FEW_CASE(VECTORS)                                                                                 \
    case VECTORS:                                                                                         \
        if (coded)                                                                                        \
            codes_of_##VECTORS(bf16, call, table, first + row, rows, position, head, last, &scratch);     \
        else                                                                                              \
            attend_few(bf16, VECTORS, call, table, first + row, rows, position, head, last, &scratch);    \
        break;

/* Items of work are numbered sequence after sequence; `firsts` says with which number each begins. */
INLINE void run(const int bf16, const int coded, const Call *call, const long *firsts, long sequences,
                long longest, int threads) {
    long span = rows_at_once(call), group = call->heads / call->kv_heads,
         n = call->dim * (bf16 ? 2 : 4) / 4;
    long vectors = (longest < span ? longest : span) * group;
    long heads = heads_at_once(call, vectors, coded ? LANES : n, firsts[sequences], threads),
         items = firsts[sequences] / heads;
#pragma omp parallel num_threads(threads)
    {
        char *memory = aligned_alloc(64, scratch_bytes(vectors * heads, call->dim));
        Scratch scratch;
        lay_out(&scratch, memory, vectors * heads, call->dim);
        long sequence = sequences - 1;
#pragma omp for schedule(monotonic : dynamic, 1)
        for (long item = 0; item < items; item++) {
            /* From the back: the last rows of a long prompt see most, and are best begun first. */
            long number = (items - 1 - item) * heads;
            while (firsts[sequence] > number) sequence--;
            long within = number - firsts[sequence], row = within / call->kv_heads * span;
            long first = call->query_starts[sequence], all = call->query_starts[sequence + 1] - first;
            long rows = all - row < span ? all - row : span, head = within % call->kv_heads;
            long position = call->contexts[sequence] + (call->causal ? row - all : 0);
            const int32_t *table = call->tables + sequence * call->table_width;
            long last = head + heads;
            switch (rows * group > FEW || (!coded && n % LANES) ? 0 : rows * group) {
                FEW_CASE(1)
                FEW_CASE(2)
                FEW_CASE(3)
                FEW_CASE(4)
                default: attend(bf16, coded, call, table, first + row, rows, position, head, &scratch);
            }
        }
        free(memory);
    }
}

/* query [rows, heads, dim] with query_stride elements from row to row; out the same, contiguous. window 0:
 * none. A coded cache is as codes.h says. */
void sensorium_attention(int bf16, int coded, const void *query, long query_stride, const void *cache,
                         const int32_t *tables, long table_width, const int32_t *query_starts,
                         const int32_t *contexts, long sequences, long heads, long kv_heads, long dim,
                         long block_size, long window, int causal, float scale, void *out,
                         int threads) {
    Call call = {query,        cache, out,      tables, query_starts, contexts, table_width,
                 query_stride, heads, kv_heads, dim,    block_size,   window,   causal,       scale};
    long firsts[sequences + 1], longest = 0, span = rows_at_once(&call);
    firsts[0] = 0;
    for (long i = 0; i < sequences; i++) {
        long rows = query_starts[i + 1] - query_starts[i];
        longest = rows > longest ? rows : longest;
        firsts[i + 1] = firsts[i] + (rows + span - 1) / span * kv_heads;
    }
    if (coded && bf16)
        run(1, 1, &call, firsts, sequences, longest, threads);
    else if (coded)
        run(0, 1, &call, firsts, sequences, longest, threads);
    else if (bf16)
        run(1, 0, &call, firsts, sequences, longest, threads);
    else
        run(0, 0, &call, firsts, sequences, longest, threads);
}
