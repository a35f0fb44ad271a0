/* Copies between memories, for the board to implement. By default the processor copies.

   A board with a DMA defines these functions in its own file; the linker then uses them instead of those in
   tvm_ext_dma.c. If a memory is cached, they must also keep the cache coherent. */
#ifndef TVM_EXT_DMA_H
#define TVM_EXT_DMA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts to copy `bytes` from `source` to `target`, which do not overlap and are aligned to 16 bytes, except for
   views of larger tensors. `number` counts up from 0 in each run. Until the wait for this transfer nothing reads or
   writes the target, and nothing writes to the source. */
void tvm_ext_dma_start(uint32_t number, void *target, const void *source, size_t bytes);

/* Returns when transfer `number` is complete, and with it all transfers that were started before: they end in order. */
void tvm_ext_dma_wait(uint32_t number);

/* Copies at once, between memories without a DMA. Several processors may call it at the same time. */
void tvm_ext_dma_copy(void *target, const void *source, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
