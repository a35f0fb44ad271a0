/* Products of runs of 16-bit numbers and output channels in vectors of 8 accumulators: up to 64 channels at a time.
 *
 * Weights have 16 bits. For each block of units of 16 channels their order is [runs][pairs of
 * elements][units][channels] [2]. A run of odd length ends with a weight 0. */
#ifndef TVM_EXT_HOST_PAIRS_H
#define TVM_EXT_HOST_PAIRS_H

#include "tvm_ext_host_rescale.h"
#include "tvm_ext_i32x8.h"

/* Weights of a pair of elements for a unit. */
#define TVM_EXT_HOST_PAIR_WEIGHTS 32

typedef struct {
    int32_t length;   /* elements of a run */
    int32_t channels; /* output channels */
    int32_t units;    /* units of 16 channels that are computed together, up to 4 */
    tvm_ext_host_rescale rescale;
} tvm_ext_host_pairs;

/* Accumulators of a unit of 16 channels. */
typedef struct {
    tvm_ext_i32x8 low;
    tvm_ext_i32x8 high;
} tvm_ext_host_sums;

/* Adds the products of two elements, which all pairs of lanes hold, and their weights for 16 channels. */
TVM_EXT_INLINE void tvm_ext_host_add(tvm_ext_host_sums *sums, tvm_ext_i16x16 pair, const int16_t *weights)
{
    sums->low = tvm_ext_i32x8_add_pairs(sums->low, pair, tvm_ext_i16x16_load(weights));
    sums->high = tvm_ext_i32x8_add_pairs(sums->high, pair, tvm_ext_i16x16_load(&weights[16]));
}

/* Adds the products of a pair of elements to the accumulators of up to 4 units. */
TVM_EXT_INLINE void tvm_ext_host_add_pair(tvm_ext_host_sums *sums, tvm_ext_i16x16 pair, const int16_t *weights,
                                          int32_t units)
{
    tvm_ext_host_add(&sums[0], pair, weights);
    if (units > 1) {
        tvm_ext_host_add(&sums[1], pair, &weights[TVM_EXT_HOST_PAIR_WEIGHTS]);
    }
    if (units > 2) {
        tvm_ext_host_add(&sums[2], pair, &weights[2 * TVM_EXT_HOST_PAIR_WEIGHTS]);
    }
    if (units > 3) {
        tvm_ext_host_add(&sums[3], pair, &weights[3 * TVM_EXT_HOST_PAIR_WEIGHTS]);
    }
}

/* Adds the products of up to 32 pairs of elements to the accumulators of up to 4 units. */
TVM_EXT_INLINE void tvm_ext_host_add_pairs(tvm_ext_host_sums *sums, const int16_t *place, int32_t pairs,
                                           const int16_t *weights, int32_t units)
{
    TVM_EXT_I32X8_UNROLLED
    for (int32_t i = 0; i < pairs; ++i) {
        tvm_ext_host_add_pair(sums, tvm_ext_i16x16_pair(&place[2 * i]), &weights[i * units * TVM_EXT_HOST_PAIR_WEIGHTS],
                              units);
    }
}

/* Adds the products of a run of elements to the accumulators of up to 4 units. Returns the weights after those of the
 * run. at_once: elements whose products are unrolled. */
TVM_EXT_INLINE const int16_t *tvm_ext_host_add_run_of_pairs(const tvm_ext_host_pairs *product, tvm_ext_host_sums *sums,
                                                            const int16_t *place, const int16_t *weights, int32_t units,
                                                            int32_t at_once)
{
    const int32_t step = units * TVM_EXT_HOST_PAIR_WEIGHTS;
    const int32_t whole = product->length - (product->length % at_once);
    const int32_t even = product->length - (product->length % 2);
    for (int32_t i = 0; i < whole; i += at_once) {
        tvm_ext_host_add_pairs(sums, &place[i], at_once / 2, weights, units);
        weights = &weights[at_once / 2 * step];
    }
    tvm_ext_host_add_pairs(sums, &place[whole], (even - whole) / 2, weights, units);
    weights = &weights[(even - whole) / 2 * step];
    if (even < product->length) {
        tvm_ext_host_add_pair(sums, tvm_ext_i16x16_single(place[even]), weights, units);
        weights = &weights[step];
    }
    return weights;
}

/* Returns the initial accumulators of a unit. */
TVM_EXT_INLINE tvm_ext_host_sums tvm_ext_host_begin_pairs(const int32_t *factors)
{
    const tvm_ext_host_sums sums = {tvm_ext_i32x8_load(factors), tvm_ext_i32x8_load(&factors[8])};
    return sums;
}

/* Sets the accumulators of up to 4 units to their initial values. factors: of the first unit. */
TVM_EXT_INLINE void tvm_ext_host_begin_units(const tvm_ext_host_rescale *rescale, tvm_ext_host_sums *sums,
                                             const int32_t *factors, int32_t units)
{
    sums[0] = tvm_ext_host_begin_pairs(factors);
    if (units > 1) {
        sums[1] = tvm_ext_host_begin_pairs(tvm_ext_host_unit_factors(rescale, factors, TVM_EXT_HOST_UNIT));
    }
    if (units > 2) {
        sums[2] = tvm_ext_host_begin_pairs(tvm_ext_host_unit_factors(rescale, factors, 2 * TVM_EXT_HOST_UNIT));
    }
    if (units > 3) {
        sums[3] = tvm_ext_host_begin_pairs(tvm_ext_host_unit_factors(rescale, factors, 3 * TVM_EXT_HOST_UNIT));
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

#endif
