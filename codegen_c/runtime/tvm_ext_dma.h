/* Copies between memories, for the board to provide. By default the processor copies.

   A board that has a DMA defines these functions in a file of its own; the linker then takes them in place of those in
   tvm_ext_dma.c. Where a memory is cached, they also keep the cache coherent with it. */
#ifndef TVM_EXT_DMA_H
#define TVM_EXT_DMA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Begins to copy `bytes` from `source` to `target`, which do not overlap and are aligned to 16 bytes but for views into
   larger tensors. `number` counts up from 0 in each run. Until the wait for it nothing reads or writes the target, and
   nothing writes to the source. */
void tvm_ext_dma_start(uint32_t number, void *target, const void *source, size_t bytes);

/* Returns when transfer `number` is done, and so is every one that began before it: they end in their order. */
void tvm_ext_dma_wait(uint32_t number);

/* Copies at once, between memories that no DMA joins. Of several processors each may call it, at the same time. */
void tvm_ext_dma_copy(void *target, const void *source, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
