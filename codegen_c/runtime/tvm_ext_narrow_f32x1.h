/* Vectors of weights that are stored in 16 bits each.
 *
 * Written for single floats; copied for vectors of each length under their names. */
#ifndef TVM_EXT_NARROW_F32X1_H
#define TVM_EXT_NARROW_F32X1_H

#include "tvm_ext_f32x1.h"
#include "tvm_ext_narrow.h"

/* Loads a vector. */
TVM_EXT_INLINE tvm_ext_f32x1 tvm_ext_narrow_f32x1(const uint16_t *weights, tvm_ext_weights type)
{
    float lanes[TVM_EXT_F32X1_LANES];
    for (int32_t i = 0; i < TVM_EXT_F32X1_LANES; ++i) {
        lanes[i] = tvm_ext_widen(weights[i], type);
    }
    return tvm_ext_f32x1_load(lanes);
}

/* Loads two adjacent vectors at a multiple of 4 bytes. */
TVM_EXT_INLINE void tvm_ext_narrow_f32x1_two(tvm_ext_f32x1 *two, const uint16_t *weights, tvm_ext_weights type)
{
    float lanes[2 * TVM_EXT_F32X1_LANES];
    for (int32_t i = 0; i < 2 * TVM_EXT_F32X1_LANES; i += 2) {
        tvm_ext_widen_two(&lanes[i], &weights[i], type);
    }
    two[0] = tvm_ext_f32x1_load(lanes);
    two[1] = tvm_ext_f32x1_load(&lanes[TVM_EXT_F32X1_LANES]);
}

#endif
