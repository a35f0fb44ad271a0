/* Blocks of code, and what is counted of them, for the plugin that profiles. */
#ifndef TVM_EXT_PROFILE_COUNTS_H
#define TVM_EXT_PROFILE_COUNTS_H

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_MEMORIES 16

typedef struct {
    uint64_t begin;
    uint64_t end;
} range;

typedef struct {
    uint64_t transactions;
    uint64_t bursts;
    uint64_t bytes;
} traffic;

/* Executions and accesses of a block in a layer. */
typedef struct {
    uint64_t executed;
    uint64_t taken;
    traffic of[MOST_MEMORIES + 1][2];
} tally;

typedef struct block {
    struct block *next;
    uint64_t begin;
    uint64_t end;
    size_t count;
    uint64_t *addresses;
    tally **by_layer;
    size_t num_layers;
} block;

/* realloc that ends the program where there is no memory. */
static void *grown(void *old, size_t bytes)
{
    void *const memory = realloc(old, bytes);
    if (memory == NULL) {
        (void)fprintf(stderr, "profile_plugin: out of memory\n");
        exit(1);
    }
    return memory;
}

/* The tally of a layer, made where there is none yet. */
static tally *tally_of(block *one, size_t index)
{
    if (index >= one->num_layers) {
        one->by_layer = grown(one->by_layer, (index + 1u) * sizeof *one->by_layer);
        memset(&one->by_layer[one->num_layers], 0, (index + 1u - one->num_layers) * sizeof *one->by_layer);
        one->num_layers = index + 1u;
    }
    if (one->by_layer[index] == NULL) {
        one->by_layer[index] = grown(NULL, sizeof **one->by_layer);
        memset(one->by_layer[index], 0, sizeof **one->by_layer);
    }
    return one->by_layer[index];
}

/* Lines of a block in a layer, as the plugin describes them. */
static void write_tally(FILE *file, size_t number, size_t index, size_t num_memories, const tally *found)
{
    (void)fprintf(file, "E %zu %zu %" PRIu64 " %" PRIu64 "\n", number, index, found->executed, found->taken);
    for (size_t m = 0u; m <= num_memories; m++) {
        for (size_t is_store = 0u; is_store < 2u; is_store++) {
            const traffic *const moved = &found->of[m][is_store];
            if (moved->bytes != 0u) {
                (void)fprintf(file, "M %zu %zu %zu %zu %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", number, index, m,
                              is_store, moved->transactions, moved->bursts, moved->bytes);
            }
        }
    }
}

#endif
