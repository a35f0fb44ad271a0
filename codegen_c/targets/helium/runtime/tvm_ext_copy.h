/* Copies of bytes by the processor, if no DMA makes them: vectors of 16 bytes with Helium. */
#ifndef TVM_EXT_COPY_H
#define TVM_EXT_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__ARM_FEATURE_MVE)

#define TVM_EXT_COPY_BLOCK 64u

/* Copies bytes by blocks of 4 vectors, and the rest by lanes; source and target must not overlap. */
static inline void tvm_ext_copy(void *target, const void *source, size_t bytes)
{
    const uint32_t blocks = (uint32_t)(bytes / TVM_EXT_COPY_BLOCK);
    const uint32_t rest = (uint32_t)(bytes % TVM_EXT_COPY_BLOCK);
    __asm__ volatile("wls lr, %[blocks], 2f\n"
                     "1:\n\t"
                     "vldrb.u8 q0, [%[from]], #64\n\t"
                     "vldrb.u8 q1, [%[from], #-48]\n\t"
                     "vldrb.u8 q2, [%[from], #-32]\n\t"
                     "vldrb.u8 q3, [%[from], #-16]\n\t"
                     "vstrb.8 q0, [%[to]], #64\n\t"
                     "vstrb.8 q1, [%[to], #-48]\n\t"
                     "vstrb.8 q2, [%[to], #-32]\n\t"
                     "vstrb.8 q3, [%[to], #-16]\n\t"
                     "le lr, 1b\n"
                     "2:\n\t"
                     "wlstp.8 lr, %[rest], 4f\n"
                     "3:\n\t"
                     "vldrb.u8 q0, [%[from]], #16\n\t"
                     "vstrb.8 q0, [%[to]], #16\n\t"
                     "letp lr, 3b\n"
                     "4:\n\t"
                     : [from] "+r"(source), [to] "+r"(target)
                     : [blocks] "r"(blocks), [rest] "r"(rest)
                     : "lr", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13",
                       "s14", "s15", "cc", "memory");
}

#else

/* Copies bytes; source and target must not overlap. */
static inline void tvm_ext_copy(void *target, const void *source, size_t bytes)
{
    (void)memcpy(target, source, bytes);
}

#endif

#endif
