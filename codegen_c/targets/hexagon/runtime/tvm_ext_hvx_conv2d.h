/* Convolution of quantized images with HVX: all channels of four output pixels at a time, or of a single one.
 *
 * Windows of one pixel are read in place if pixels begin at multiples of 8. Others are copied to scratch first, with
 * zero points as padding; the initial accumulators correct for the zero points. */
#ifndef TVM_EXT_HVX_CONV2D_H
#define TVM_EXT_HVX_CONV2D_H

#include "tvm_ext_hvx.h"
#include "tvm_ext_hvx_product.h"
#include "tvm_ext_hvx_requantize.h"
#include "tvm_ext_layer.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t pixels; /* computed together: 4 or 1 */
    int32_t depth;  /* elements of a window, rounded up to a multiple of 8 */
    int32_t groups; /* groups of 32 output channels */
    tvm_ext_hvx_rescale requantize;
} tvm_ext_hvx_conv2d_layer;

/* Copies `count` > 0 bytes. */
TVM_EXT_INLINE void tvm_ext_hvx_copy(uint8_t *target, const uint8_t *source, int32_t count)
{
    for (; count > TVM_EXT_HVX_BYTES; count -= TVM_EXT_HVX_BYTES) {
        tvm_ext_hvx_store(target, tvm_ext_hvx_load(source));
        target += TVM_EXT_HVX_BYTES;
        source += TVM_EXT_HVX_BYTES;
    }
    tvm_ext_hvx_store_first(target, tvm_ext_hvx_load_first(source, count), count);
}

/* Fills at least `count` bytes with a value: a multiple of 128 bytes. */
TVM_EXT_INLINE void tvm_ext_hvx_fill(uint8_t *target, int32_t value, int32_t count)
{
    const tvm_ext_hvx bytes = tvm_ext_hvx_bytes(value);
    for (int32_t i = 0; i < count; i += TVM_EXT_HVX_BYTES) {
        tvm_ext_hvx_store(&target[i], bytes);
    }
}

/* Copies the window of image n that begins at row `top` and column `left`. */
TVM_EXT_INLINE void tvm_ext_hvx_copy_window(const tvm_ext_hvx_conv2d_layer *layer, uint8_t *copy, const uint8_t *input,
                                            int32_t n, int32_t top, int32_t left)
{
    const tvm_ext_window *const window = &layer->window;
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_taps rows = tvm_ext_row_taps(window, image, top);
    const tvm_ext_taps columns = tvm_ext_column_taps(window, image, left);
    const int32_t row_bytes = window->columns * image->channels;
    if (rows.begin > 0 || columns.begin > 0 || rows.end < window->rows || columns.end < window->columns) {
        tvm_ext_hvx_fill(copy, image->zero_point, layer->depth);
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
            tvm_ext_hvx_copy(&y[s * image->channels], &x[s * window->column_dilation * image->channels], count);
        }
    }
}

/* Computes and stores `count` pixels. In place of missing pixels the first one is computed again and not stored. */
TVM_EXT_INLINE void tvm_ext_hvx_conv2d_pixels(const tvm_ext_hvx_conv2d_layer *layer, const uint8_t **windows,
                                              uint8_t *const *elements, int32_t count, const uint8_t *weights,
                                              const int32_t *factors, int32_t *sums)
{
    const int32_t channels = layer->output.channels;
    for (int32_t i = count; i < layer->pixels; ++i) {
        windows[i] = windows[0];
    }
    const tvm_ext_hvx_product_task task = {sums, windows, weights, factors, layer->depth, layer->groups};
    tvm_ext_hvx_product(&task, layer->pixels, layer->input.is_unsigned);
    const int32_t lanes = layer->groups * TVM_EXT_HVX_WORDS;
    /* Adjacent pixels without gaps are one run of channels. */
    if (lanes == channels && elements[count - 1] == &elements[0][(count - 1) * channels]) {
        tvm_ext_hvx_requantize(&layer->requantize, elements[0], sums, factors, layer->groups, count * channels);
        return;
    }
    /* If each pixel has one vector of accumulators, those of four pixels are requantized together. */
    if (layer->groups == 1 && layer->pixels == TVM_EXT_HVX_PIXELS) {
        const tvm_ext_hvx four = tvm_ext_hvx_elements(&layer->requantize, tvm_ext_hvx_load_four(sums), factors, 0, 1);
        for (int32_t i = 0; i < count; ++i) {
            tvm_ext_hvx_store_first(elements[i], tvm_ext_hvx_from_byte(four, i * TVM_EXT_HVX_WORDS), channels);
        }
        return;
    }
    for (int32_t i = 0; i < count; ++i) {
        tvm_ext_hvx_requantize(&layer->requantize, elements[i], &sums[i * lanes], factors, layer->groups, channels);
    }
}

/* Computes output rows [row_begin, row_end) of all images. scratch: accumulators, then copies of the windows; both end
 * with as many unused bytes as a vector may reach beyond them. */
TVM_EXT_INLINE void tvm_ext_hvx_conv2d(const tvm_ext_hvx_conv2d_layer *layer, const void *input, void *output,
                                       const uint8_t *weights, const int32_t *factors, void *scratch, int32_t row_begin,
                                       int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t channels = layer->input.channels;
    int32_t *const sums = (int32_t *)scratch;
    uint8_t *const copies = (uint8_t *)&sums[((layer->pixels * layer->groups) + 3) * TVM_EXT_HVX_WORDS];
    const bool is_in_place = window->rows == 1 && window->columns == 1 && !tvm_ext_is_padded(window) &&
                             channels % TVM_EXT_HVX_EIGHT == 0 && (uintptr_t)input % TVM_EXT_HVX_EIGHT == 0 &&
                             tvm_ext_row_elements(&layer->input) % TVM_EXT_HVX_EIGHT == 0;
    const uint8_t *windows[TVM_EXT_HVX_PIXELS];
    uint8_t *elements[TVM_EXT_HVX_PIXELS];
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
                    windows[lane] = &line[left * channels];
                } else {
                    uint8_t *const copy = &copies[lane * layer->depth];
                    tvm_ext_hvx_copy_window(layer, copy, (const uint8_t *)input, n, top, left);
                    windows[lane] = copy;
                }
                elements[lane] = &row[w * layer->output.pitch];
                ++lane;
                if (lane == layer->pixels) {
                    tvm_ext_hvx_conv2d_pixels(layer, windows, elements, lane, weights, factors, sums);
                    lane = 0;
                }
            }
        }
    }
    if (lane > 0) {
        tvm_ext_hvx_conv2d_pixels(layer, windows, elements, lane, weights, factors, sums);
    }
}

#endif
