/* Copies by the processor. The functions are weak: functions of the same names for a DMA replace them. */
#include "tvm_ext_dma.h"

#include "tvm_ext_copy.h"

__attribute__((weak)) void tvm_ext_dma_start(uint32_t number, void *target, const void *source, size_t bytes)
{
    (void)number;
    tvm_ext_copy(target, source, bytes);
}

__attribute__((weak)) void tvm_ext_dma_wait(uint32_t number)
{
    (void)number;
}

__attribute__((weak)) void tvm_ext_dma_copy(void *target, const void *source, size_t bytes)
{
    tvm_ext_copy(target, source, bytes);
}
