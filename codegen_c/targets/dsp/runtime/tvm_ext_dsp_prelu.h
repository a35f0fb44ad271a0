/* PReLU of quantized tensors by the DSP extension: four elements at a time, in pairs of 16 bits. */
#ifndef TVM_EXT_DSP_PRELU_H
#define TVM_EXT_DSP_PRELU_H

#include "tvm_ext_dsp.h"
#include "tvm_ext_layer.h"

/* A result is (start + (x - zero point) * factor) >> shift, saturated to the output's type. */
typedef struct {
    int32_t repeats;
    int32_t period; /* number of factors below zero, a multiple of four */
    bool is_unsigned;
    uint32_t zero_points; /* the zero point of the input, in both halves */
    uint32_t above;       /* the factor above zero, as a pair */
    int32_t start; /* with 128 in steps of the output where that is signed: results are saturated to 0 to 255 */
    int32_t shift;
    uint32_t flipped; /* the highest bits of four results where the output is signed */
} tvm_ext_dsp_prelu_layer;

/* Returns the factors of a pair of elements minus their zero point: halves of `above`, or of `below` for halves
 * below zero. */
static inline uint32_t tvm_ext_dsp_factors(uint32_t elements, uint32_t zero_points, uint32_t above, uint32_t below,
                                           uint32_t *distances)
{
#if TVM_EXT_DSP
    uint32_t factors;
    __asm__("ssub16 %0, %2, %3\n\tsel %1, %4, %5"
            : "=&r"(*distances), "=r"(factors)
            : "r"(elements), "r"(zero_points), "r"(above), "r"(below)
            : "cc");
    return factors;
#else
    *distances = tvm_ext_dsp_subtract_pair(elements, zero_points);
    const uint32_t low = tvm_ext_dsp_low(*distances) < 0 ? below : above;
    const uint32_t high = tvm_ext_dsp_high(*distances) < 0 ? below : above;
    return (low & 0xffffu) | (high & 0xffff0000u);
#endif
}

/* Returns a pair of numbers of 16 bits, saturated to 0 to 255. */
static inline uint32_t tvm_ext_dsp_saturated_u8(uint32_t pair)
{
#if TVM_EXT_DSP
    uint32_t result;
    __asm__("usat16 %0, #8, %1" : "=r"(result) : "r"(pair));
    return result;
#else
    const int32_t low = tvm_ext_dsp_low(pair);
    const int32_t high = tvm_ext_dsp_high(pair);
    const uint32_t first = low < 0 ? 0u : low > 255 ? 255u : (uint32_t)low;
    const uint32_t second = high < 0 ? 0u : high > 255 ? 255u : (uint32_t)high;
    return first | second << 16;
#endif
}

/* Returns two results from 0 to 255 as a pair. */
static inline uint32_t tvm_ext_dsp_prelu_pair(const tvm_ext_dsp_prelu_layer *layer, uint32_t elements, uint32_t below)
{
    uint32_t distances;
    const uint32_t factors = tvm_ext_dsp_factors(elements, layer->zero_points, layer->above, below, &distances);
    const int32_t low = tvm_ext_dsp_low_low(distances, factors, layer->start) >> layer->shift;
    const int32_t high = tvm_ext_dsp_high_high(distances, factors, layer->start) >> layer->shift;
    return tvm_ext_dsp_saturated_u8(tvm_ext_dsp_lows((uint32_t)low, (uint32_t)high));
}

/* Computes four adjacent elements. of_even, of_odd: their factors below zero, as pairs. */
static inline void tvm_ext_dsp_prelu_four(const tvm_ext_dsp_prelu_layer *layer, const uint8_t *x, uint8_t *y,
                                          uint32_t of_even, uint32_t of_odd)
{
    const uint32_t word = tvm_ext_dsp_load(x);
    const uint32_t even = layer->is_unsigned ? tvm_ext_dsp_even_u8(word) : tvm_ext_dsp_even_s8(word);
    const uint32_t odd = layer->is_unsigned ? tvm_ext_dsp_odd_u8(word) : tvm_ext_dsp_odd_s8(word);
    const uint32_t results = tvm_ext_dsp_prelu_pair(layer, even, of_even) | tvm_ext_dsp_prelu_pair(layer, odd, of_odd)
                                                                                << 8;
    tvm_ext_dsp_store(y, results ^ layer->flipped);
}

/* Computes all elements: those of four factors in all runs, then the next four, so that factors stay in registers.
 * below: the factors of elements 0, 2, 1 and 3 of each four. */
TVM_EXT_INLINE void tvm_ext_dsp_prelu(const tvm_ext_dsp_prelu_layer *layer, const void *input, void *output,
                                      const int16_t *restrict below)
{
    const int32_t period = layer->period;
    for (int32_t i = 0; i < period; i += 4) {
        const uint8_t *x = &((const uint8_t *)input)[i];
        uint8_t *y = &((uint8_t *)output)[i];
        const uint32_t of_even = tvm_ext_dsp_load(&below[i]);
        const uint32_t of_odd = tvm_ext_dsp_load(&below[i + 2]);
        for (int32_t n = 0; n < layer->repeats / 2; ++n) {
            tvm_ext_dsp_prelu_four(layer, x, y, of_even, of_odd);
            tvm_ext_dsp_prelu_four(layer, &x[period], &y[period], of_even, of_odd);
            x += 2 * period;
            y += 2 * period;
        }
        if (layer->repeats % 2 != 0) {
            tvm_ext_dsp_prelu_four(layer, x, y, of_even, of_odd);
        }
    }
}

#endif
