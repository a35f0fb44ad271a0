/* Requantization of sums in float32, as LiteRT's default kernels (XNNPACK) compute it. */
#ifndef TVM_EXT_REQUANTIZE_LITERT_H
#define TVM_EXT_REQUANTIZE_LITERT_H

#include <string.h>

#include "tvm_ext_requantize.h"

/* value, rounded to 24 significant bits as a float is, halves to even. value: below 2^62. */
static inline uint64_t tvm_ext_rounded_to_24_bits(uint64_t value)
{
    uint64_t rounded = value;
    if (value > 0xffffffu) {
        uint32_t dropped = 1u;
#if defined(__GNUC__)
        dropped = 40u - (uint32_t)__builtin_clzll(value);
#else
        while ((value >> dropped) > 0xffffffu) {
            ++dropped;
        }
#endif
        const uint64_t below_half = (UINT64_C(1) << (dropped - 1u)) - UINT64_C(1);
        rounded = ((value + below_half + ((value >> dropped) & UINT64_C(1))) >> dropped) << dropped;
    }
    return rounded;
}

/* Returns the result of tvm_ext_requantize_litert by integers alone. */
static inline int32_t tvm_ext_requantize_litert_by_integers(int32_t value, int32_t bits)
{
    const uint32_t magnitude = (value < 0) ? (0u - (uint32_t)value) : (uint32_t)value;
    const uint32_t mantissa = ((uint32_t)bits & 0x7fffffu) | 0x800000u;
    const uint64_t product = tvm_ext_rounded_to_24_bits(tvm_ext_rounded_to_24_bits(magnitude) * (uint64_t)mantissa);
    const uint32_t exponent = (uint32_t)bits >> 23u; /* the factor is mantissa * 2^(exponent - 150) */
    int32_t result = 0;
    if (exponent >= 150u) {
        result = (int32_t)(int64_t)(product * (UINT64_C(1) << (exponent - 150u)));
    } else {
        if (exponent >= 88u) { /* smaller factors give 0 */
            result = tvm_ext_round_shift((int64_t)product, 150 - (int32_t)exponent);
        }
    }
    return (value < 0) ? -result : result;
}

/* value * factor in float32, then rounded to an integer, halves to even. bits: of the factor, which is at least 0. The
 * result must stay below 2^30. A floating-point unit must round to nearest, as it does from reset. `shift` is 0. */
static inline int32_t tvm_ext_requantize_litert(int32_t value, int32_t bits, int32_t shift)
{
    (void)shift;
#if defined(__ARM_FP) && ((__ARM_FP & 4) != 0) && defined(__GNUC__)
    float factor;
    float rounded;
    int32_t result;
    (void)memcpy(&factor, &bits, sizeof factor);
    __asm__("vcvtr.s32.f32 %0, %1" : "=t"(rounded) : "t"((float)value * factor));
    (void)memcpy(&result, &rounded, sizeof result);
    return result;
#else
    return tvm_ext_requantize_litert_by_integers(value, bits);
#endif
}

#endif
