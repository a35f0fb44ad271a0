/* Copies of bytes by the processor, if no DMA makes them: groups of vector registers. */
#ifndef TVM_EXT_COPY_H
#define TVM_EXT_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tvm_ext_rvv.h"

/* Copies bytes; source and target must not overlap. */
static inline void tvm_ext_copy(void *target, const void *source, size_t bytes)
{
#if TVM_EXT_RVV
    if (bytes > 0u) {
        tvm_ext_rvv_copy((uint8_t *)target, (const uint8_t *)source, (intptr_t)bytes);
    }
#else
    (void)memcpy(target, source, bytes);
#endif
}

#endif
