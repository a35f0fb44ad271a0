/* Quantization of floats to int8 by their own range: scale and zero point as in runtimes' dynamic range
 * quantization.
 *
 * Ranges include 0. ONNX's DynamicQuantizeLinear uses 0 ... 255, here 128 lower: steps are distances from the zero
 * point, which stay the same. */
#ifndef TVM_EXT_RANGE_H
#define TVM_EXT_RANGE_H

#include <float.h>

#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"

#define TVM_EXT_RANGE_ONNX 0
#define TVM_EXT_RANGE_ASYMMETRIC 1
#define TVM_EXT_RANGE_SYMMETRIC 2

/* factor: multiplier of elements; ONNX divides by the scale instead. is_finite: all elements and the factor are
 * finite. */
typedef struct {
    float scale;
    float factor;
    int32_t zero_point;
    bool is_finite;
} tvm_ext_range;

TVM_EXT_INLINE int32_t tvm_ext_range_bits(float value)
{
    int32_t bits;
    (void)memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Finds the largest and smallest element, or 0 if that lies beyond, skipping NaN. Returns true if all are finite. */
TVM_EXT_INLINE bool tvm_ext_range_ends(const float *x, int32_t count, float *low, float *high)
{
    /* Bits of floats have the order of their values: above zero as signed integers, below zero reversed as unsigned
       ones. */
    int32_t most = 0;
    uint32_t least = 0u;
    for (int32_t i = 0; i < count; ++i) {
        const int32_t bits = tvm_ext_range_bits(x[i]);
        most = bits > most ? bits : most;
        least = (uint32_t)bits > least ? (uint32_t)bits : least;
    }
    least = least > 0x80000000u ? least : 0u;
    (void)memcpy(high, &most, sizeof most);
    (void)memcpy(low, &least, sizeof least);
    if (most <= 0x7f800000 && least <= 0xff800000u) {
        return most < 0x7f800000 && least < 0xff800000u;
    }
    *low = *high = 0.0f;
    for (int32_t i = 0; i < count; ++i) {
        *low = x[i] < *low ? x[i] : *low;
        *high = x[i] > *high ? x[i] : *high;
    }
    return false;
}

/* Returns the zero point from the end of the range whose distance in steps is smaller. */
TVM_EXT_INLINE int32_t tvm_ext_range_zero_point(double low, double high, double scale)
{
    const double below = low / scale;
    const double above = high / scale;
    const double place = 128.0 + fabs(below) < 127.0 + fabs(above) ? -128.0 - below : 127.0 - above;
    return place > -128.0 ? (place < 127.0 ? (int32_t)round(place) : 127) : -128;
}

TVM_EXT_INLINE tvm_ext_range tvm_ext_range_of(const float *x, int32_t count, int32_t meaning)
{
    float low;
    float high;
    tvm_ext_range range = {1.0f, 1.0f, 0, tvm_ext_range_ends(x, count, &low, &high)};
    if (low == high) {
        range.zero_point = meaning == TVM_EXT_RANGE_ONNX ? -128 : 0;
    } else if (meaning == TVM_EXT_RANGE_ONNX) {
        range.scale = (high - low) / 255.0f;
        const float place = (0.0f - low) / range.scale;
        range.zero_point = (int32_t)rintf(place < 255.0f ? place : 255.0f) - 128;
    } else if (meaning == TVM_EXT_RANGE_ASYMMETRIC) {
        const double scale = (double)(high - low) / 255.0;
        range.scale = (float)scale;
        range.factor = 1.0f / range.scale;
        range.zero_point = tvm_ext_range_zero_point((double)low, (double)high, scale);
    } else {
        const float magnitude = -low > high ? -low : high;
        range.scale = magnitude / 127.0f;
        range.factor = 127.0f / magnitude;
    }
    range.is_finite = range.is_finite && range.factor <= FLT_MAX;
    return range;
}

/* Returns the nearest integer, halves away from zero, for magnitudes up to 2^22. */
TVM_EXT_INLINE int32_t tvm_ext_range_away(float steps)
{
    /* The largest float below 0.5: adding 0.5 itself would round the float below 0.5 up to 1. */
    return (int32_t)(steps + copysignf(0.49999997f, steps));
}

/* Converts elements to steps. */
TVM_EXT_INLINE void tvm_ext_range_steps(const tvm_ext_range *range, const float *x, int8_t *steps, int32_t count,
                                        int32_t meaning)
{
    const int32_t zero_point = range->zero_point;
    if (meaning == TVM_EXT_RANGE_ONNX) {
        /* Halves to even: adding 2^23 + 2^22 to a small number puts its nearest integer into the low bits. */
        for (int32_t i = 0; i < count; ++i) {
            const int32_t bits = tvm_ext_range_bits((x[i] / range->scale) + 12582912.0f);
            steps[i] = (int8_t)tvm_ext_saturate_s8(bits + (zero_point - 0x4b400000));
        }
    } else if (range->is_finite) {
        for (int32_t i = 0; i < count; ++i) {
            steps[i] = (int8_t)tvm_ext_saturate_s8(tvm_ext_range_away(x[i] * range->factor) + zero_point);
        }
    } else {
        for (int32_t i = 0; i < count; ++i) {
            const float step = x[i] * range->factor;
            const float known = fabsf(step) < 512.0f ? step : step > 0.0f ? 512.0f : -512.0f;
            steps[i] = (int8_t)tvm_ext_saturate_s8(tvm_ext_range_away(known) + zero_point);
        }
    }
}

#endif
