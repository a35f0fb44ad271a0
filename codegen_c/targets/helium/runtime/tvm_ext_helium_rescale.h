/* Requantization in vectors of Helium: a factor for each sum, then the zero point, then the bounds. */
#ifndef TVM_EXT_HELIUM_RESCALE_H
#define TVM_EXT_HELIUM_RESCALE_H

#include "tvm_ext_helium.h"
#include "tvm_ext_layer.h"
#include "tvm_ext_requantize_litert.h"

/* A factor is multiplier / 2^(32 - shift), with a negative shift: the high word of a product, shifted and rounded
 * once. In TensorFlow Lite's rounding it is multiplier / 2^(31 - shift), and both steps round. */
typedef struct {
    bool rounds_twice;  /* as in TensorFlow Lite; otherwise once, halves to even */
    bool in_floats; /* as in LiteRT: a multiplier is the bits of a float32 factor, without a shift */
    bool rounds_up; /* with two roundings, halves may round up: negative sums are clamped */
    bool has_ties; /* some sum may lie halfway between two results */
    int32_t left_shift; /* scales sums up first, so that every shift is negative */
    int32_t zero_point;
    int32_t low;
    int32_t high;
} tvm_ext_helium_rescale;

/* Returns a * factor in float32, then rounded to integers, halves to even. bits: the bits of the factors. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_helium_scaled_in_floats(tvm_ext_i32x4 a, tvm_ext_i32x4 bits)
{
#if defined(TVM_EXT_HAS_HELIUM) && (__ARM_FEATURE_MVE & 2) != 0
    return vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(a), vreinterpretq_f32_s32(bits)));
#else
    int32_t results[4];
    int32_t factors[4];
    tvm_ext_i32x4_store(results, a);
    tvm_ext_i32x4_store(factors, bits);
    for (int32_t i = 0; i < 4; ++i) {
        results[i] = tvm_ext_requantize_litert(results[i], factors[i], 0);
    }
    return tvm_ext_i32x4_load(results);
#endif
}

/* Returns the results of four sums, without the zero point. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_helium_rescaled(const tvm_ext_helium_rescale *rescale, tvm_ext_i32x4 sum,
                                                     tvm_ext_i32x4 multiplier, tvm_ext_i32x4 shift)
{
    if (rescale->in_floats) {
        return tvm_ext_helium_scaled_in_floats(sum, multiplier);
    }
    if (rescale->rounds_twice) {
        const tvm_ext_i32x4 product = tvm_ext_i32x4_multiply_doubled(sum, multiplier);
        return rescale->rounds_up ? tvm_ext_i32x4_round_shift(product, shift)
                                  : tvm_ext_i32x4_shift_away(product, shift);
    }
    const tvm_ext_i32x4 value = rescale->left_shift > 0 ? tvm_ext_i32x4_shift(sum, rescale->left_shift) : sum;
    const tvm_ext_i32x4 high = tvm_ext_i32x4_multiply_high(value, multiplier);
    if (rescale->has_ties) {
        return tvm_ext_i32x4_round_shift_even(high, tvm_ext_i32x4_multiply(value, multiplier), shift);
    }
    return tvm_ext_i32x4_round_shift(high, shift);
}

/* Returns the results of four sums with the same factor. Doubling the product keeps one more bit of it, so the shift
 * is longer by one. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_helium_rescaled_alike(const tvm_ext_helium_rescale *rescale, tvm_ext_i32x4 sum,
                                                           int32_t multiplier, int32_t shift)
{
    if (rescale->rounds_twice && rescale->rounds_up) {
        return tvm_ext_i32x4_round_shift_n(tvm_ext_i32x4_multiply_doubled_n(sum, multiplier), shift);
    }
    if (rescale->in_floats || rescale->rounds_twice || rescale->has_ties || rescale->left_shift > 0) {
        return tvm_ext_helium_rescaled(rescale, sum, tvm_ext_i32x4_splat(multiplier), tvm_ext_i32x4_splat(shift));
    }
    return tvm_ext_i32x4_round_shift_n(tvm_ext_i32x4_multiply_doubled_down_n(sum, multiplier), shift - 1);
}

/* Returns true if the bounds are those of int8_t, which narrowing enforces. */
TVM_EXT_INLINE bool tvm_ext_helium_is_narrowed(const tvm_ext_helium_rescale *rescale)
{
    return rescale->low == INT8_MIN && rescale->high == INT8_MAX;
}

/* Returns eight results with the zero point, clamped unless narrowing does so. */
TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_helium_shifted(const tvm_ext_helium_rescale *rescale, tvm_ext_i16x8 results)
{
    const tvm_ext_i16x8 shifted =
        rescale->zero_point != 0 ? tvm_ext_i16x8_add_n(results, (int16_t)rescale->zero_point) : results;
    if (tvm_ext_helium_is_narrowed(rescale)) {
        return shifted;
    }
    return tvm_ext_i16x8_clamp(shifted, (int16_t)rescale->low, (int16_t)rescale->high);
}

/* Returns eight elements of the output, in the low byte of each lane. */
TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_helium_pairs(const tvm_ext_helium_rescale *rescale, tvm_ext_i16x8 results)
{
    const tvm_ext_i16x8 shifted = tvm_ext_helium_shifted(rescale, results);
    return tvm_ext_helium_is_narrowed(rescale) ? tvm_ext_i16x8_limited(shifted) : shifted;
}

/* Returns 16 elements of the output. results: those of every fourth lane, from lanes 0, 2, 1 and 3 on. */
TVM_EXT_INLINE tvm_ext_i8x16 tvm_ext_helium_bytes(const tvm_ext_helium_rescale *rescale, const tvm_ext_i32x4 *results)
{
    const tvm_ext_i16x8 even = tvm_ext_helium_shifted(rescale, tvm_ext_i16x8_narrow(results[0], results[1]));
    const tvm_ext_i16x8 odd = tvm_ext_helium_shifted(rescale, tvm_ext_i16x8_narrow(results[2], results[3]));
    return tvm_ext_helium_is_narrowed(rescale) ? tvm_ext_i8x16_limited(even, odd) : tvm_ext_i8x16_of(even, odd);
}

#endif
