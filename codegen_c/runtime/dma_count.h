/* Counters of the bytes that were copied from one memory to another; memories are in the order of board.h. */
#ifndef TVM_EXT_DMA_COUNT_H
#define TVM_EXT_DMA_COUNT_H

#include <stdint.h>

typedef struct {
    uintptr_t begin;
    uintptr_t bytes;
} dma_memory;

void dma_count_restart(void);
uint32_t dma_count_bytes(uint32_t source, uint32_t target);

#endif
