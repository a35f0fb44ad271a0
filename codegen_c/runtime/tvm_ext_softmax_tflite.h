/* The division of TensorFlow Lite's softmax, in fixed point; no float operation. */
#ifndef TVM_EXT_SOFTMAX_TFLITE_H
#define TVM_EXT_SOFTMAX_TFLITE_H

#include "tvm_ext_requantize_tflite.h"

static inline int32_t tvm_ext_saturate(int64_t value)
{
    return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
}

/* 1 / (1 + x) with x and the result in units of 2^-31: Newton's method, three steps from a line. */
static inline int32_t tvm_ext_one_over_one_plus(int32_t x)
{
    const int32_t half = (int32_t)(((int64_t)x + INT32_MAX + 1) >> 1);
    int32_t guess = 1515870810 + tvm_ext_multiply_high(half, -1010580540); /* 48/17 and 32/17, units of 2^-29 */
    for (int32_t i = 0; i < 3; ++i) {
        const int32_t error = ((int32_t)1 << 29) - tvm_ext_multiply_high(half, guess);
        guess += tvm_ext_saturate((int64_t)tvm_ext_multiply_high(guess, error) * 4);
    }
    return tvm_ext_saturate((int64_t)guess * 2);
}

/* How far a sum above 0 can be shifted to the left until its highest bit is set. */
static inline int32_t tvm_ext_leading_zeros(int32_t sum)
{
    int32_t count = 0;
    for (uint32_t bits = (uint32_t)sum; bits < UINT32_C(0x80000000); bits <<= 1) {
        ++count;
    }
    return count;
}

#endif
