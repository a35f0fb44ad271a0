/* Weights that are stored in 16 bits each, as floats: IEEE 754 binary16, or the upper half of a binary32 (bfloat16).
 *
 * All are finite. Every Arm FPU with fused multiply-adds can also read binary16. */
#ifndef TVM_EXT_NARROW_H
#define TVM_EXT_NARROW_H

#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

typedef enum { TVM_EXT_FLOAT32, TVM_EXT_FLOAT16, TVM_EXT_BFLOAT16 } tvm_ext_weights;

#if defined(__arm__) && defined(__ARM_FP) && defined(__ARM_FEATURE_FMA) && defined(__GNUC__) &&                        \
    !defined(__ARM_BIG_ENDIAN)
#define TVM_EXT_READS_HALVES 1
#else
#define TVM_EXT_READS_HALVES 0
#endif

/* Returns the float of these bits. */
TVM_EXT_INLINE float tvm_ext_float_of(uint32_t bits)
{
    float value;
    (void)memcpy(&value, &bits, sizeof value);
    return value;
}

#if TVM_EXT_READS_HALVES

/* Returns the lower, and the upper, of two binary16 in a register. */
TVM_EXT_INLINE float tvm_ext_lower_half(float both)
{
    float value;
    __asm__("vcvtb.f32.f16 %0, %1" : "=t"(value) : "t"(both));
    return value;
}

TVM_EXT_INLINE float tvm_ext_upper_half(float both)
{
    float value;
    __asm__("vcvtt.f32.f16 %0, %1" : "=t"(value) : "t"(both));
    return value;
}

#endif

/* Converts a weight of 16 bits. */
TVM_EXT_INLINE float tvm_ext_widen(uint16_t weight, tvm_ext_weights type)
{
    float value;
    if (type == TVM_EXT_BFLOAT16) {
        value = tvm_ext_float_of((uint32_t)weight << 16);
    } else {
#if TVM_EXT_READS_HALVES
        value = tvm_ext_lower_half(tvm_ext_float_of(weight));
#else
        const uint32_t sign = ((uint32_t)weight & 0x8000u) << 16;
        const uint32_t magnitude = ((uint32_t)weight & 0x7fffu) << 13;
        /* 2^112 corrects the exponent bias, 15 instead of 127; subnormal numbers are converted, too. */
        value = tvm_ext_float_of(sign | magnitude) * 5.192296858534828e33f;
#endif
    }
    return value;
}

/* Converts two adjacent weights at a multiple of 4 bytes. */
TVM_EXT_INLINE void tvm_ext_widen_two(float *values, const uint16_t *weights, tvm_ext_weights type)
{
#if TVM_EXT_READS_HALVES
    const void *const place = __builtin_assume_aligned(weights, 4);
    if (type == TVM_EXT_FLOAT16) {
        float both;
        (void)memcpy(&both, place, sizeof both);
        values[0] = tvm_ext_lower_half(both);
        values[1] = tvm_ext_upper_half(both);
    } else {
        uint32_t both;
        (void)memcpy(&both, place, sizeof both);
        values[0] = tvm_ext_float_of(both << 16);
        values[1] = tvm_ext_float_of(both & 0xffff0000u);
    }
#else
    values[0] = tvm_ext_widen(weights[0], type);
    values[1] = tvm_ext_widen(weights[1], type);
#endif
}

#endif
