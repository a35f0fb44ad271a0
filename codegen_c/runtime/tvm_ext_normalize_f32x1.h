/* LayerNorm and RMSNorm over vectors of floats.
 *
 * Written for single floats; copied for vectors of each length under their names. */
#ifndef TVM_EXT_NORMALIZE_F32X1_H
#define TVM_EXT_NORMALIZE_F32X1_H

#include "tvm_ext_lanes_f32x1.h"

typedef struct {
    int32_t vectors;
    int32_t length;
    bool is_centered; /* the mean is subtracted first */
    float epsilon;
} tvm_ext_normalize_f32_layer;

/* Returns the mean of a vector. */
TVM_EXT_INLINE float tvm_ext_mean_f32x1(const float *x, int32_t length)
{
    const int32_t whole = tvm_ext_whole_f32x1(length);
    tvm_ext_f32x1 total = tvm_ext_f32x1_splat(0.0f);
    for (int32_t k = 0; k < whole; k += TVM_EXT_F32X1_LANES) {
        total = tvm_ext_f32x1_add(total, tvm_ext_f32x1_load(&x[k]));
    }
    if (whole < length) {
        total = tvm_ext_f32x1_add(total, tvm_ext_load_part_f32x1(&x[whole], length - whole, 0.0f));
    }
    return tvm_ext_total_f32x1(total) / (float)length;
}

/* Returns the mean of the squares of a vector's differences from `mean`. */
TVM_EXT_INLINE float tvm_ext_spread_f32x1(const float *x, int32_t length, float mean)
{
    const int32_t whole = tvm_ext_whole_f32x1(length);
    const tvm_ext_f32x1 means = tvm_ext_f32x1_splat(mean);
    tvm_ext_f32x1 total = tvm_ext_f32x1_splat(0.0f);
    for (int32_t k = 0; k < whole; k += TVM_EXT_F32X1_LANES) {
        const tvm_ext_f32x1 distance = tvm_ext_f32x1_subtract(tvm_ext_f32x1_load(&x[k]), means);
        total = tvm_ext_f32x1_fma(distance, distance, total);
    }
    if (whole < length) {
        const tvm_ext_f32x1 rest = tvm_ext_load_part_f32x1(&x[whole], length - whole, mean);
        const tvm_ext_f32x1 distance = tvm_ext_f32x1_subtract(rest, means);
        total = tvm_ext_f32x1_fma(distance, distance, total);
    }
    return tvm_ext_total_f32x1(total) / (float)length;
}

/* Normalizes all vectors; weight, bias: one number for each element of a vector. */
TVM_EXT_INLINE void tvm_ext_normalize_f32x1(const tvm_ext_normalize_f32_layer *layer, const float *input, float *output,
                                            const float *weight, const float *bias)
{
    const int32_t length = layer->length;
    const int32_t whole = tvm_ext_whole_f32x1(length);
    for (int32_t m = 0; m < layer->vectors; ++m) {
        const float *const x = &input[m * length];
        float *const y = &output[m * length];
        const float mean = layer->is_centered ? tvm_ext_mean_f32x1(x, length) : 0.0f;
        const float factor = 1.0f / sqrtf(tvm_ext_spread_f32x1(x, length, mean) + layer->epsilon);
        for (int32_t k = 0; k < whole; k += TVM_EXT_F32X1_LANES) {
            const tvm_ext_f32x1 distance = tvm_ext_f32x1_subtract(tvm_ext_f32x1_load(&x[k]), tvm_ext_f32x1_splat(mean));
            const tvm_ext_f32x1 scaled = tvm_ext_f32x1_multiply(distance, tvm_ext_f32x1_splat(factor));
            tvm_ext_f32x1_store(
                &y[k], tvm_ext_f32x1_fma(scaled, tvm_ext_f32x1_load(&weight[k]), tvm_ext_f32x1_load(&bias[k])));
        }
        for (int32_t k = whole; k < length; ++k) {
            const float scaled = (x[k] - mean) * factor;
            y[k] = TVM_EXT_FMA(scaled, weight[k], bias[k]);
        }
    }
}

#endif
