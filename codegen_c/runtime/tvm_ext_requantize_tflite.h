/* Requantization of sums with the two roundings of TensorFlow Lite; no float operation. */
#ifndef TVM_EXT_REQUANTIZE_TFLITE_H
#define TVM_EXT_REQUANTIZE_TFLITE_H

#include "tvm_ext_requantize.h"

/* Upper half of 2 * a * b, halves rounded up. Not for a = b = INT32_MIN. */
static inline int32_t tvm_ext_multiply_high(int32_t a, int32_t b)
{
    return (int32_t)(((int64_t)a * b + ((int64_t)1 << 30)) >> 31);
}

/* value / 2^exponent, halves rounded away from zero. exponent: 0 to 31. */
static inline int32_t tvm_ext_divide_by_power(int32_t value, int32_t exponent)
{
    const int32_t mask = (int32_t)(((int64_t)1 << exponent) - 1);
    const int32_t threshold = (mask >> 1) + (value < 0 ? 1 : 0);
    return (value >> exponent) + ((value & mask) > threshold ? 1 : 0);
}

/* value * multiplier / 2^shift. multiplier: 0 to 2^31 - 1; shift: 0 to 62; the result must stay below 2^30. */
static inline int32_t tvm_ext_requantize_tflite(int32_t value, int32_t multiplier, int32_t shift)
{
    if (shift < 31) {
        return tvm_ext_multiply_high(value * (int32_t)((uint32_t)1 << (31 - shift)), multiplier);
    }
    return tvm_ext_divide_by_power(tvm_ext_multiply_high(value, multiplier), shift - 31);
}

/* total / count, rounded to nearest, halves away from zero: the average of integers. count: above 0. */
static inline int32_t tvm_ext_average(int32_t total, int32_t count)
{
    return total > 0 ? (total + count / 2) / count : (total - count / 2) / count;
}

#endif
