/* Softmax and its logarithm over vectors of floats in plain C; the largest element is subtracted first. */
#ifndef TVM_EXT_SOFTMAX_F32_H
#define TVM_EXT_SOFTMAX_F32_H

#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

/* Largest element of a vector. */
TVM_EXT_INLINE float tvm_ext_largest_f32(const float *x, int32_t length)
{
    float largest = x[0];
    for (int32_t k = 1; k < length; ++k) {
        largest = largest < x[k] ? x[k] : largest;
    }
    return largest;
}

/* Probabilities of `count` vectors. */
TVM_EXT_INLINE void tvm_ext_softmax_f32(const float *input, float *output, int32_t count, int32_t length)
{
    for (int32_t m = 0; m < count; ++m) {
        const float *const x = &input[m * length];
        float *const y = &output[m * length];
        const float largest = tvm_ext_largest_f32(x, length);
        float total = 0.0f;
        for (int32_t k = 0; k < length; ++k) {
            y[k] = expf(x[k] - largest);
            total += y[k];
        }
        for (int32_t k = 0; k < length; ++k) {
            y[k] /= total;
        }
    }
}

/* Logarithms of the probabilities of `count` vectors. */
TVM_EXT_INLINE void tvm_ext_log_softmax_f32(const float *input, float *output, int32_t count, int32_t length)
{
    for (int32_t m = 0; m < count; ++m) {
        const float *const x = &input[m * length];
        float *const y = &output[m * length];
        const float largest = tvm_ext_largest_f32(x, length);
        float total = 0.0f;
        for (int32_t k = 0; k < length; ++k) {
            total += expf(x[k] - largest);
        }
        const float logarithm = logf(total);
        for (int32_t k = 0; k < length; ++k) {
            y[k] = x[k] - largest - logarithm;
        }
    }
}

#endif
