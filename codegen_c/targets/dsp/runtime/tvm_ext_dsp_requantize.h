/* Requantization of sums by high products: a few instructions per sum, rounded as in the portable code. */
#ifndef TVM_EXT_DSP_REQUANTIZE_H
#define TVM_EXT_DSP_REQUANTIZE_H

#include "tvm_ext_dsp.h"
#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"
#include "tvm_ext_requantize_litert.h"
#include "tvm_ext_requantize_tflite.h"

/* Requantization of a layer's sums. */
typedef struct {
    bool by_high_product; /* otherwise by the whole 64-bit product; the generator has proved either exact */
    bool rounds_twice;    /* as in TensorFlow Lite; otherwise once, halves to even, as in ONNX */
    bool in_floats;       /* as in LiteRT; multipliers are the bits of float32 factors */
    int32_t channel_step; /* 1: a multiplier and a shift for each channel, 0: one of each for all */
    int32_t zero_point;
    int32_t low; /* the least and the greatest element, reduced by a fused activation */
    int32_t high;
} tvm_ext_dsp_requantize;

/* Returns true if factors apply to the sums themselves, otherwise to the multiples of sums that some loops compute. */
TVM_EXT_INLINE bool tvm_ext_dsp_takes_sums(const tvm_ext_dsp_requantize *layer)
{
    return layer->rounds_twice || layer->in_floats;
}

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

/* Defines tvm_ext_dsp_saturate_<type>_<shift>, which returns the nearest number of 8 bits to floor(value / 2^shift). */
#if TVM_EXT_DSP
#define TVM_EXT_DSP_DEFINE_SATURATE(TYPE, INSTRUCTION, SHIFT)                                                         \
    static inline int32_t tvm_ext_dsp_saturate_##TYPE##_##SHIFT(int32_t value)                                        \
    {                                                                                                                 \
        int32_t result;                                                                                               \
        __asm__(INSTRUCTION " %0, #8, %1, asr #" #SHIFT : "=r"(result) : "r"(value));                                 \
        return result;                                                                                                \
    }
#else
#define TVM_EXT_DSP_DEFINE_SATURATE(TYPE, INSTRUCTION, SHIFT)                                                         \
    static inline int32_t tvm_ext_dsp_saturate_##TYPE##_##SHIFT(int32_t value)                                        \
    {                                                                                                                 \
        return tvm_ext_saturate_##TYPE(value >> SHIFT);                                                               \
    }
#endif

TVM_EXT_DSP_DEFINE_SATURATE(s8, "ssat", 1)
TVM_EXT_DSP_DEFINE_SATURATE(s8, "ssat", 4)
TVM_EXT_DSP_DEFINE_SATURATE(s8, "ssat", 5)
TVM_EXT_DSP_DEFINE_SATURATE(s8, "ssat", 6)
TVM_EXT_DSP_DEFINE_SATURATE(s8, "ssat", 7)
TVM_EXT_DSP_DEFINE_SATURATE(s8, "ssat", 8)
TVM_EXT_DSP_DEFINE_SATURATE(s8, "ssat", 9)
TVM_EXT_DSP_DEFINE_SATURATE(s8, "ssat", 10)
TVM_EXT_DSP_DEFINE_SATURATE(s8, "ssat", 11)
TVM_EXT_DSP_DEFINE_SATURATE(s8, "ssat", 12)
TVM_EXT_DSP_DEFINE_SATURATE(u8, "usat", 1)
TVM_EXT_DSP_DEFINE_SATURATE(u8, "usat", 4)
TVM_EXT_DSP_DEFINE_SATURATE(u8, "usat", 8)

/* Returns the element of a sum: sum * multiplier / 2^shift + zero_point, rounded and clamped. By high products, the
 * division is by 2^(33 + shift), or by 2^(32 + shift) if it rounds twice. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_element(const tvm_ext_dsp_requantize *layer, int32_t sum, int32_t multiplier,
                                           int32_t shift)
{
    int32_t value;
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
    } else if (layer->in_floats) {
        value = tvm_ext_requantize_litert(sum, multiplier, shift) + layer->zero_point;
    } else {
        value = tvm_ext_requantize(sum, multiplier, shift) + layer->zero_point;
    }
    return tvm_ext_limited(value, layer->low, layer->high);
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
            value = tvm_ext_dsp_saturate_s8_1(value);
        } else if (layer->low == 0 && layer->high == UINT8_MAX) {
            value = tvm_ext_dsp_saturate_u8_1(value);
        } else {
            value = tvm_ext_clamp(value >> 1, layer->low, layer->high);
        }
    }
    return value;
}

#endif
