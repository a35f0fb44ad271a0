/* Transfers by the processor that count bytes by source and target memory; they replace the default functions.
   Several processors may copy at the same time, each for its own steps. */
#include "dma_count.h"

#include <stdatomic.h>

#include "board.h"
#include "tvm_ext_copy.h"
#include "tvm_ext_dma.h"

static const dma_memory memories[BOARD_NUM_MEMORIES] = BOARD_MEMORIES;
static _Atomic uint32_t moved[BOARD_NUM_MEMORIES][BOARD_NUM_MEMORIES];

/* Returns the index of the memory that contains an address; BOARD_NUM_MEMORIES if none does. */
static uint32_t memory_of(const void *address)
{
    uint32_t index = 0u;
    while (index < BOARD_NUM_MEMORIES && (uintptr_t)address - memories[index].begin >= memories[index].bytes) {
        index++;
    }
    return index;
}

void dma_count_restart(void)
{
    for (uint32_t source = 0u; source < BOARD_NUM_MEMORIES; source++) {
        for (uint32_t target = 0u; target < BOARD_NUM_MEMORIES; target++) {
            atomic_store(&moved[source][target], 0u);
        }
    }
}

uint32_t dma_count_bytes(uint32_t source, uint32_t target)
{
    return atomic_load(&moved[source][target]);
}

/* Adds to a counter. A core without atomic instructions is the only one of its firmware. */
static void add(_Atomic uint32_t *counter, uint32_t bytes)
{
#if ATOMIC_INT_LOCK_FREE == 2
    (void)atomic_fetch_add_explicit(counter, bytes, memory_order_relaxed);
#else
    const uint32_t before = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, before + bytes, memory_order_relaxed);
#endif
}

void tvm_ext_dma_copy(void *target, const void *source, size_t bytes)
{
    const uint32_t from = memory_of(source);
    const uint32_t to = memory_of(target);
    if (from < BOARD_NUM_MEMORIES && to < BOARD_NUM_MEMORIES) {
        add(&moved[from][to], (uint32_t)bytes);
    }
    tvm_ext_copy(target, source, bytes);
}

void tvm_ext_dma_start(uint32_t number, void *target, const void *source, size_t bytes)
{
    (void)number;
    tvm_ext_dma_copy(target, source, bytes);
}

void tvm_ext_dma_wait(uint32_t number)
{
    (void)number;
}
