/* Average pooling of quantized images in vectors of 16 accumulators: 16 channels of a pixel. */
#ifndef TVM_EXT_HOST_POOL2D_H
#define TVM_EXT_HOST_POOL2D_H

#include "tvm_ext_host_rescale.h"

typedef struct {
    tvm_ext_image input; /* channels: a multiple of 16 */
    tvm_ext_image output;
    tvm_ext_window window; /* without padding */
    tvm_ext_host_rescale rescale;
} tvm_ext_host_pool2d_layer;

/* Computes output rows [row_begin, row_end) of all images. */
TVM_EXT_INLINE void tvm_ext_host_pool2d(const tvm_ext_host_pool2d_layer *layer, const void *input, void *output,
                                        const int32_t *restrict factors, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t step = window->column_dilation * layer->input.channels;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)];
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                const int32_t left = w * window->column_stride * layer->input.channels;
                for (int32_t k = 0; k < layer->output.channels; k += TVM_EXT_HOST_UNIT) {
                    tvm_ext_i32x16 sums = tvm_ext_host_begin(tvm_ext_host_unit_factors(&layer->rescale, factors, k));
                    for (int32_t r = 0; r < window->rows; ++r) {
                        const int32_t y = (h * window->row_stride) + (r * window->row_dilation);
                        const int32_t first = tvm_ext_row(&layer->input, n, y) + left + k;
                        for (int32_t s = 0; s < window->columns; ++s) {
                            const uint8_t *const tap = &((const uint8_t *)input)[first + (s * step)];
                            sums = tvm_ext_i32x16_add(sums, tvm_ext_i32x16_widen(tap, layer->input.is_unsigned));
                        }
                    }
                    tvm_ext_host_end(&layer->rescale, &row[(w * layer->output.pitch) + k], sums,
                                     tvm_ext_host_unit_factors(&layer->rescale, factors, k), TVM_EXT_HOST_UNIT);
                }
            }
        }
    }
}

#endif
