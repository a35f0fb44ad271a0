/* Depthwise convolution of quantized images: 8 channels of some adjacent output pixels, two taps at once.
 *
 * Weights have 8 bits in the order [units][pairs of taps][channels of the unit][2]. */
#ifndef TVM_EXT_SIMD128_DEPTHWISE_H
#define TVM_EXT_SIMD128_DEPTHWISE_H

#include "tvm_ext_simd128_rescale.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t weight_offset; /* added to all stored weights: not 0 if weights have 9 bits */
    tvm_ext_simd128_rescale rescale;
} tvm_ext_simd128_depthwise_layer;

/* Computes all pixels of an output row from copies of the input rows that its windows read. */
typedef void tvm_ext_simd128_depthwise_row(const int16_t *restrict rows, uint8_t *y, const void *restrict weights,
                                           const int32_t *restrict factors);

TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_i16x8_load(const int16_t *source)
{
    tvm_ext_i16x8 result;
    (void)memcpy(&result, source, sizeof result);
    return result;
}

/* Adds the products of two taps to the sums of 8 channels. weights: of both taps, interleaved. */
TVM_EXT_INLINE void tvm_ext_simd128_add_taps(const tvm_ext_simd128_depthwise_layer *layer, tvm_ext_i32x4 *sums,
                                             const int16_t *first, const int16_t *second, const uint8_t *weights)
{
    const tvm_ext_i16x8 a = tvm_ext_i16x8_load(first);
    const tvm_ext_i16x8 b = tvm_ext_i16x8_load(second);
    sums[0] = tvm_ext_i32x4_add_pairs(sums[0], tvm_ext_i16x8_low_turns(a, b),
                                      tvm_ext_simd128_weights(weights, layer->weight_offset));
    sums[1] = tvm_ext_i32x4_add_pairs(sums[1], tvm_ext_i16x8_high_turns(a, b),
                                      tvm_ext_simd128_weights(&weights[8], layer->weight_offset));
}

/* Computes output rows [row_begin, row_end) of all images. scratch: space for the rows and 15 more numbers. */
TVM_EXT_INLINE void tvm_ext_simd128_depthwise(const tvm_ext_simd128_depthwise_layer *layer,
                                              tvm_ext_simd128_depthwise_row *row, const void *input, void *output,
                                              const void *restrict weights, const int32_t *restrict factors,
                                              uint8_t *scratch, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    int16_t *const rows = (int16_t *)(void *)scratch;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            tvm_ext_simd128_copy_rows(&layer->input, window, rows, input, n, (h * window->row_stride) - window->top);
            row(rows, &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)], weights, factors);
        }
    }
}

#endif
