/* Requantization of 16 accumulators: a factor for each accumulator, the zero point, then the limits. */
#ifndef TVM_EXT_HOST_RESCALE_H
#define TVM_EXT_HOST_RESCALE_H

#include "tvm_ext_i32x16.h"

/* Channels that are computed together. */
#define TVM_EXT_HOST_UNIT 16
typedef struct {
    bool rounds_twice; /* as TensorFlow Lite does; otherwise once, halves to even */
    bool has_ties; /* an accumulator may lie halfway between two results */
    bool has_floats; /* the floats of the table may replace its integers */
    bool has_signs; /* float offsets of accumulators below zero differ from the others */
    bool is_unsigned; /* elements are uint8, otherwise int8 */
    int32_t left_shift; /* scales accumulators up first, so that every shift is above 0 */
    int32_t zero_point;
    int32_t low;
    int32_t high;
} tvm_ext_host_rescale;

/* Returns the numbers per channel in the table of factors: initial accumulators for activations without and with a
 * sign, multiplier, half, shift, and the bits of a float factor and a float offset, which give the same element for
 * every accumulator. If has_signs, the offset is that of accumulators from zero on, and an eighth number that of the
 * others. The same numbers of 16 channels are adjacent. */
TVM_EXT_INLINE int32_t tvm_ext_host_numbers(const tvm_ext_host_rescale *rescale)
{
    return rescale->has_signs ? 8 : 7;
}

/* Returns the factors of the unit that begins with channel k. */
TVM_EXT_INLINE const int32_t *tvm_ext_host_unit_factors(const tvm_ext_host_rescale *rescale, const int32_t *factors,
                                                        int32_t k)
{
    return &factors[k * tvm_ext_host_numbers(rescale)];
}

/* Returns a row of the table of factors of a unit. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_host_factor(const int32_t *factors, int32_t row)
{
    return tvm_ext_i32x16_load(&factors[row * TVM_EXT_HOST_UNIT]);
}

/* Returns the initial accumulators. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_host_begin(const int32_t *factors)
{
    return tvm_ext_host_factor(factors, TVM_EXT_I32X16_TAKES_UNSIGNED ? 0 : 1);
}

/* Stores the first `count` elements of a unit. */
TVM_EXT_INLINE void tvm_ext_host_end(const tvm_ext_host_rescale *rescale, uint8_t *target, tvm_ext_i32x16 sums,
                                     const int32_t *factors, int32_t count)
{
    int32_t zero_point = rescale->zero_point;
    tvm_ext_i32x16 result;
#ifdef TVM_EXT_I32X16_HAS_FLOATS
    if (rescale->has_floats) {
        zero_point = 0; /* a part of the offsets */
        result = tvm_ext_i32x16_scaled_by_floats(sums, tvm_ext_host_factor(factors, 5), tvm_ext_host_factor(factors, 6),
                                                 tvm_ext_host_factor(factors, rescale->has_signs ? 7 : 6),
                                                 rescale->has_signs);
    } else
#endif
        if (rescale->rounds_twice) {
        result = tvm_ext_i32x16_scaled_twice(sums, tvm_ext_host_factor(factors, 2), tvm_ext_host_factor(factors, 3),
                                             tvm_ext_host_factor(factors, 4));
    } else {
        const tvm_ext_i32x16 value =
            rescale->left_shift > 0 ? tvm_ext_i32x16_shifted_up(sums, rescale->left_shift) : sums;
        result = tvm_ext_i32x16_scaled(value, tvm_ext_host_factor(factors, 2), tvm_ext_host_factor(factors, 3),
                                       tvm_ext_host_factor(factors, 4), rescale->has_ties);
    }
    tvm_ext_i32x16_store_bytes(target, result, count, zero_point, rescale->low, rescale->high, rescale->is_unsigned);
}

#endif
