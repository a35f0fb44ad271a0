/* Depthwise convolution of quantized images in vectors of 8 accumulators: 16 channels of a pixel, two taps at once. */
#ifndef TVM_EXT_HOST_DEPTHWISE_H
#define TVM_EXT_HOST_DEPTHWISE_H

#include "tvm_ext_host_rescale.h"
#include "tvm_ext_host_rows.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    tvm_ext_host_rescale rescale;
} tvm_ext_host_depthwise_layer;

/* Computes all pixels of an output row from copies of the input rows that its windows read. */
typedef void tvm_ext_host_depthwise_row(const uint8_t *restrict rows, uint8_t *y, const void *restrict weights,
                                        const int32_t *restrict factors);

/* Adds the products of two taps to the accumulators of 16 channels. weights: of both taps, interleaved. */
TVM_EXT_INLINE void tvm_ext_host_add_taps(tvm_ext_host_sums *sums, const uint8_t *first, const uint8_t *second,
                                          bool is_unsigned, tvm_ext_host_weights weights)
{
    const tvm_ext_i16x16 a = tvm_ext_i16x16_widen(first, is_unsigned);
    const tvm_ext_i16x16 b = tvm_ext_i16x16_widen(second, is_unsigned);
    tvm_ext_host_add(sums, tvm_ext_i16x16_low_turns(a, b), tvm_ext_i16x16_high_turns(a, b), weights);
}

/* Computes output rows [row_begin, row_end) of all images. scratch: space for the rows and 15 more elements. */
TVM_EXT_INLINE void tvm_ext_host_depthwise(const tvm_ext_host_depthwise_layer *layer, tvm_ext_host_depthwise_row *row,
                                           const void *input, void *output, const void *restrict weights,
                                           const int32_t *restrict factors, uint8_t *scratch, int32_t row_begin,
                                           int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t length = tvm_ext_host_row_columns(&layer->input, window) * layer->input.channels;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int32_t kept = tvm_ext_host_keep_rows(window, scratch, length, h == row_begin);
            tvm_ext_host_copy_bytes(&layer->input, window, scratch, input, n, (h * window->row_stride) - window->top,
                                    kept);
            row(scratch, &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)], weights, factors);
        }
    }
}

#endif
