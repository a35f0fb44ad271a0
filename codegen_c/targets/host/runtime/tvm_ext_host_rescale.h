/* From 16 sums to 16 elements, in vectors of 8: a factor for each sum, then the zero point, then limits. */
#ifndef TVM_EXT_HOST_RESCALE_H
#define TVM_EXT_HOST_RESCALE_H

#include "tvm_ext_host_sums.h"

/* Numbers of a unit of 16 channels in a table of factors: starts of sums, multipliers, halves, shifts. */
#define TVM_EXT_HOST_FACTORS 64

typedef struct {
    bool rounds_twice;  /* as TensorFlow Lite does; otherwise once, halves to even */
    bool has_ties;      /* some sum may lie halfway between two results */
    bool is_unsigned;   /* elements are uint8, otherwise int8 */
    int32_t left_shift; /* by which sums are scaled up first, so that every shift is above 0 */
    int32_t zero_point;
    int32_t low;
    int32_t high;
} tvm_ext_host_rescale;

/* Sums as they begin. */
TVM_EXT_INLINE tvm_ext_host_sums tvm_ext_host_begin(const int32_t *factors)
{
    const tvm_ext_host_sums sums = {tvm_ext_i32x8_load(factors), tvm_ext_i32x8_load(&factors[8])};
    return sums;
}

/* Results of eight sums, without the zero point. factors: those of the unit, from the vector's first one on. */
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

/* The first `count` elements of a unit. */
TVM_EXT_INLINE void tvm_ext_host_end(const tvm_ext_host_rescale *rescale, uint8_t *target, tvm_ext_host_sums sums,
                                     const int32_t *factors, int32_t count)
{
    const tvm_ext_i32x8 low = tvm_ext_host_rescaled(rescale, sums.low, factors);
    const tvm_ext_i32x8 high = tvm_ext_host_rescaled(rescale, sums.high, &factors[8]);
    if (count >= TVM_EXT_HOST_UNIT) {
        tvm_ext_i32x8_store_bytes(target, low, high, rescale->zero_point, rescale->low, rescale->high,
                                  rescale->is_unsigned);
    } else {
        uint8_t elements[TVM_EXT_HOST_UNIT];
        tvm_ext_i32x8_store_bytes(elements, low, high, rescale->zero_point, rescale->low, rescale->high,
                                  rescale->is_unsigned);
        (void)memcpy(target, elements, (size_t)count);
    }
}

#endif
