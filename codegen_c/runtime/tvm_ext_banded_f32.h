/* Products of floats with matrices most of whose entries are zero, such as banks of triangular filters. */
#ifndef TVM_EXT_BANDED_F32_H
#define TVM_EXT_BANDED_F32_H

#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

/* Returns `sum` plus the products of `count` weights with every `step`-th element of x, added in this order. */
TVM_EXT_INLINE float tvm_ext_band_f32(float sum, const float *x, int32_t step, const float *weights, int32_t count)
{
    const float *const end = &weights[count];
    const float *const last = end - count % 4;
    while (weights != last) {
        sum = TVM_EXT_FMA(x[0], weights[0], sum);
        sum = TVM_EXT_FMA(x[step], weights[1], sum);
        sum = TVM_EXT_FMA(x[2 * step], weights[2], sum);
        sum = TVM_EXT_FMA(x[3 * step], weights[3], sum);
        x = &x[4 * step];
        weights = &weights[4];
    }
    while (weights != end) {
        sum = TVM_EXT_FMA(*x, *weights, sum);
        x = &x[step];
        weights = &weights[1];
    }
    return sum;
}

#endif
