/* Requantization of 16 accumulators in vectors of 8: a factor for each accumulator, the zero point, then the limits. */
#ifndef TVM_EXT_HOST_RESCALE_H
#define TVM_EXT_HOST_RESCALE_H

#include "tvm_ext_host_sums.h"

/* Numbers per channel in a table of factors: initial accumulator, multiplier, half, shift, and the bits of a float
 * factor and a float offset that give the same element for every accumulator. The same numbers of 16 channels are
 * adjacent. */
#define TVM_EXT_HOST_NUMBERS 6
#define TVM_EXT_HOST_FACTORS (TVM_EXT_HOST_NUMBERS * TVM_EXT_HOST_UNIT)

typedef struct {
    bool rounds_twice; /* as TensorFlow Lite does; otherwise once, halves to even */
    bool has_ties; /* an accumulator may lie halfway between two results */
    bool has_floats; /* the floats of the table may replace its integers */
    bool is_unsigned; /* elements are uint8, otherwise int8 */
    int32_t left_shift; /* scales accumulators up first, so that every shift is above 0 */
    int32_t zero_point;
    int32_t low;
    int32_t high;
} tvm_ext_host_rescale;

/* Returns the initial accumulators. */
TVM_EXT_INLINE tvm_ext_host_sums tvm_ext_host_begin(const int32_t *factors)
{
    const tvm_ext_host_sums sums = {tvm_ext_i32x8_load(factors), tvm_ext_i32x8_load(&factors[8])};
    return sums;
}

/* Returns the results of eight accumulators, without the zero point. factors: of the unit, from the vector's first. */
TVM_EXT_INLINE tvm_ext_i32x8 tvm_ext_host_rescaled(const tvm_ext_host_rescale *rescale, tvm_ext_i32x8 sums,
                                                   const int32_t *factors)
{
    const tvm_ext_i32x8 half = tvm_ext_i32x8_load(&factors[2 * TVM_EXT_HOST_UNIT]);
    const tvm_ext_i32x8 shift = tvm_ext_i32x8_load(&factors[3 * TVM_EXT_HOST_UNIT]);
    if (rescale->rounds_twice) {
        return tvm_ext_i32x8_scaled_twice(sums, &factors[TVM_EXT_HOST_UNIT], half, shift);
    }
    const tvm_ext_i32x8 value = rescale->left_shift > 0 ? tvm_ext_i32x8_shifted_up(sums, rescale->left_shift) : sums;
    return tvm_ext_i32x8_scaled(value, &factors[TVM_EXT_HOST_UNIT], half, shift, rescale->has_ties);
}

/* Stores the 16 elements of a unit. */
TVM_EXT_INLINE void tvm_ext_host_elements(const tvm_ext_host_rescale *rescale, uint8_t *target, tvm_ext_host_sums sums,
                                          const int32_t *factors)
{
#ifdef TVM_EXT_I32X8_HAS_FLOATS
    if (rescale->has_floats) {
        const int32_t *const floats = &factors[4 * TVM_EXT_HOST_UNIT];
        const int32_t *const offsets = &factors[5 * TVM_EXT_HOST_UNIT];
        tvm_ext_i32x8_store_bytes(target, tvm_ext_i32x8_scaled_by_floats(sums.low, floats, offsets),
                                  tvm_ext_i32x8_scaled_by_floats(sums.high, &floats[8], &offsets[8]), 0, rescale->low,
                                  rescale->high, rescale->is_unsigned);
        return;
    }
#endif
    tvm_ext_i32x8_store_bytes(target, tvm_ext_host_rescaled(rescale, sums.low, factors),
                              tvm_ext_host_rescaled(rescale, sums.high, &factors[8]), rescale->zero_point, rescale->low,
                              rescale->high, rescale->is_unsigned);
}

/* Stores the first `count` elements of a unit. */
TVM_EXT_INLINE void tvm_ext_host_end(const tvm_ext_host_rescale *rescale, uint8_t *target, tvm_ext_host_sums sums,
                                     const int32_t *factors, int32_t count)
{
    if (count >= TVM_EXT_HOST_UNIT) {
        tvm_ext_host_elements(rescale, target, sums, factors);
    } else {
        uint8_t elements[TVM_EXT_HOST_UNIT];
        tvm_ext_host_elements(rescale, elements, sums, factors);
        (void)memcpy(target, elements, (size_t)count);
    }
}

#endif
