/* Requantization of sums: one rounding, to nearest, halves to even; no float operation. */
#ifndef TVM_EXT_REQUANTIZE_H
#define TVM_EXT_REQUANTIZE_H

#include <stdint.h>

#include "tvm_ext_kernels.h"

/* C11 leaves the right shift of negative numbers to the compiler; this code needs it to keep the sign. */
_Static_assert((-3 >> 1) == -2, "right shifts of negative numbers must keep the sign");

/* value / 2^shift, rounded once, halves to even. value: below 2^62; shift: 1 to 62; the result must fit int32. */
static inline int32_t tvm_ext_round_shift(int64_t value, int32_t shift)
{
    const int64_t below_half = ((int64_t)1 << (shift - 1)) - 1;
    const int64_t odd = (value >> shift) & 1;
    return (int32_t)((value + below_half + odd) >> shift);
}

/* value / 2^shift, rounded once, halves up. value: below 2^62; shift: 1 to 62; the result must fit int32. */
static inline int32_t tvm_ext_round_shift_up(int64_t value, int32_t shift)
{
    return (int32_t)((value + ((int64_t)1 << (shift - 1))) >> shift);
}

/* value * multiplier / 2^shift, rounded once, halves to even. multiplier: 0 to 2^31 - 1. */
static inline int32_t tvm_ext_requantize(int32_t value, int32_t multiplier, int32_t shift)
{
    return tvm_ext_round_shift((int64_t)value * multiplier, shift);
}

static inline int32_t tvm_ext_clamp(int32_t value, int32_t low, int32_t high)
{
    const int32_t raised = value < low ? low : value;
    return raised > high ? high : raised;
}

/* Returns the nearest number of 8 bits: -128 to 127, or 0 to 255. */
static inline int32_t tvm_ext_saturate_s8(int32_t value)
{
#if defined(__ARM_FEATURE_SAT) && defined(__GNUC__)
    int32_t result;
    __asm__("ssat %0, #8, %1" : "=r"(result) : "r"(value));
    return result;
#else
    return value < INT8_MIN ? INT8_MIN : value > INT8_MAX ? INT8_MAX : value;
#endif
}

static inline int32_t tvm_ext_saturate_u8(int32_t value)
{
#if defined(__ARM_FEATURE_SAT) && defined(__GNUC__)
    int32_t result;
    __asm__("usat %0, #8, %1" : "=r"(result) : "r"(value));
    return result;
#else
    const int32_t most = UINT8_MAX;
    return value < 0 ? 0 : value > most ? most : value;
#endif
}

/* Returns the nearest number of 16 bits: -32768 to 32767. */
static inline int32_t tvm_ext_saturate_s16(int32_t value)
{
#if defined(__ARM_FEATURE_SAT) && defined(__GNUC__)
    int32_t result;
    __asm__("ssat %0, #16, %1" : "=r"(result) : "r"(value));
    return result;
#else
    return value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value;
#endif
}

/* Clamps an element to [low, high]; the full range of a type takes one instruction if the processor has it. */
static inline int32_t tvm_ext_limited(int32_t value, int32_t low, int32_t high)
{
    if (low == INT8_MIN && high == INT8_MAX) {
        return tvm_ext_saturate_s8(value);
    }
    if (low == 0 && high == UINT8_MAX) {
        return tvm_ext_saturate_u8(value);
    }
    if (low == INT16_MIN && high == INT16_MAX) {
        return tvm_ext_saturate_s16(value);
    }
    return tvm_ext_clamp(value, low, high);
}

#endif
