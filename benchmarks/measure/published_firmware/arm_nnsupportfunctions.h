/* Stands in for CMSIS-NN's header of this name: the three words of it that the submissions' C uses. */
#ifndef ARM_NNSUPPORTFUNCTIONS_H
#define ARM_NNSUPPORTFUNCTIONS_H

#include <stdint.h>

#define __STATIC_FORCEINLINE __attribute__((always_inline)) static inline

__STATIC_FORCEINLINE uint32_t __SMLAD(uint32_t one, uint32_t other, uint32_t sum)
{
    uint32_t result;
    __asm__ volatile("smlad %0, %1, %2, %3" : "=r"(result) : "r"(one), "r"(other), "r"(sum));
    return result;
}

/* Four bytes at `source` as two pairs of 16 bits, in their order; the address behind them. */
__STATIC_FORCEINLINE const int8_t *read_and_pad(const int8_t *source, int32_t *first, int32_t *second)
{
    const uint32_t word = *(const uint32_t *)(const void *)source;
    uint32_t even;
    uint32_t odd;
    __asm__ volatile("sxtb16 %0, %1" : "=r"(even) : "r"(word));
    __asm__ volatile("sxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(word));
    __asm__ volatile("pkhbt %0, %1, %2, lsl #16" : "=r"(*first) : "r"(even), "r"(odd));
    __asm__ volatile("pkhtb %0, %1, %2, asr #16" : "=r"(*second) : "r"(odd), "r"(even));
    return source + 4;
}

#endif
