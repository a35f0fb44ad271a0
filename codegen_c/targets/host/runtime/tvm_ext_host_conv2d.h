/* Convolutions and dense layers on quantized images, pixel by pixel, in vectors of 8 accumulators. */
#ifndef TVM_EXT_HOST_CONV2D_H
#define TVM_EXT_HOST_CONV2D_H

#include "tvm_ext_host_product.h"
#include "tvm_ext_host_rows.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    tvm_ext_host_product product;
} tvm_ext_host_conv2d_layer;

/* Computes output rows [row_begin, row_end) of all images from copies of the input rows that their windows read. */
TVM_EXT_INLINE void tvm_ext_host_conv2d(const tvm_ext_host_conv2d_layer *layer, const void *input, void *output,
                                        const void *restrict weights, const int32_t *restrict factors, void *scratch,
                                        int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t channels = layer->input.channels;
    int16_t *const rows = (int16_t *)scratch;
    const int32_t length = tvm_ext_host_row_columns(&layer->input, window) * channels;
    const int32_t turn = layer->product.runs / window->rows;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)];
            const int32_t kept = tvm_ext_host_keep_rows(window, rows, 2 * length, h == row_begin);
            tvm_ext_host_copy_rows(&layer->input, window, rows, input, n, (h * window->row_stride) - window->top, kept);
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                tvm_ext_host_pixel(&layer->product, &rows[w * window->column_stride * channels],
                                   window->column_dilation * channels, turn, length, &row[w * layer->output.pitch],
                                   weights, factors);
            }
        }
    }
}

/* Computes a dense layer. Its vectors of input.channels elements are the pixels of one row and are read in place. */
TVM_EXT_INLINE void tvm_ext_host_vectors(const tvm_ext_host_conv2d_layer *layer, const void *input, void *output,
                                         const void *restrict weights, const int32_t *restrict factors)
{
    for (int32_t w = 0; w < layer->output.columns; ++w) {
        tvm_ext_host_pixel(&layer->product, &((const uint8_t *)input)[w * layer->input.channels], 0, 1, 0,
                           &((uint8_t *)output)[w * layer->output.channels], weights, factors);
    }
}

#endif
