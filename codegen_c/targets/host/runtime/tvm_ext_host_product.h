/* Products of pixels and output channels in vectors of 8 accumulators: up to 64 channels of one pixel at a time.
 *
 * Weights have 16 or 4 bits. For each block of units of 16 channels their order is [runs][pairs of elements][units]
 * [vectors][channels][2]. A run of odd length ends with a weight 0. */
#ifndef TVM_EXT_HOST_PRODUCT_H
#define TVM_EXT_HOST_PRODUCT_H

#include "tvm_ext_host_rescale.h"

typedef struct {
    int32_t runs;     /* runs of contiguous elements in a pixel's window */
    int32_t length;   /* elements of a run */
    int32_t channels; /* output channels */
    int32_t units;    /* units of 16 channels that are computed together, up to 4 */
    bool is_widened;  /* elements have 16 bits, otherwise 8 */
    bool is_unsigned; /* elements of 8 bits are uint8, otherwise int8 */
    bool is_packed;   /* weights have 4 bits, otherwise 16 */
    tvm_ext_host_rescale rescale;
} tvm_ext_host_product;

/* Adds the products of a pair of elements to the accumulators of up to 4 units. */
TVM_EXT_INLINE void tvm_ext_host_add_pair(const tvm_ext_host_product *product, tvm_ext_host_sums *sums,
                                          tvm_ext_i16x16 pair, const uint8_t *weights, int32_t units)
{
    const bool is_packed = product->is_packed;
    const int32_t step = tvm_ext_host_weights_bytes(is_packed);
    tvm_ext_host_add(&sums[0], pair, pair, tvm_ext_host_load_weights(weights, is_packed));
    if (units > 1) {
        tvm_ext_host_add(&sums[1], pair, pair, tvm_ext_host_load_weights(&weights[step], is_packed));
    }
    if (units > 2) {
        tvm_ext_host_add(&sums[2], pair, pair, tvm_ext_host_load_weights(&weights[2 * step], is_packed));
    }
    if (units > 3) {
        tvm_ext_host_add(&sums[3], pair, pair, tvm_ext_host_load_weights(&weights[3 * step], is_packed));
    }
}

/* Returns elements i and i + 1 from `place` on. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_host_pair(const tvm_ext_host_product *product, const void *place, int32_t i)
{
    return product->is_widened ? tvm_ext_i16x16_pair(&((const int16_t *)place)[i])
                               : tvm_ext_i16x16_pair_of_bytes(&((const uint8_t *)place)[i], product->is_unsigned);
}

/* Returns element i from `place` on, paired with 0. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_host_single(const tvm_ext_host_product *product, const void *place, int32_t i)
{
    if (product->is_widened) {
        return tvm_ext_i16x16_single(((const int16_t *)place)[i]);
    }
    return tvm_ext_i16x16_single(product->is_unsigned ? (int32_t)((const uint8_t *)place)[i]
                                                      : (int32_t)((const int8_t *)place)[i]);
}

/* Adds the products of up to 32 pairs of elements to the accumulators of up to 4 units. */
TVM_EXT_INLINE void tvm_ext_host_add_pairs(const tvm_ext_host_product *product, tvm_ext_host_sums *sums,
                                           const void *place, int32_t first, int32_t end, const uint8_t *weights,
                                           int32_t units)
{
    const int32_t step = units * tvm_ext_host_weights_bytes(product->is_packed);
    TVM_EXT_I32X8_UNROLLED
    for (int32_t i = 0; i < (end - first) / 2; ++i) {
        tvm_ext_host_add_pair(product, sums, tvm_ext_host_pair(product, place, first + (2 * i)), &weights[i * step],
                              units);
    }
}

/* Adds the products of a run of elements to the accumulators of up to 4 units. Returns the weights after those of the
 * run. at_once: elements whose products are unrolled. */
TVM_EXT_INLINE const uint8_t *tvm_ext_host_add_run(const tvm_ext_host_product *product, tvm_ext_host_sums *sums,
                                                   const void *place, const uint8_t *weights, int32_t units,
                                                   int32_t at_once)
{
    const int32_t step = units * tvm_ext_host_weights_bytes(product->is_packed);
    const int32_t whole = product->length - (product->length % at_once);
    const int32_t even = product->length - (product->length % 2);
    for (int32_t i = 0; i < whole; i += at_once) {
        tvm_ext_host_add_pairs(product, sums, place, i, i + at_once, weights, units);
        weights = &weights[at_once / 2 * step];
    }
    tvm_ext_host_add_pairs(product, sums, place, whole, even, weights, units);
    weights = &weights[(even - whole) / 2 * step];
    if (even < product->length) {
        tvm_ext_host_add_pair(product, sums, tvm_ext_host_single(product, place, even), weights, units);
        weights = &weights[step];
    }
    return weights;
}

/* Sets the accumulators of up to 4 units to their initial values. */
TVM_EXT_INLINE void tvm_ext_host_begin_units(tvm_ext_host_sums *sums, const int32_t *factors, int32_t units)
{
    sums[0] = tvm_ext_host_begin(factors);
    if (units > 1) {
        sums[1] = tvm_ext_host_begin(&factors[TVM_EXT_HOST_FACTORS]);
    }
    if (units > 2) {
        sums[2] = tvm_ext_host_begin(&factors[2 * TVM_EXT_HOST_FACTORS]);
    }
    if (units > 3) {
        sums[3] = tvm_ext_host_begin(&factors[3 * TVM_EXT_HOST_FACTORS]);
    }
}

/* Sets the accumulators of up to 4 units to zero. */
TVM_EXT_INLINE void tvm_ext_host_clear_units(tvm_ext_host_sums *sums, int32_t units)
{
    const tvm_ext_host_sums none = {tvm_ext_i32x8_splat(0), tvm_ext_i32x8_splat(0)};
    sums[0] = none;
    if (units > 1) {
        sums[1] = none;
    }
    if (units > 2) {
        sums[2] = none;
    }
    if (units > 3) {
        sums[3] = none;
    }
}

TVM_EXT_INLINE void tvm_ext_host_store(int32_t *target, tvm_ext_host_sums sums)
{
    tvm_ext_i32x8_store(target, sums.low);
    tvm_ext_i32x8_store(&target[8], sums.high);
}

/* Stores the accumulators of up to 4 units without rescaling. */
TVM_EXT_INLINE void tvm_ext_host_store_units(int32_t *restrict target, const tvm_ext_host_sums *sums, int32_t units)
{
    tvm_ext_host_store(target, sums[0]);
    if (units > 1) {
        tvm_ext_host_store(&target[TVM_EXT_HOST_UNIT], sums[1]);
    }
    if (units > 2) {
        tvm_ext_host_store(&target[2 * TVM_EXT_HOST_UNIT], sums[2]);
    }
    if (units > 3) {
        tvm_ext_host_store(&target[3 * TVM_EXT_HOST_UNIT], sums[3]);
    }
}

/* Rescales and stores the first `count` elements of up to 4 units. */
TVM_EXT_INLINE void tvm_ext_host_end_units(const tvm_ext_host_rescale *rescale, uint8_t *target,
                                           const tvm_ext_host_sums *sums, const int32_t *factors, int32_t units,
                                           int32_t count)
{
    tvm_ext_host_end(rescale, target, sums[0], factors, count);
    if (units > 1) {
        tvm_ext_host_end(rescale, &target[TVM_EXT_HOST_UNIT], sums[1], &factors[TVM_EXT_HOST_FACTORS],
                         count - TVM_EXT_HOST_UNIT);
    }
    if (units > 2) {
        tvm_ext_host_end(rescale, &target[2 * TVM_EXT_HOST_UNIT], sums[2], &factors[2 * TVM_EXT_HOST_FACTORS],
                         count - (2 * TVM_EXT_HOST_UNIT));
    }
    if (units > 3) {
        tvm_ext_host_end(rescale, &target[3 * TVM_EXT_HOST_UNIT], sums[3], &factors[3 * TVM_EXT_HOST_FACTORS],
                         count - (3 * TVM_EXT_HOST_UNIT));
    }
}

/* Computes `count` elements of a pixel in `units` units; the last unit may be incomplete. Returns the next weights.
 *
 * place: the first element of the pixel's window. Runs come in groups of `turn`: run_step is the distance in elements
 * between two runs of a group, turn_step the distance between two groups. */
TVM_EXT_INLINE const uint8_t *tvm_ext_host_block(const tvm_ext_host_product *product, const void *place,
                                                 int32_t run_step, int32_t turn, int32_t turn_step, uint8_t *target,
                                                 const uint8_t *weights, const int32_t *factors, int32_t units,
                                                 int32_t count)
{
    tvm_ext_host_sums sums[4];
    tvm_ext_host_begin_units(sums, factors, units);
    for (int32_t r = 0; r < product->runs; r += turn) {
        for (int32_t s = 0; s < turn; ++s) {
            const int32_t first = (r / turn * turn_step) + (s * run_step);
            const void *const run = &((const uint8_t *)place)[product->is_widened ? 2 * first : first];
            weights = tvm_ext_host_add_run(product, sums, run, weights, units, 64);
        }
    }
    tvm_ext_host_end_units(&product->rescale, target, sums, factors, units, count);
    return weights;
}

/* Computes all channels of a pixel. */
TVM_EXT_INLINE void tvm_ext_host_pixel(const tvm_ext_host_product *product, const void *place, int32_t run_step,
                                       int32_t turn, int32_t turn_step, uint8_t *target, const void *restrict weights,
                                       const int32_t *restrict factors)
{
    const int32_t width = product->units * TVM_EXT_HOST_UNIT;
    const int32_t full = product->channels - (product->channels % width);
    const uint8_t *f = (const uint8_t *)weights;
    for (int32_t k = 0; k < full; k += width) {
        f = tvm_ext_host_block(product, place, run_step, turn, turn_step, &target[k], f,
                               &factors[k * TVM_EXT_HOST_NUMBERS], product->units, width);
    }
    if (full < product->channels) {
        const int32_t rest = product->channels - full;
        (void)tvm_ext_host_block(product, place, run_step, turn, turn_step, &target[full], f,
                                 &factors[full * TVM_EXT_HOST_NUMBERS],
                                 (rest + TVM_EXT_HOST_UNIT - 1) / TVM_EXT_HOST_UNIT, rest);
    }
}

#endif
