/* Attention of ragged rows over a paged cache [blocks, 2, kv_heads, block_size, dim], as flash attention:
 * causal, or of every row to all of its sequence. And of an encoder's rows over keys and values as they lie
 * behind a projection, for which each item is a sequence of one block; and of answers over encodings, each of
 * them a block that lies somewhere.
 *
 * An item of work is one sequence, one or more of its key-value heads, and up to `span` query vectors (rows
 * times the heads of a group) that read them; threads take items as they come. Items of few vectors go
 * through attend_few.h, or attend_codes.h where the cache is of 8 bits, others through attend_many.h.
 */
#include "attend_codes.h"
#include "attend_few.h"
#include "attend_many.h"
#include "calls.h"
#define PIECE 256 /* positions laid together at once; even */

static long span_of(int bf16, int coded, long dim) { return takes_tiles(bf16, coded, dim) ? TILED_SPAN : SPAN; }

/* Rows of a sequence that share a reading. Where heads share no keys, as in Whisper, the rows of a draft are summed
 * as they are alone: what is answered does not hang on what was guessed. */
static long rows_at_once(const Call *call, long rows) {
    long group = call->heads / call->kv_heads;
    if (group == 1 && rows <= ALIKE && !call->keys) return FEW;
    return group >= call->span ? 1 : call->span / group;
}

/* As how many a step's vectors read keys and values once, where they lie in one piece: their number, or the
 * next for which there is code. 0: as many do. */
static long as_few(const Call *call, int coded, long vectors, long words_of_head) {
    if (vectors > FEW || call->keys || !(coded || words_of_head % LANES == 0)) return 0;
    return vectors <= 4 ? vectors : (vectors + 1) / 2 * 2;
}

/* How many heads an item takes: all when sequences alone keep the threads busy, one where vectors are many. */
static long heads_at_once(const Call *call, int few, long items, int threads) {
    if (!few || call->memories) return 1; /* of a long block a head is read in one piece */
    long wanted = items / (4 * threads); /* items were counted per head */
    long heads = wanted < 1 ? 1 : wanted > call->kv_heads ? call->kv_heads : wanted;
    while (call->kv_heads % heads) heads--;
    return heads;
}

#define FEW_CASE(VECTORS)                                                                                 \
    case VECTORS:                                                                                         \
        if (coded)                                                                                        \
            codes_of_##VECTORS(bf16, &own, table, first + row, rows, position, head, last, &scratch);     \
        else                                                                                              \
            attend_few(bf16, VECTORS, &own, table, first + row, rows, position, head, last, &scratch);    \
        break;

/* Items of work are numbered sequence after sequence; `firsts` says with which number each begins. */
INLINE void run(const int bf16, const int coded, const Call *call, const long *firsts, long sequences,
                long longest, int threads) {
    long span = rows_at_once(call, longest), group = call->heads / call->kv_heads,
         n = call->dim * (bf16 ? 2 : 4) / 4;
    long vectors = (longest < span ? longest : span) * group;
    long few = as_few(call, coded, longest * group, n), heads = heads_at_once(call, few > 0, firsts[sequences], threads),
         items = firsts[sequences] / heads;
    vectors = ((few ? few : vectors) * heads + LANES - 1) / LANES * LANES;
#pragma omp parallel num_threads(threads)
    {
        char *memory = aligned_alloc(64, scratch_bytes(vectors, call->dim));
        Scratch scratch;
        lay_out(&scratch, memory, vectors, call->dim);
        long sequence = sequences - 1;
#pragma omp for schedule(monotonic : dynamic, 1)
        for (long item = 0; item < items; item++) {
            /* From the back: the last rows of a long prompt see most, and are best begun first. */
            long number = (items - 1 - item) * heads;
            while (firsts[sequence] > number) sequence--;
            long first = call->query_starts[sequence], all = call->query_starts[sequence + 1] - first;
            long span = rows_at_once(call, all);
            long within = number - firsts[sequence], parts = (all + span - 1) / span;
            long head = within / parts, row = within % parts * span; /* a head's keys stay in caches */
            long rows = all - row < span ? all - row : span;
            long position = call->contexts[sequence] + (call->causal ? row - all : 0);
            const int32_t *table = call->tables + sequence * call->table_width;
            long last = head + heads;
            Call own = *call;
            if (call->memories) {
                own.cache = call->memories[sequence];
                own.block_size = call->contexts[sequence];
                if (coded) own.block_size = (own.block_size + LANES - 1) / LANES * LANES;
            }
            switch (as_few(call, coded, rows * group, n)) {
                FEW_CASE(1)
                FEW_CASE(2)
                FEW_CASE(3)
                FEW_CASE(4)
                FEW_CASE(6)
                FEW_CASE(8)
                default: attend(bf16, coded, &own, table, first + row, rows, position, head, &scratch);
            }
        }
        free(memory);
    }
}

INLINE void run_all(int bf16, int coded, const Call *call, long sequences, int threads) {
    long firsts[sequences + 1], longest = 0;
    firsts[0] = 0;
    for (long i = 0; i < sequences; i++) {
        long rows = call->query_starts[i + 1] - call->query_starts[i];
        long span = rows_at_once(call, rows);
        longest = rows > longest ? rows : longest;
        firsts[i + 1] = firsts[i] + (rows + span - 1) / span * call->kv_heads;
    }
    if (coded && bf16)
        run(1, 1, call, firsts, sequences, longest, threads);
    else if (coded)
        run(0, 1, call, firsts, sequences, longest, threads);
    else if (bf16)
        run(1, 0, call, firsts, sequences, longest, threads);
    else
        run(0, 0, call, firsts, sequences, longest, threads);
}

/* query [rows, heads, dim] with query_stride elements from row to row; out the same, contiguous. window 0:
 * none; chunk 0: none, or rows see those before them in their own of the chunks of so many positions. In front of
 * what all rows of a sequence see its table is not read. `sinks` [heads] or 0. `planes` 1: a block holds latents, which
 * are keys and values. A coded cache is as codes.h says. */
void sensorium_attention(int bf16, int coded, const void *query, long query_stride, const void *cache,
                         const int32_t *tables, long table_width, const int32_t *query_starts,
                         const int32_t *contexts, long sequences, long heads, long kv_heads, long dim,
                         long block_size, long window, long chunk, int causal, float scale,
                         const float *sinks, long planes, void *out, int threads) {
    Call call = {query, cache, out, tables, query_starts, contexts, table_width, query_stride, heads, kv_heads, dim,
                 block_size, window, causal, scale, 0, 0, 0, span_of(bf16, coded, dim), chunk, sinks,
                 planes};
    run_all(bf16, coded, &call, sequences, threads);
}

/* query [rows, heads, dim] with query_stride elements from row to row; those of a sequence see all `contexts`
 * positions of its memory [2, heads, context, dim], or of codes. out as query, contiguous. */
void sensorium_cross_attention(int bf16, int coded, const void *query, long query_stride,
                               const char *const *memories, const int32_t *query_starts,
                               const int32_t *contexts, long sequences, long heads, long dim, float scale,
                               void *out, int threads) {
    const int32_t block = 0;
    Call call = {query, 0, out, &block, query_starts, contexts, 0, query_stride,
                 heads, heads, dim, 0, 0, 0, scale, memories, 0, 0, span_of(bf16, coded, dim), 0, 0, 2};
    run_all(bf16, coded, &call, sequences, threads);
}

/* Of `items`, each of which attends to all of its own: query [items, rows, heads, dim], key and value [items,
 * context, heads, dim], with so many elements from row to row; out contiguous. Keys and values of a head are
 * first laid together: rows of a joined projection are too far apart for caches. */
void sensorium_attention_of_items(int bf16, const void *query, long query_stride, const void *key,
                                  long key_stride, const void *value, long value_stride, long items,
                                  long rows, long context, long heads, long dim, float scale, void *out,
                                  int threads) {
    long size = bf16 ? 2 : 4, vector = dim * size, pieces = (context + PIECE - 1) / PIECE;
    long padded = (dim + LANES - 1) / LANES * LANES, pairs = bf16 ? (context + 1) / 2 : context;
    const int turned = takes_tiles(bf16, 0, dim); /* then a row of values is a dimension */
    if (turned) pairs = (pairs + LANES - 1) / LANES * LANES;
    long key_bytes = context * vector, value_bytes = pairs * padded * 4;
    char *keys = malloc((size_t)(items * heads * key_bytes)), *values = malloc((size_t)(items * heads * value_bytes));
#pragma omp parallel for num_threads(threads)
    for (long piece = 0; piece < items * heads * pieces; piece++) {
        long head = piece / pieces, first = piece % pieces * PIECE;
        long count = context - first < PIECE ? context - first : PIECE, row = head / heads * context + first;
        const char *from = (const char *)key + (row * key_stride + head % heads * dim) * size;
        for (long i = 0; i < count; i++)
            memcpy(keys + head * key_bytes + (first + i) * vector, from + i * key_stride * size, (size_t)vector);
        from = (const char *)value + (row * value_stride + head % heads * dim) * size;
        uint32_t *to = (uint32_t *)(values + head * value_bytes);
        if (turned) {
            uint32_t laid[PIECE / 2 * padded] __attribute__((aligned(64)));
            pair_values(1, from, value_stride * size, dim, 0, count, laid, padded);
            turn_values(laid, padded, dim, (count + 1) / 2, to + first / 2, pairs);
            continue;
        }
        to += (bf16 ? first / 2 : first) * padded;
        pair_values(bf16, from, value_stride * size, dim, 0, count, to, padded);
    }
    int32_t *numbers = malloc((size_t)(3 * items + 1) * sizeof *numbers), *starts = numbers + 2 * items;
    for (long i = 0; i < items; i++) numbers[i] = (int32_t)i, numbers[items + i] = (int32_t)context;
    for (long i = 0; i <= items; i++) starts[i] = (int32_t)(i * rows);
    Call call = {query, 0, out, numbers, starts, numbers + items, 1, query_stride,
                 heads, heads, dim, context, 0, 0, scale, 0, keys, values,
                 turned && dim <= NEAR_DIM ? NEAR_SPAN : span_of(bf16, 0, dim), 0, 0, 2};
    run_all(bf16, 0, &call, items, threads);
    free(numbers);
    free(keys);
    free(values);
}
