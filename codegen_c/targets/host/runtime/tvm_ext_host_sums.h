/* Accumulators of a unit of 16 channels, and the unit's weights: two vectors each. */
#ifndef TVM_EXT_HOST_SUMS_H
#define TVM_EXT_HOST_SUMS_H

#include "tvm_ext_i32x8.h"

#define TVM_EXT_HOST_UNIT 16

typedef struct {
    tvm_ext_i32x8 low;
    tvm_ext_i32x8 high;
} tvm_ext_host_sums;

/* Weights of two elements for 16 channels. */
typedef struct {
    tvm_ext_i16x16 low;
    tvm_ext_i16x16 high;
} tvm_ext_host_weights;

/* Returns the bytes of the weights of two elements: 16 bits each, or 4 bits each with both vectors interleaved. */
TVM_EXT_INLINE int32_t tvm_ext_host_weights_bytes(bool is_packed)
{
    return is_packed ? 16 : 64;
}

TVM_EXT_INLINE tvm_ext_host_weights tvm_ext_host_load_weights(const uint8_t *source, bool is_packed)
{
    if (is_packed) {
        const tvm_ext_host_weights unpacked = {tvm_ext_i16x16_nibbles(source, false),
                                               tvm_ext_i16x16_nibbles(source, true)};
        return unpacked;
    }
    const tvm_ext_host_weights loaded = {tvm_ext_i16x16_load(source), tvm_ext_i16x16_load(&source[32])};
    return loaded;
}

/* Adds the products of pairs of elements and a unit's weights. All lanes hold the same pair, or each channel its own.
 */
TVM_EXT_INLINE void tvm_ext_host_add(tvm_ext_host_sums *sums, tvm_ext_i16x16 low, tvm_ext_i16x16 high,
                                     tvm_ext_host_weights weights)
{
    sums->low = tvm_ext_i32x8_add_pairs(sums->low, low, weights.low);
    sums->high = tvm_ext_i32x8_add_pairs(sums->high, high, weights.high);
}

#endif
