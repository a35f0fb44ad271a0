/* Weighted sums over time of an SVDF by the DSP extension, four features at a time: the bytes of tvm_ext_svdf_sum. */
#ifndef TVM_EXT_DSP_SVDF_H
#define TVM_EXT_DSP_SVDF_H

#include "tvm_ext_dsp.h"
#include "tvm_ext_dsp_requantize.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_DSP_SVDF_BLOCK 4
/* Steps of an iteration, whose loads have constant offsets. */
#define TVM_EXT_DSP_SVDF_STEPS 4

typedef struct {
    tvm_ext_image window; /* the steps, from the oldest to the newest, of a multiple of four features */
    int32_t rank;         /* features of each output: 1, 2 or 4 */
    tvm_ext_dsp_requantize requantize;
} tvm_ext_dsp_svdf_layer;

/* Four bytes at any address, as an operand of an instruction. */
typedef struct {
    uint8_t bytes[4];
} tvm_ext_dsp_svdf_word;

/* Sums of four adjacent features. They wrap, as in TensorFlow Lite Micro. */
typedef struct {
    int32_t a;
    int32_t b;
    int32_t c;
    int32_t d;
} tvm_ext_dsp_svdf_sums;

/* Returns the sums with the products of one step added to them. On the DSP extension it is one statement, because
 * compilers move the widened bytes of many steps ahead of their products and run out of registers. */
TVM_EXT_INLINE tvm_ext_dsp_svdf_sums tvm_ext_dsp_svdf_add(const tvm_ext_dsp_svdf_layer *layer,
                                                          tvm_ext_dsp_svdf_sums sums, const uint8_t *x,
                                                          const uint8_t *w)
{
#if TVM_EXT_DSP
    uint32_t x0;
    uint32_t w0;
    if (layer->window.is_wide) {
        __asm__("ldr %4, %6\n\t"
                "ldr %5, %7\n\t"
                "smlabb %0, %4, %5, %0\n\t"
                "smlatt %1, %4, %5, %1\n\t"
                "ldr %4, %8\n\t"
                "ldr %5, %9\n\t"
                "smlabb %2, %4, %5, %2\n\t"
                "smlatt %3, %4, %5, %3\n\t"
                : "+r"(sums.a), "+r"(sums.b), "+r"(sums.c), "+r"(sums.d), "=&r"(x0), "=&r"(w0)
                : "m"(*(const tvm_ext_dsp_svdf_word *)x), "m"(*(const tvm_ext_dsp_svdf_word *)w),
                  "m"(*(const tvm_ext_dsp_svdf_word *)&x[4]), "m"(*(const tvm_ext_dsp_svdf_word *)&w[4]));
    } else {
        uint32_t even;
        uint32_t even_w;
        __asm__("ldr %4, %8\n\t"
                "ldr %5, %9\n\t"
                "sxtb16 %6, %4\n\t"
                "sxtb16 %7, %5\n\t"
                "smlabb %0, %6, %7, %0\n\t"
                "smlatt %2, %6, %7, %2\n\t"
                "sxtb16 %4, %4, ror #8\n\t"
                "sxtb16 %5, %5, ror #8\n\t"
                "smlabb %1, %4, %5, %1\n\t"
                "smlatt %3, %4, %5, %3\n\t"
                : "+r"(sums.a), "+r"(sums.b), "+r"(sums.c), "+r"(sums.d), "=&r"(x0), "=&r"(w0), "=&r"(even),
                  "=&r"(even_w)
                : "m"(*(const tvm_ext_dsp_svdf_word *)x), "m"(*(const tvm_ext_dsp_svdf_word *)w));
    }
#else
    const uint32_t x0 = tvm_ext_dsp_load(x);
    const uint32_t w0 = tvm_ext_dsp_load(w);
    if (layer->window.is_wide) {
        const uint32_t x1 = tvm_ext_dsp_load(&x[4]);
        const uint32_t w1 = tvm_ext_dsp_load(&w[4]);
        sums.a = tvm_ext_dsp_low_low(x0, w0, sums.a);
        sums.b = tvm_ext_dsp_high_high(x0, w0, sums.b);
        sums.c = tvm_ext_dsp_low_low(x1, w1, sums.c);
        sums.d = tvm_ext_dsp_high_high(x1, w1, sums.d);
    } else {
        const uint32_t even = tvm_ext_dsp_even_s8(x0);
        const uint32_t odd = tvm_ext_dsp_odd_s8(x0);
        const uint32_t even_w = tvm_ext_dsp_even_s8(w0);
        const uint32_t odd_w = tvm_ext_dsp_odd_s8(w0);
        sums.a = tvm_ext_dsp_low_low(even, even_w, sums.a);
        sums.b = tvm_ext_dsp_low_low(odd, odd_w, sums.b);
        sums.c = tvm_ext_dsp_high_high(even, even_w, sums.c);
        sums.d = tvm_ext_dsp_high_high(odd, odd_w, sums.d);
    }
#endif
    return sums;
}

/* Returns a + b, which wraps. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_svdf_total(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}

/* Returns the output of a sum. Where sums fill all of 32 bits, the high product is that of the sum itself, and half is
 * added after all but one bit of its shift, which is 32 or more: neither overflows. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_svdf_output(const tvm_ext_dsp_requantize *layer, int32_t sum, int32_t multiplier,
                                               int32_t shift)
{
    if (layer->by_high_product) {
        return tvm_ext_dsp_element(layer, sum, multiplier, shift);
    }
    const int32_t high = tvm_ext_multiply_high(sum, multiplier);
    const int32_t half = (high + (high >> 31)) >> (shift - 32); /* halves are rounded away from zero */
    return tvm_ext_dsp_saturate_s8_1(half + (2 * layer->zero_point) + 1);
}

/* Computes the outputs of one batch. weights: [steps][features]. bias: of each output. */
TVM_EXT_INLINE void tvm_ext_dsp_svdf_sum(const tvm_ext_dsp_svdf_layer *layer, const void *window, int8_t *output,
                                         const void *weights, const int32_t *bias, const int32_t *multiplier,
                                         const uint8_t *shift)
{
    const int32_t feature_bytes = layer->window.is_wide ? 2 : 1;
    const int32_t step_bytes = layer->window.channels * feature_bytes;
    const int32_t units = TVM_EXT_DSP_SVDF_BLOCK / layer->rank; /* outputs of a block */
    const int32_t rest = layer->window.rows % TVM_EXT_DSP_SVDF_STEPS;
    const uint8_t *block = (const uint8_t *)window;
    for (int32_t k = 0; k < layer->window.channels / layer->rank; k += units) {
        const uint8_t *x = block;
        const uint8_t *w = (const uint8_t *)weights + (block - (const uint8_t *)window);
        tvm_ext_dsp_svdf_sums sums = {0, 0, 0, 0};
        for (int32_t m = rest; m < layer->window.rows; m += TVM_EXT_DSP_SVDF_STEPS) {
            sums = tvm_ext_dsp_svdf_add(layer, sums, x, w);
            sums = tvm_ext_dsp_svdf_add(layer, sums, &x[step_bytes], &w[step_bytes]);
            sums = tvm_ext_dsp_svdf_add(layer, sums, &x[2 * step_bytes], &w[2 * step_bytes]);
            sums = tvm_ext_dsp_svdf_add(layer, sums, &x[3 * step_bytes], &w[3 * step_bytes]);
            x += TVM_EXT_DSP_SVDF_STEPS * step_bytes;
            w += TVM_EXT_DSP_SVDF_STEPS * step_bytes;
        }
        for (int32_t step = 0; step < rest; ++step) {
            sums = tvm_ext_dsp_svdf_add(layer, sums, &x[step * step_bytes], &w[step * step_bytes]);
        }
        if (layer->rank > 1) {
            sums.a = tvm_ext_dsp_svdf_total(sums.a, sums.b);
            sums.b = tvm_ext_dsp_svdf_total(sums.c, sums.d);
        }
        if (layer->rank > 2) {
            sums.a = tvm_ext_dsp_svdf_total(sums.a, sums.b);
        }
        const int32_t totals[TVM_EXT_DSP_SVDF_BLOCK] = {sums.a, sums.b, sums.c, sums.d};
        for (int32_t j = 0; j < units; ++j) {
            const int32_t total = tvm_ext_dsp_svdf_total(totals[j], bias[k + j]);
            output[k + j] = (int8_t)tvm_ext_dsp_svdf_output(&layer->requantize, total, multiplier[0], shift[0]);
        }
        block += TVM_EXT_DSP_SVDF_BLOCK * feature_bytes;
    }
}

#endif
