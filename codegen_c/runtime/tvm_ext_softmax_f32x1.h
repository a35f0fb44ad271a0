/* Softmax and its logarithm over vectors of floats; the largest element is subtracted first.
 *
 * Written for single floats; copied for vectors of each length under their names. */
#ifndef TVM_EXT_SOFTMAX_F32X1_H
#define TVM_EXT_SOFTMAX_F32X1_H

#include "tvm_ext_lanes_f32x1.h"

/* Below this, e^x counts as 0: -126 ln 2. */
#define TVM_EXT_SOFTMAX_F32X1_LOWEST (-87.3365448f)

/* e^x for x from the limit up to 0: 2^n by the exponent, e^r for |r| up to ln(2) / 2 by a polynomial (Cephes). */
TVM_EXT_INLINE tvm_ext_f32x1 tvm_ext_exp_f32x1(tvm_ext_f32x1 x)
{
    const tvm_ext_f32x1 magic = tvm_ext_f32x1_splat(12582912.0f); /* 1.5 * 2^23: sums with it are integers */
    const tvm_ext_f32x1 power = tvm_ext_f32x1_fma_n(1.44269504f, x, magic);
    const tvm_ext_f32x1 n = tvm_ext_f32x1_subtract(power, magic);
    const tvm_ext_f32x1 near = tvm_ext_f32x1_fma_n(-0.693359375f, n, x);
    const tvm_ext_f32x1 r = tvm_ext_f32x1_fma_n(2.12194440e-4f, n, near);
    tvm_ext_f32x1 sum = tvm_ext_f32x1_fma_n(1.98756915e-4f, r, tvm_ext_f32x1_splat(1.39819995e-3f));
    sum = tvm_ext_f32x1_fma(sum, r, tvm_ext_f32x1_splat(8.33345191e-3f));
    sum = tvm_ext_f32x1_fma(sum, r, tvm_ext_f32x1_splat(4.16657959e-2f));
    sum = tvm_ext_f32x1_fma(sum, r, tvm_ext_f32x1_splat(0.166666655f));
    sum = tvm_ext_f32x1_fma(sum, r, tvm_ext_f32x1_splat(0.500000012f));
    sum = tvm_ext_f32x1_fma(sum, tvm_ext_f32x1_multiply(r, r), r);
    return tvm_ext_f32x1_times_power(tvm_ext_f32x1_add(sum, tvm_ext_f32x1_splat(1.0f)), power);
}

/* Returns e^(x - largest); exactly 0 if that is below the limit. */
TVM_EXT_INLINE tvm_ext_f32x1 tvm_ext_share_f32x1(tvm_ext_f32x1 x, float largest)
{
    const tvm_ext_f32x1 lowest = tvm_ext_f32x1_splat(TVM_EXT_SOFTMAX_F32X1_LOWEST);
    const tvm_ext_f32x1 below = tvm_ext_f32x1_subtract(x, tvm_ext_f32x1_splat(largest));
    return tvm_ext_f32x1_subtract(tvm_ext_exp_f32x1(tvm_ext_f32x1_maximum(below, lowest)), tvm_ext_exp_f32x1(lowest));
}

/* Returns the largest element of a vector. */
TVM_EXT_INLINE float tvm_ext_largest_f32x1(const float *x, int32_t length)
{
    const int32_t whole = tvm_ext_whole_f32x1(length);
    tvm_ext_f32x1 largest = tvm_ext_f32x1_splat(x[0]);
    for (int32_t k = 0; k < whole; k += TVM_EXT_F32X1_LANES) {
        largest = tvm_ext_f32x1_maximum(largest, tvm_ext_f32x1_load(&x[k]));
    }
    if (whole < length) {
        largest = tvm_ext_f32x1_maximum(largest, tvm_ext_load_part_f32x1(&x[whole], length - whole, x[0]));
    }
    return tvm_ext_largest_lane_f32x1(largest);
}

/* Computes the probabilities of `count` vectors. */
TVM_EXT_INLINE void tvm_ext_softmax_f32x1(const float *input, float *output, int32_t count, int32_t length)
{
    const int32_t whole = tvm_ext_whole_f32x1(length);
    for (int32_t m = 0; m < count; ++m) {
        const float *const x = &input[m * length];
        float *const y = &output[m * length];
        const float largest = tvm_ext_largest_f32x1(x, length);
        tvm_ext_f32x1 total = tvm_ext_f32x1_splat(0.0f);
        for (int32_t k = 0; k < whole; k += TVM_EXT_F32X1_LANES) {
            const tvm_ext_f32x1 share = tvm_ext_share_f32x1(tvm_ext_f32x1_load(&x[k]), largest);
            tvm_ext_f32x1_store(&y[k], share);
            total = tvm_ext_f32x1_add(total, share);
        }
        if (whole < length) {
            const tvm_ext_f32x1 rest = tvm_ext_load_part_f32x1(&x[whole], length - whole, -INFINITY);
            const tvm_ext_f32x1 share = tvm_ext_share_f32x1(rest, largest);
            tvm_ext_store_part_f32x1(&y[whole], length - whole, share);
            total = tvm_ext_f32x1_add(total, share);
        }
        const float factor = 1.0f / tvm_ext_total_f32x1(total);
        for (int32_t k = 0; k < whole; k += TVM_EXT_F32X1_LANES) {
            tvm_ext_f32x1_store(&y[k], tvm_ext_f32x1_multiply(tvm_ext_f32x1_load(&y[k]), tvm_ext_f32x1_splat(factor)));
        }
        for (int32_t k = whole; k < length; ++k) {
            y[k] *= factor;
        }
    }
}

/* Computes the logarithms of the probabilities of `count` vectors. */
TVM_EXT_INLINE void tvm_ext_log_softmax_f32x1(const float *input, float *output, int32_t count, int32_t length)
{
    const int32_t whole = tvm_ext_whole_f32x1(length);
    for (int32_t m = 0; m < count; ++m) {
        const float *const x = &input[m * length];
        float *const y = &output[m * length];
        const float largest = tvm_ext_largest_f32x1(x, length);
        tvm_ext_f32x1 total = tvm_ext_f32x1_splat(0.0f);
        for (int32_t k = 0; k < whole; k += TVM_EXT_F32X1_LANES) {
            total = tvm_ext_f32x1_add(total, tvm_ext_share_f32x1(tvm_ext_f32x1_load(&x[k]), largest));
        }
        if (whole < length) {
            const tvm_ext_f32x1 rest = tvm_ext_load_part_f32x1(&x[whole], length - whole, -INFINITY);
            total = tvm_ext_f32x1_add(total, tvm_ext_share_f32x1(rest, largest));
        }
        const float logarithm = logf(tvm_ext_total_f32x1(total));
        for (int32_t k = 0; k < length; ++k) {
            y[k] = x[k] - largest - logarithm;
        }
    }
}

#endif
