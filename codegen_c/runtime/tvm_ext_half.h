/* Floats of 16 bits (IEEE 754 binary16) in memory, converted to floats for computation, infinities and NaN included. */
#ifndef TVM_EXT_HALF_H
#define TVM_EXT_HALF_H

#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"
#include "tvm_ext_narrow.h"

/* Converts the bits of a half to float, exactly. */
TVM_EXT_INLINE float tvm_ext_of_half(uint16_t half)
{
#if TVM_EXT_READS_HALVES
    return tvm_ext_lower_half(tvm_ext_float_of(half));
#else
    if ((half & 0x7c00u) == 0x7c00u) { /* infinity or NaN */
        const uint32_t word = half;
        return tvm_ext_float_of(((word & 0x8000u) << 16) | 0x7f800000u | ((word & 0x3ffu) << 13));
    }
    return tvm_ext_widen(half, TVM_EXT_FLOAT16);
#endif
}

/* Returns the bits of the nearest half, ties to even. */
TVM_EXT_INLINE uint16_t tvm_ext_half(float value)
{
    uint32_t word;
#if TVM_EXT_READS_HALVES
    __asm__("vcvtb.f16.f32 %0, %0" : "+t"(value));
    (void)memcpy(&word, &value, sizeof word);
    return (uint16_t)word;
#else
    (void)memcpy(&word, &value, sizeof word);
    const uint32_t sign = (word >> 16) & 0x8000u;
    const uint32_t magnitude = word & 0x7fffffffu;
    uint32_t half;
    if (magnitude > 0x7f800000u) {
        half = 0x7e00u; /* NaN */
    } else if (magnitude >= 0x477ff000u) {
        half = 0x7c00u; /* 65520 and above */
    } else if (magnitude >= 0x38800000u) {
        half = ((magnitude - 0x38000000u) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    } else {
        const float units = tvm_ext_float_of(magnitude) + 0.5f; /* rounds to units of 2^-24 */
        (void)memcpy(&word, &units, sizeof word);
        half = word - 0x3f000000u;
    }
    return (uint16_t)(sign | half);
#endif
}

#endif
