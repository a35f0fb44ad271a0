/* Requantization of sums by high products: a few instructions per sum, rounded as in the portable code. */
#ifndef TVM_EXT_DSP_REQUANTIZE_H
#define TVM_EXT_DSP_REQUANTIZE_H

#include "tvm_ext_dsp.h"
#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"
#include "tvm_ext_requantize_tflite.h"

/* Requantization of a layer's sums. */
typedef struct {
    bool by_high_product; /* otherwise by the whole 64-bit product; the generator has proved either exact */
    bool rounds_twice;    /* as in TensorFlow Lite; otherwise once, halves to even, as in ONNX */
    int32_t channel_step; /* 1: a multiplier and a shift for each channel, 0: one of each for all */
    int32_t common_shift; /* shift of all channels after the high product, 4 or 8, to any 8-bit number; 0: none */
    int32_t zero_point;
    int32_t low; /* the least and the greatest element, reduced by a fused activation */
    int32_t high;
} tvm_ext_dsp_requantize;

/* Returns the multiplier of channel k. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_multiplier(const tvm_ext_dsp_requantize *layer, const int32_t *multipliers,
                                              int32_t k)
{
    return multipliers[k * layer->channel_step];
}

/* Returns the shift of channel k. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_shift(const tvm_ext_dsp_requantize *layer, const uint8_t *shifts, int32_t k)
{
    return shifts[k * layer->channel_step];
}

/* Returns the nearest number of 8 bits to the floor of value / 2^shift, for a shift of 4 or 8. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_saturate_shifted(int32_t value, int32_t shift, bool is_unsigned)
{
#if TVM_EXT_DSP
    int32_t result;
    if (is_unsigned && shift == 4) {
        __asm__("usat %0, #8, %1, asr #4" : "=r"(result) : "r"(value));
    } else if (is_unsigned) {
        __asm__("usat %0, #8, %1, asr #8" : "=r"(result) : "r"(value));
    } else if (shift == 4) {
        __asm__("ssat %0, #8, %1, asr #4" : "=r"(result) : "r"(value));
    } else {
        __asm__("ssat %0, #8, %1, asr #8" : "=r"(result) : "r"(value));
    }
    return result;
#else
    return is_unsigned ? tvm_ext_saturate_u8(value >> shift) : tvm_ext_saturate_s8(value >> shift);
#endif
}

/* Returns the element of a sum: sum * multiplier / 2^shift + zero_point, rounded and clamped. By high products, the
 * division is by 2^(33 + shift), or by 2^(32 + shift) if it rounds twice. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_element(const tvm_ext_dsp_requantize *layer, int32_t sum, int32_t multiplier,
                                           int32_t shift)
{
    int32_t value;
    if (layer->common_shift > 0) {
        const int32_t rounding = ((2 * layer->zero_point) + 1) * (1 << (layer->common_shift - 1));
        value = tvm_ext_dsp_high_product(sum, multiplier, rounding);
        return tvm_ext_dsp_saturate_shifted(value, layer->common_shift, layer->low == 0);
    }
    if (layer->by_high_product) {
        /* The zero point and a half, in the unit of the high product. Multiplied, because C leaves shifts of
           negative numbers undefined. */
        const int32_t rounding = ((2 * layer->zero_point) + 1) * (1 << shift);
        if (layer->rounds_twice) {
            value = tvm_ext_dsp_high_product_rounded(sum * 2, multiplier, rounding);
            /* Halves away from zero are halves up except for negative sums, which a ReLU clamps. */
            value += layer->low >= layer->zero_point ? 0 : sum >> 31;
        } else {
            value = tvm_ext_dsp_high_product(sum, multiplier, rounding);
        }
        value >>= shift + 1;
    } else if (layer->rounds_twice) {
        value = tvm_ext_requantize_tflite(sum, multiplier, shift) + layer->zero_point;
    } else {
        value = tvm_ext_requantize(sum, multiplier, shift) + layer->zero_point;
    }
    return tvm_ext_limited(value, layer->low, layer->high);
}

/* Returns the nearest number of 8 bits to the floor of a half. */
static inline int32_t tvm_ext_dsp_saturate_half_s8(int32_t value)
{
#if TVM_EXT_DSP
    int32_t result;
    __asm__("ssat %0, #8, %1, asr #1" : "=r"(result) : "r"(value));
    return result;
#else
    return tvm_ext_saturate_s8(value >> 1);
#endif
}

static inline int32_t tvm_ext_dsp_saturate_half_u8(int32_t value)
{
#if TVM_EXT_DSP
    int32_t result;
    __asm__("usat %0, #8, %1, asr #1" : "=r"(result) : "r"(value));
    return result;
#else
    return tvm_ext_saturate_u8(value >> 1);
#endif
}

/* tvm_ext_dsp_element for a multiplier and a shift that are used once: nothing is prepared for the next sum. It uses
 * floor((h + (2 z + 1) 2^s) / 2^(s + 1)) = floor((floor(h / 2^s) + 2 z + 1) / 2), h a high product, z the zero
 * point. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_element_once(const tvm_ext_dsp_requantize *layer, int32_t sum, int32_t multiplier,
                                                int32_t shift)
{
    int32_t value;
    if (!layer->by_high_product) {
        value = tvm_ext_dsp_element(layer, sum, multiplier, shift);
    } else {
        int32_t product;
        if (layer->rounds_twice) {
            product = tvm_ext_dsp_high_product_rounded(sum * 2, multiplier, 0);
            product += layer->low >= layer->zero_point ? 0 : sum >> 31;
        } else {
            product = tvm_ext_dsp_high_product(sum, multiplier, 0);
        }
        value = (product >> shift) + (2 * layer->zero_point) + 1;
        if (layer->low == INT8_MIN && layer->high == INT8_MAX) {
            value = tvm_ext_dsp_saturate_half_s8(value);
        } else if (layer->low == 0 && layer->high == UINT8_MAX) {
            value = tvm_ext_dsp_saturate_half_u8(value);
        } else {
            value = tvm_ext_clamp(value >> 1, layer->low, layer->high);
        }
    }
    return value;
}

#endif
