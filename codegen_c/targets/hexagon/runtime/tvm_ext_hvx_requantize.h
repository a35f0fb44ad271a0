/* Requantization with HVX: a factor for each accumulator, the zero point, then the limits.
 *
 * A factor is multiplier / 2^(31 + shift): the high product of the accumulator and the multiplier, then a right shift
 * that rounds. With TensorFlow Lite's rounding both steps round, the second one halves away from zero. */
#ifndef TVM_EXT_HVX_REQUANTIZE_H
#define TVM_EXT_HVX_REQUANTIZE_H

#include "tvm_ext_hvx.h"
#include "tvm_ext_layer.h"

typedef struct {
    bool rounds_twice;  /* as TensorFlow Lite does; otherwise once, halves to even */
    bool has_ties;      /* an accumulator may lie halfway between two results */
    int32_t left_shift; /* scales accumulators up first, so that every shift is above 0 */
    bool is_unsigned;   /* elements are uint8, otherwise int8 */
    int32_t zero_point;
    int32_t low;
    int32_t high;
} tvm_ext_hvx_rescale;

/* Vectors of the factors of 32 channels: initial accumulators, multipliers, halves, and negative shifts. */
enum { TVM_EXT_HVX_STARTS, TVM_EXT_HVX_MULTIPLIERS, TVM_EXT_HVX_HALVES, TVM_EXT_HVX_SHIFTS, TVM_EXT_HVX_ROWS };

/* Returns the initial accumulators of a group of 32 channels. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_starts(const int32_t *factors, int32_t group)
{
    return tvm_ext_hvx_load(&factors[group * TVM_EXT_HVX_ROWS * TVM_EXT_HVX_WORDS]);
}

/* Returns values times multiplier / 2^(31 - shift), with TensorFlow Lite's two roundings. halves: 2^(-shift - 1), or 0
 * for a shift of 0. shifts: 0 or negative. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_scaled_twice(tvm_ext_hvx values, tvm_ext_hvx multipliers, tvm_ext_hvx halves,
                                                    tvm_ext_hvx shifts)
{
    const tvm_ext_hvx products = tvm_ext_hvx_high_rounded(values, multipliers);
    /* Negative products are decremented if they are shifted, so that halves are rounded away from zero. */
    const tvm_ext_hvx signs = tvm_ext_hvx_right(tvm_ext_hvx_and(products, shifts), 31);
    return tvm_ext_hvx_shifted(tvm_ext_hvx_add(tvm_ext_hvx_add(products, halves), signs), shifts);
}

/* Returns the results of accumulators of a group of channels, as words. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_rescaled(const tvm_ext_hvx_rescale *rescale, tvm_ext_hvx sums,
                                                const int32_t *factors, int32_t group)
{
    const int32_t *const rows = &factors[group * TVM_EXT_HVX_ROWS * TVM_EXT_HVX_WORDS];
    const tvm_ext_hvx multipliers = tvm_ext_hvx_load(&rows[TVM_EXT_HVX_MULTIPLIERS * TVM_EXT_HVX_WORDS]);
    const tvm_ext_hvx halves = tvm_ext_hvx_load(&rows[TVM_EXT_HVX_HALVES * TVM_EXT_HVX_WORDS]);
    const tvm_ext_hvx shifts = tvm_ext_hvx_load(&rows[TVM_EXT_HVX_SHIFTS * TVM_EXT_HVX_WORDS]);
    const tvm_ext_hvx zero_points = tvm_ext_hvx_words(rescale->zero_point);
    if (rescale->rounds_twice) {
        return tvm_ext_hvx_add(tvm_ext_hvx_scaled_twice(sums, multipliers, halves, shifts), zero_points);
    }
    const tvm_ext_hvx scaled = rescale->left_shift > 0 ? tvm_ext_hvx_left(sums, rescale->left_shift) : sums;
    const tvm_ext_hvx products = tvm_ext_hvx_high(scaled, multipliers);
    tvm_ext_hvx results = tvm_ext_hvx_shifted(tvm_ext_hvx_add(products, halves), shifts);
    if (rescale->has_ties) {
        /* A result comes from exactly one half if all bits below the half are zero. */
        const tvm_ext_hvx bits = tvm_ext_hvx_add(tvm_ext_hvx_words(TVM_EXT_HVX_WORDS), shifts);
        const tvm_ext_hvx above = tvm_ext_hvx_xor(tvm_ext_hvx_shifted(products, bits), tvm_ext_hvx_words(INT32_MIN));
        const tvm_ext_hvx below = tvm_ext_hvx_left(tvm_ext_hvx_low(scaled, multipliers), 1);
        results = tvm_ext_hvx_even_where_zero(results, tvm_ext_hvx_or(above, below));
    }
    return tvm_ext_hvx_add(results, zero_points);
}

/* Returns the elements of four vectors of accumulators. Their groups of channels follow `group`, and group 0 follows
 * group `groups` - 1. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_elements(const tvm_ext_hvx_rescale *rescale, tvm_ext_hvx_four sums,
                                                const int32_t *factors, int32_t group, int32_t groups)
{
    tvm_ext_hvx_four results;
    TVM_EXT_HVX_UNROLL for (int32_t i = 0; i < 4; ++i)
    {
        results.part[i] = tvm_ext_hvx_rescaled(rescale, sums.part[i], factors, group);
        group = group + 1 < groups ? group + 1 : 0;
    }
    return tvm_ext_hvx_packed(results, rescale->is_unsigned, rescale->low, rescale->high);
}

/* Loads four vectors of accumulators. */
TVM_EXT_INLINE tvm_ext_hvx_four tvm_ext_hvx_load_four(const int32_t *sums)
{
    const tvm_ext_hvx_four four = {{tvm_ext_hvx_load(sums), tvm_ext_hvx_load(&sums[TVM_EXT_HVX_WORDS]),
                                    tvm_ext_hvx_load(&sums[2 * TVM_EXT_HVX_WORDS]),
                                    tvm_ext_hvx_load(&sums[3 * TVM_EXT_HVX_WORDS])}};
    return four;
}

/* Requantizes `count` accumulators, of one pixel or of adjacent ones, whose channels are `groups` groups. */
TVM_EXT_INLINE void tvm_ext_hvx_requantize(const tvm_ext_hvx_rescale *rescale, uint8_t *output, const int32_t *sums,
                                           const int32_t *factors, int32_t groups, int32_t count)
{
    int32_t group = 0;
    for (int32_t k = 0; k < count; k += TVM_EXT_HVX_BYTES) {
        const tvm_ext_hvx_four four = tvm_ext_hvx_load_four(&sums[k]);
        const int32_t left = count - k;
        tvm_ext_hvx_store_first(&output[k], tvm_ext_hvx_elements(rescale, four, factors, group, groups),
                                left < TVM_EXT_HVX_BYTES ? left : TVM_EXT_HVX_BYTES);
        group = (group + 4) % groups;
    }
}

#endif
