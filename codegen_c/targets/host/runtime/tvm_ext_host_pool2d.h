/* Average pooling of quantized images in vectors of 8 accumulators: 16 channels of a pixel, two taps at once. */
#ifndef TVM_EXT_HOST_POOL2D_H
#define TVM_EXT_HOST_POOL2D_H

#include "tvm_ext_host_rescale.h"

typedef struct {
    tvm_ext_image input; /* channels: a multiple of 16 */
    tvm_ext_image output;
    tvm_ext_window window; /* without padding */
    tvm_ext_host_rescale rescale;
} tvm_ext_host_pool2d_layer;

/* Adds the elements of a row of taps to the accumulators of 16 channels. */
TVM_EXT_INLINE void tvm_ext_host_pool2d_add(const tvm_ext_host_pool2d_layer *layer, tvm_ext_host_sums *sums,
                                            const uint8_t *source)
{
    const tvm_ext_host_weights ones = {tvm_ext_i16x16_splat(1), tvm_ext_i16x16_splat(1)};
    const int32_t step = layer->window.column_dilation * layer->input.channels;
    for (int32_t s = 0; s < layer->window.columns; s += 2) {
        const bool is_pair = s + 1 < layer->window.columns;
        const tvm_ext_i16x16 a = tvm_ext_i16x16_widen(&source[s * step], layer->input.is_unsigned);
        const tvm_ext_i16x16 b =
            is_pair ? tvm_ext_i16x16_widen(&source[(s + 1) * step], layer->input.is_unsigned) : tvm_ext_i16x16_splat(0);
        tvm_ext_host_add(sums, tvm_ext_i16x16_low_turns(a, b), tvm_ext_i16x16_high_turns(a, b), ones);
    }
}

/* Computes output rows [row_begin, row_end) of all images. */
TVM_EXT_INLINE void tvm_ext_host_pool2d(const tvm_ext_host_pool2d_layer *layer, const void *input, void *output,
                                        const int32_t *restrict factors, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)];
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                const int32_t left = w * window->column_stride * layer->input.channels;
                for (int32_t k = 0; k < layer->output.channels; k += TVM_EXT_HOST_UNIT) {
                    tvm_ext_host_sums sums = tvm_ext_host_begin(&factors[k * TVM_EXT_HOST_NUMBERS]);
                    for (int32_t r = 0; r < window->rows; ++r) {
                        const int32_t y = (h * window->row_stride) + (r * window->row_dilation);
                        const int32_t first = tvm_ext_row(&layer->input, n, y) + left + k;
                        tvm_ext_host_pool2d_add(layer, &sums, &((const uint8_t *)input)[first]);
                    }
                    tvm_ext_host_end(&layer->rescale, &row[(w * layer->output.pitch) + k], sums,
                                     &factors[k * TVM_EXT_HOST_NUMBERS], TVM_EXT_HOST_UNIT);
                }
            }
        }
    }
}

#endif
