/* Convolution of quantized images with RISC-V's vectors: all channels of a few output pixels at a time.
 *
 * Windows of one pixel are read in place. Others are copied to scratch first, with zero points as padding; the initial
 * accumulators correct for the zero points. */
#ifndef TVM_EXT_RVV_CONV2D_H
#define TVM_EXT_RVV_CONV2D_H

#include "tvm_ext_layer.h"
#include "tvm_ext_rvv.h"
#include "tvm_ext_rvv_pairs.h"
#include "tvm_ext_rvv_product.h"
#include "tvm_ext_rvv_requantize.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t pixels; /* computed together: 3 or 6, or in pairs of taps 2, 5 or 6 */
    bool has_pairs; /* taps are multiplied in pairs (tvm_ext_rvv_pairs.h) */
    bool is_staged; /* all channels of a pixel are computed before one is stored, because the input may lie there */
    tvm_ext_rvv_rescale requantize;
} tvm_ext_rvv_conv2d_layer;

/* Returns the elements of a window. */
TVM_EXT_INLINE int32_t tvm_ext_rvv_depth(const tvm_ext_rvv_conv2d_layer *layer)
{
    return layer->window.rows * layer->window.columns * layer->input.channels;
}

/* Returns the bytes from one copied window to the next: words of four elements are read in pairs of taps. */
TVM_EXT_INLINE int32_t tvm_ext_rvv_copy_pitch(const tvm_ext_rvv_conv2d_layer *layer)
{
    const int32_t depth = tvm_ext_rvv_depth(layer);
    return layer->has_pairs ? ((depth + 3) / 4) * 4 : depth;
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

/* Computes and stores `count` pixels by pairs of taps. rows: space for the results of all pixels, if they are staged.
 * In place of missing pixels the first one is computed and stored again. */
TVM_EXT_INLINE void tvm_ext_rvv_conv2d_in_pairs(const tvm_ext_rvv_conv2d_layer *layer, const uint8_t **windows,
                                                uint8_t **elements, int32_t count, const int8_t *weights,
                                                const int32_t *factors, int32_t *sums, uint8_t *rows, bool rounds_twice)
{
    const int32_t channels = layer->output.channels;
    uint8_t *staged[TVM_EXT_RVV_MOST_PIXELS];
    for (int32_t i = count; i < layer->pixels; ++i) {
        windows[i] = windows[0];
        elements[i] = elements[0];
    }
    for (int32_t i = 0; i < layer->pixels; ++i) {
        staged[i] = &rows[i * channels];
    }
    const tvm_ext_rvv_pairs_task task = {count,
                                         windows,
                                         layer->is_staged ? staged : elements,
                                         weights,
                                         factors,
                                         channels,
                                         tvm_ext_rvv_depth(layer),
                                         channels,
                                         &layer->requantize,
                                         sums};
    tvm_ext_rvv_pairs(layer->pixels, rounds_twice, &task);
    if (layer->is_staged) {
        for (int32_t i = 0; i < count; ++i) {
            tvm_ext_rvv_copy(elements[i], staged[i], channels);
        }
    }
}

/* Computes and stores `count` pixels. In place of missing pixels the first one is computed again and not stored. */
TVM_EXT_INLINE void tvm_ext_rvv_conv2d_pixels(const tvm_ext_rvv_conv2d_layer *layer, const uint8_t **windows,
                                              uint8_t **elements, int32_t count, const int8_t *weights,
                                              const int32_t *factors, int32_t *sums, uint8_t *rows,
                                              tvm_ext_rvv_method method)
{
    const int32_t channels = layer->output.channels;
    if (method != TVM_EXT_RVV_SINGLE_TAPS) {
        tvm_ext_rvv_conv2d_in_pairs(layer, windows, elements, count, weights, factors, sums, rows,
                                    method == TVM_EXT_RVV_PAIRS_TWICE);
        return;
    }
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

/* Computes output rows [row_begin, row_end) of all images by one method. is_in_place: windows are single pixels of
 * the image. */
TVM_EXT_INLINE void tvm_ext_rvv_conv2d_rows(const tvm_ext_rvv_conv2d_layer *layer, const void *input, void *output,
                                            const int8_t *weights, const int32_t *factors, void *scratch,
                                            int32_t row_begin, int32_t row_end, tvm_ext_rvv_method method,
                                            bool is_in_place)
{
    const tvm_ext_window *const window = &layer->window;
    int32_t *const sums = (int32_t *)scratch;
    uint8_t *const copies =
        (uint8_t *)&sums[(method == TVM_EXT_RVV_SINGLE_TAPS ? layer->pixels : 1) * layer->output.channels];
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
                    uint8_t *const copy = &copies[lane * tvm_ext_rvv_copy_pitch(layer)];
                    tvm_ext_rvv_copy_window(layer, copy, (const uint8_t *)input, n, top, left);
                    windows[lane] = copy;
                }
                elements[lane] = &row[w * layer->output.pitch];
                ++lane;
                if (lane == layer->pixels) {
                    tvm_ext_rvv_conv2d_pixels(layer, windows, elements, lane, weights, factors, sums, copies, method);
                    lane = 0;
                }
            }
        }
    }
    if (lane > 0) {
        tvm_ext_rvv_conv2d_pixels(layer, windows, elements, lane, weights, factors, sums, copies, method);
    }
}

/* Convolutions of single pixels, whose loops exist once for all layers. */
#define TVM_EXT_RVV_DEFINE_CONV2D(NAME, METHOD)                                                                      \
    TVM_EXT_RVV_SHARED void NAME(const tvm_ext_rvv_conv2d_layer *layer, const void *input, void *output,             \
                                 const int8_t *weights, const int32_t *factors, void *scratch, int32_t row_begin,    \
                                 int32_t row_end)                                                                    \
    {                                                                                                                \
        tvm_ext_rvv_conv2d_rows(layer, input, output, weights, factors, scratch, row_begin, row_end, METHOD, true);  \
    }
TVM_EXT_RVV_DEFINE_CONV2D(tvm_ext_rvv_conv2d_single, TVM_EXT_RVV_SINGLE_TAPS)
TVM_EXT_RVV_DEFINE_CONV2D(tvm_ext_rvv_conv2d_once, TVM_EXT_RVV_PAIRS_ONCE)
TVM_EXT_RVV_DEFINE_CONV2D(tvm_ext_rvv_conv2d_twice, TVM_EXT_RVV_PAIRS_TWICE)

/* Computes output rows [row_begin, row_end) of all images. scratch: accumulators of the pixels, or of one pixel if taps
 * are multiplied in pairs; then copies of the windows, or results that are staged. */
TVM_EXT_INLINE void tvm_ext_rvv_conv2d(const tvm_ext_rvv_conv2d_layer *layer, const void *input, void *output,
                                       const int8_t *weights, const int32_t *factors, void *scratch, int32_t row_begin,
                                       int32_t row_end)
{
    const bool is_in_place =
        layer->window.rows == 1 && layer->window.columns == 1 && !tvm_ext_is_padded(&layer->window);
    if (!is_in_place) {
        const tvm_ext_rvv_method pairs =
            layer->requantize.rounds_twice ? TVM_EXT_RVV_PAIRS_TWICE : TVM_EXT_RVV_PAIRS_ONCE;
        tvm_ext_rvv_conv2d_rows(layer, input, output, weights, factors, scratch, row_begin, row_end,
                                layer->has_pairs ? pairs : TVM_EXT_RVV_SINGLE_TAPS, false);
    } else if (!layer->has_pairs) {
        tvm_ext_rvv_conv2d_single(layer, input, output, weights, factors, scratch, row_begin, row_end);
    } else if (layer->requantize.rounds_twice) {
        tvm_ext_rvv_conv2d_twice(layer, input, output, weights, factors, scratch, row_begin, row_end);
    } else {
        tvm_ext_rvv_conv2d_once(layer, input, output, weights, factors, scratch, row_begin, row_end);
    }
}

#endif
