/* Runs of floats that do not fill a vector, and reductions over the lanes of a vector.
 *
 * Written for single floats; copied for vectors of each length under their names. */
#ifndef TVM_EXT_LANES_F32X1_H
#define TVM_EXT_LANES_F32X1_H

#include "tvm_ext_f32x1.h"
#include "tvm_ext_layer.h"

/* Returns the elements of a run that whole vectors hold. */
TVM_EXT_INLINE int32_t tvm_ext_whole_f32x1(int32_t length)
{
    return length - (length % TVM_EXT_F32X1_LANES);
}

/* Loads `count` floats, fewer than a vector has, with `fill` in the lanes after them. */
TVM_EXT_INLINE tvm_ext_f32x1 tvm_ext_load_part_f32x1(const float *source, int32_t count, float fill)
{
    float lanes[TVM_EXT_F32X1_LANES] = {0.0f};
    for (int32_t i = 0; i < TVM_EXT_F32X1_LANES; ++i) {
        lanes[i] = (i < count) ? source[i] : fill;
    }
    return tvm_ext_f32x1_load(lanes);
}

/* Loads `count` floats, with 0 in the lanes after them. */
TVM_EXT_INLINE tvm_ext_f32x1 tvm_ext_load_live_f32x1(const float *source, int32_t count)
{
#ifdef TVM_EXT_F32X1_HAS_PARTS
    return tvm_ext_f32x1_load_part(source, count);
#else
    return tvm_ext_load_part_f32x1(source, count, 0.0f);
#endif
}

/* Writes the first `count` lanes. */
TVM_EXT_INLINE void tvm_ext_store_part_f32x1(float *target, int32_t count, tvm_ext_f32x1 value)
{
#ifdef TVM_EXT_F32X1_HAS_PARTS
    tvm_ext_f32x1_store_part(target, count, value);
#else
    float lanes[TVM_EXT_F32X1_LANES] = {0.0f};
    tvm_ext_f32x1_store(lanes, value);
    for (int32_t i = 0; i < count; ++i) {
        target[i] = lanes[i];
    }
#endif
}

/* Returns the sum of the lanes, in their order. */
TVM_EXT_INLINE float tvm_ext_total_f32x1(tvm_ext_f32x1 value)
{
    float lanes[TVM_EXT_F32X1_LANES] = {0.0f};
    tvm_ext_f32x1_store(lanes, value);
    float total = lanes[0];
    for (int32_t i = 1; i < TVM_EXT_F32X1_LANES; ++i) {
        total += lanes[i];
    }
    return total;
}

/* Returns the largest lane. */
TVM_EXT_INLINE float tvm_ext_largest_lane_f32x1(tvm_ext_f32x1 value)
{
    float lanes[TVM_EXT_F32X1_LANES] = {0.0f};
    tvm_ext_f32x1_store(lanes, value);
    float largest = lanes[0];
    for (int32_t i = 1; i < TVM_EXT_F32X1_LANES; ++i) {
        largest = (largest < lanes[i]) ? lanes[i] : largest;
    }
    return largest;
}

#endif
