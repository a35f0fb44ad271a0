/* Softmax as TensorFlow Lite computes it, in fixed point; no float operation. */
#ifndef TVM_EXT_SOFTMAX_TFLITE_H
#define TVM_EXT_SOFTMAX_TFLITE_H

#include "tvm_ext_layer.h"
#include "tvm_ext_requantize_tflite.h"

/* Integer bits of a sum of exponentials; the shift from its reciprocal times an exponential to 256ths, at most 31. */
#define TVM_EXT_SOFTMAX_SUM_BITS 12
#define TVM_EXT_SOFTMAX_TO_256THS 23
#define TVM_EXT_SOFTMAX_MOST_BITS 31

static inline int32_t tvm_ext_saturate(int64_t value)
{
    return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
}

/* Returns 1 / (1 + x) with x and the result in units of 2^-31: three steps of Newton's method from a linear guess. */
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

/* Returns the left shift of a sum above 0 that sets its highest bit. */
static inline int32_t tvm_ext_leading_zeros(int32_t sum)
{
    int32_t count = 0;
    for (uint32_t bits = (uint32_t)sum; bits < UINT32_C(0x80000000); bits <<= 1) {
        ++count;
    }
    return count;
}

/* Computes the probabilities of `count` vectors of int8; the output's scale is 1/256, its zero point -128.
 *
 * exponential: of 0, -1, -2 ... steps of the input, without integer bits. */
TVM_EXT_INLINE void tvm_ext_softmax_tflite(const int8_t *input, int8_t *output, const int32_t *restrict exponential,
                                           int32_t count, int32_t length)
{
    for (int32_t m = 0; m < count; ++m) {
        const int8_t *const x = &input[m * length];
        int8_t *const y = &output[m * length];
        int32_t largest = x[0];
        for (int32_t c = 0; c < length; ++c) {
            largest = x[c] > largest ? x[c] : largest;
        }
        int32_t sum = 0;
        for (int32_t c = 0; c < length; ++c) {
            sum += tvm_ext_divide_by_power(exponential[largest - x[c]], TVM_EXT_SOFTMAX_SUM_BITS);
        }
        const int32_t zeros = tvm_ext_leading_zeros(sum);
        const int32_t shift = TVM_EXT_SOFTMAX_SUM_BITS + TVM_EXT_SOFTMAX_TO_256THS - zeros;
        const int32_t exponent = tvm_ext_clamp(shift, 0, TVM_EXT_SOFTMAX_MOST_BITS);
        const uint32_t excess = ((uint32_t)sum << zeros) - UINT32_C(0x80000000);
        /* In a sum of 512 or more, each share is less than half of 1/256. */
        const int32_t factor = shift > TVM_EXT_SOFTMAX_MOST_BITS ? 0 : tvm_ext_one_over_one_plus((int32_t)excess);
        for (int32_t c = 0; c < length; ++c) {
            const int32_t product = tvm_ext_multiply_high(exponential[largest - x[c]], factor);
            const int32_t value = tvm_ext_divide_by_power(product, exponent) - 128;
            y[c] = (int8_t)tvm_ext_clamp(value, -128, 127);
        }
    }
}

#endif
