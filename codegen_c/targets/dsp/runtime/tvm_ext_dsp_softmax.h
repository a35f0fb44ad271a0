/* Softmax over vectors of quantized elements by the DSP extension, with the bytes of tvm_ext_qsoftmax.h. */
#ifndef TVM_EXT_DSP_SOFTMAX_H
#define TVM_EXT_DSP_SOFTMAX_H

#include "tvm_ext_dsp.h"
#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"
#include "tvm_ext_softmax_layer.h"

/* Returns the larger of each pair of bytes. */
TVM_EXT_INLINE uint32_t tvm_ext_dsp_larger(uint32_t a, uint32_t b, bool is_unsigned)
{
#if TVM_EXT_DSP
    uint32_t result;
    if (is_unsigned) {
        __asm__("usub8 %0, %1, %2\n\tsel %0, %1, %2" : "=&r"(result) : "r"(a), "r"(b) : "cc");
    } else {
        __asm__("ssub8 %0, %1, %2\n\tsel %0, %1, %2" : "=&r"(result) : "r"(a), "r"(b) : "cc");
    }
    return result;
#else
    const uint32_t flip = is_unsigned ? 0u : 0x80u;
    uint32_t result = 0;
    for (int32_t i = 0; i < 32; i += 8) {
        const uint32_t first = (a >> i & 0xffu) ^ flip;
        const uint32_t second = (b >> i & 0xffu) ^ flip;
        result |= ((first > second ? first : second) ^ flip) << i;
    }
    return result;
#endif
}

/* Returns the largest element of a vector. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_largest(const tvm_ext_softmax_layer *layer, const uint8_t *x)
{
    int32_t largest = tvm_ext_softmax_element(layer, x, 0);
    int32_t c = 0;
    if (layer->length >= 4) {
        uint32_t four = tvm_ext_dsp_load(x);
        for (c = 4; c + 4 <= layer->length; c += 4) {
            four = tvm_ext_dsp_larger(four, tvm_ext_dsp_load(&x[c]), layer->is_unsigned);
        }
        four = tvm_ext_dsp_larger(four, four >> 16 | four << 16, layer->is_unsigned);
        four = tvm_ext_dsp_larger(four, four >> 8 | four << 24, layer->is_unsigned);
        largest = layer->is_unsigned ? (int32_t)(four & 0xffu) : (int32_t)(int8_t)(uint8_t)(four & 0xffu);
    }
    for (; c < layer->length; ++c) {
        const int32_t element = tvm_ext_softmax_element(layer, x, c);
        largest = element > largest ? element : largest;
    }
    return largest;
}

/* Returns the sum of the exponentials of a vector; `at` is the address of that of element 0. Two of them fit 32
   bits. */
TVM_EXT_INLINE uint64_t tvm_ext_dsp_softmax_sum(const tvm_ext_softmax_layer *layer, const uint8_t *x,
                                                const uint32_t *at)
{
    uint64_t sum = 0;
    int32_t c = 0;
    for (; c + 4 <= layer->length; c += 4) {
        const uint32_t first = at[tvm_ext_softmax_element(layer, x, c)];
        const uint32_t second = at[tvm_ext_softmax_element(layer, x, c + 1)];
        const uint32_t third = at[tvm_ext_softmax_element(layer, x, c + 2)];
        const uint32_t fourth = at[tvm_ext_softmax_element(layer, x, c + 3)];
        sum += first + second;
        sum += third + fourth;
    }
    for (; c < layer->length; ++c) {
        sum += at[tvm_ext_softmax_element(layer, x, c)];
    }
    return sum;
}

/* Returns the result for one exponential if no product is a tie: rounded by its high word
   (tvm_ext_dsp_requantize.h). */
TVM_EXT_INLINE uint8_t tvm_ext_dsp_softmax_result(const tvm_ext_softmax_layer *layer, uint32_t exponential,
                                                  int32_t factor)
{
    const int32_t rest = layer->shift - 33;
    const int32_t rounding = ((2 * layer->zero_point) + 1) * (1 << rest);
    const int32_t value = tvm_ext_dsp_high_product((int32_t)exponential, factor, rounding) >> (rest + 1);
    return (uint8_t)tvm_ext_limited(value, layer->low, layer->high);
}

/* Computes all vectors. exponential: of -255 to 0 steps of the input. */
TVM_EXT_INLINE void tvm_ext_dsp_softmax(const tvm_ext_softmax_layer *layer, const void *input, void *output,
                                        const uint32_t *restrict exponential)
{
    const int32_t length = layer->length;
    for (int32_t m = 0; m < layer->vectors; ++m) {
        const uint8_t *const x = &((const uint8_t *)input)[m * length];
        uint8_t *const y = &((uint8_t *)output)[m * length];
        const int32_t largest = tvm_ext_dsp_largest(layer, x);
        const uint32_t *const at = &exponential[255 - largest];
        const uint64_t sum = tvm_ext_dsp_softmax_sum(layer, x, at);
        const int32_t factor = (int32_t)(((uint64_t)layer->steps + (sum / 2)) / sum);
        /* An exponential has at most 30 trailing zeros; a tie requires shift - 1. */
        if (((uint32_t)factor & ((1u << (layer->shift - 31)) - 1u)) != 0) {
            int32_t c = 0;
            for (; c + 4 <= length; c += 4) {
                y[c] = tvm_ext_dsp_softmax_result(layer, at[tvm_ext_softmax_element(layer, x, c)], factor);
                y[c + 1] = tvm_ext_dsp_softmax_result(layer, at[tvm_ext_softmax_element(layer, x, c + 1)], factor);
                y[c + 2] = tvm_ext_dsp_softmax_result(layer, at[tvm_ext_softmax_element(layer, x, c + 2)], factor);
                y[c + 3] = tvm_ext_dsp_softmax_result(layer, at[tvm_ext_softmax_element(layer, x, c + 3)], factor);
            }
            for (; c < length; ++c) {
                y[c] = tvm_ext_dsp_softmax_result(layer, at[tvm_ext_softmax_element(layer, x, c)], factor);
            }
        } else {
            for (int32_t c = 0; c < length; ++c) {
                const int32_t numerator = (int32_t)at[tvm_ext_softmax_element(layer, x, c)];
                const int32_t value = tvm_ext_requantize(numerator, factor, layer->shift) + layer->zero_point;
                y[c] = (uint8_t)tvm_ext_limited(value, layer->low, layer->high);
            }
        }
    }
}

#endif
