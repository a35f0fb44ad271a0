/* Convolution of quantized images with RISC-V's vectors: all channels of a few output pixels at a time.
 *
 * Windows of one pixel are read in place. Others are copied to scratch first, with zero points as padding; the initial
 * accumulators correct for the zero points. */
#ifndef TVM_EXT_RVV_CONV2D_H
#define TVM_EXT_RVV_CONV2D_H

#include "tvm_ext_layer.h"
#include "tvm_ext_rvv.h"
#include "tvm_ext_rvv_product.h"
#include "tvm_ext_rvv_requantize.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t pixels; /* computed together: 3 or 6 */
    tvm_ext_rvv_rescale requantize;
} tvm_ext_rvv_conv2d_layer;

/* Returns the elements of a window. */
TVM_EXT_INLINE int32_t tvm_ext_rvv_depth(const tvm_ext_rvv_conv2d_layer *layer)
{
    return layer->window.rows * layer->window.columns * layer->input.channels;
}

/* Copies the window of image n that begins at row `top` and column `left`. */
TVM_EXT_INLINE void tvm_ext_rvv_copy_window(const tvm_ext_rvv_conv2d_layer *layer, uint8_t *copy, const uint8_t *input,
                                            int32_t n, int32_t top, int32_t left)
{
    const tvm_ext_window *const window = &layer->window;
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_taps rows = tvm_ext_row_taps(window, image, top);
    const tvm_ext_taps columns = tvm_ext_column_taps(window, image, left);
    const int32_t row_bytes = window->columns * image->channels;
    if (rows.begin > 0 || columns.begin > 0 || rows.end < window->rows || columns.end < window->columns) {
        tvm_ext_rvv_fill(copy, image->zero_point, window->rows * row_bytes);
    }
    if (columns.begin >= columns.end) {
        return;
    }
    const int32_t runs = window->column_dilation == 1 ? 1 : columns.end - columns.begin;
    const int32_t count = image->channels * (window->column_dilation == 1 ? columns.end - columns.begin : 1);
    const int32_t first = (left + (columns.begin * window->column_dilation)) * image->channels;
    for (int32_t r = rows.begin; r < rows.end; ++r) {
        const uint8_t *const x = &input[tvm_ext_row(image, n, top + (r * window->row_dilation)) + first];
        uint8_t *const y = &copy[(r * row_bytes) + (columns.begin * image->channels)];
        for (int32_t s = 0; s < runs; ++s) {
            tvm_ext_rvv_copy(&y[s * image->channels], &x[s * window->column_dilation * image->channels], count);
        }
    }
}

/* Computes and stores `count` pixels. In place of missing pixels the first one is computed again and not stored. */
TVM_EXT_INLINE void tvm_ext_rvv_conv2d_pixels(const tvm_ext_rvv_conv2d_layer *layer, const uint8_t **windows,
                                              uint8_t *const *elements, int32_t count, const int8_t *weights,
                                              const int32_t *factors, int32_t *sums)
{
    const int32_t channels = layer->output.channels;
    for (int32_t i = count; i < layer->pixels; ++i) {
        windows[i] = windows[0];
    }
    const tvm_ext_rvv_product_task task = {
        sums, windows, weights, &factors[TVM_EXT_RVV_STARTS * channels], tvm_ext_rvv_depth(layer), channels};
    tvm_ext_rvv_product(layer->pixels, layer->input.is_unsigned, &task);
    for (int32_t i = 0; i < count; ++i) {
        tvm_ext_rvv_requantize(&layer->requantize, elements[i], &sums[i * channels], factors, channels, channels);
    }
}

/* Computes output rows [row_begin, row_end) of all images. scratch: accumulators, then copies of the windows. */
TVM_EXT_INLINE void tvm_ext_rvv_conv2d(const tvm_ext_rvv_conv2d_layer *layer, const void *input, void *output,
                                       const int8_t *weights, const int32_t *factors, void *scratch, int32_t row_begin,
                                       int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    const bool is_in_place = window->rows == 1 && window->columns == 1 && !tvm_ext_is_padded(window);
    int32_t *const sums = (int32_t *)scratch;
    uint8_t *const copies = (uint8_t *)&sums[layer->pixels * layer->output.channels];
    const uint8_t *windows[TVM_EXT_RVV_MOST_PIXELS];
    uint8_t *elements[TVM_EXT_RVV_MOST_PIXELS];
    int32_t lane = 0;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int32_t top = (h * window->row_stride) - window->top;
            const uint8_t *const line =
                is_in_place ? &((const uint8_t *)input)[tvm_ext_row(&layer->input, n, top)] : NULL;
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)];
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                const int32_t left = (w * window->column_stride) - window->left;
                if (is_in_place) {
                    windows[lane] = &line[left * layer->input.channels];
                } else {
                    uint8_t *const copy = &copies[lane * tvm_ext_rvv_depth(layer)];
                    tvm_ext_rvv_copy_window(layer, copy, (const uint8_t *)input, n, top, left);
                    windows[lane] = copy;
                }
                elements[lane] = &row[w * layer->output.pitch];
                ++lane;
                if (lane == layer->pixels) {
                    tvm_ext_rvv_conv2d_pixels(layer, windows, elements, lane, weights, factors, sums);
                    lane = 0;
                }
            }
        }
    }
    if (lane > 0) {
        tvm_ext_rvv_conv2d_pixels(layer, windows, elements, lane, weights, factors, sums);
    }
}

#endif
