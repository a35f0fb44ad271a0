/* Convolution of quantized images in plain C: two neighbouring pixels of the output by four channels at a time, so
 * that a weight is loaded once for both.
 *
 * Layers, weights, and the code for single pixels are those of tvm_ext_qconv2d.h; taps of a row are adjacent. */
#ifndef TVM_EXT_QCONV2D_PAIRS_H
#define TVM_EXT_QCONV2D_PAIRS_H

#include "tvm_ext_qconv2d.h"

/* Adds the products of `length` adjacent elements of two pixels, `step` elements apart, and of a block's weights. */
TVM_EXT_INLINE void tvm_ext_qconv2d_add_pair(int32_t *left, int32_t *right, const tvm_ext_image *image,
                                             const void *elements, int32_t step, int32_t zero_point,
                                             const int8_t *weights, int32_t length, int32_t count)
{
    TVM_EXT_NOT_UNROLLED
    for (int32_t c = 0; c < length; ++c) {
        const int32_t value = tvm_ext_element(image, elements, c) - zero_point;
        const int32_t next = tvm_ext_element(image, elements, c + step) - zero_point;
        tvm_ext_qblock_add_one(left, value, &weights[c * count], count);
        tvm_ext_qblock_add_one(right, next, &weights[c * count], count);
    }
}

/* Computes `count` channels from channel k on of two neighbouring pixels, whose windows have the same taps inside
   the image. */
TVM_EXT_INLINE void tvm_ext_qconv2d_pair(const tvm_ext_qconv2d_layer *layer, const tvm_ext_qconv2d_place *place,
                                         const void *input, void *pixel, const int8_t *restrict weights,
                                         const int32_t *restrict bias, const int32_t *restrict multipliers,
                                         const uint8_t *restrict shifts, int32_t k, int32_t count)
{
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_window *const window = &layer->window;
    const int32_t zero_point = tvm_ext_is_padded(window) ? image->zero_point : 0;
    const int32_t depth = image->channels;
    const int32_t step = window->column_stride * image->pitch;
    const int8_t *const filter = &weights[k * window->rows * window->columns * depth];
    tvm_ext_qsums left;
    tvm_ext_qsums right;
    tvm_ext_qsums_begin(&layer->rescale, &left, bias, k, count);
    tvm_ext_qsums_begin(&layer->rescale, &right, bias, k, count);
    for (int32_t r = place->rows.begin; r < place->rows.end; ++r) {
        const int32_t y = place->top + (r * window->row_dilation);
        const void *const row = tvm_ext_source(image, input, tvm_ext_row(image, place->image, y));
        tvm_ext_qconv2d_add_pair(left.part, right.part, image, tvm_ext_source(image, row, place->left * depth), step,
                                 zero_point, &filter[r * window->columns * depth * count], window->columns * depth,
                                 count);
    }
    tvm_ext_qsums_store(&layer->rescale, &left, &layer->output, pixel, multipliers, shifts, k, count);
    tvm_ext_qsums_store(&layer->rescale, &right, &layer->output,
                        tvm_ext_target(&layer->output, pixel, layer->output.pitch), multipliers, shifts, k, count);
}

/* Computes `count` channels from channel k on of one pixel, or of two neighbouring pixels with whole rows of
   windows. */
TVM_EXT_INLINE void tvm_ext_qconv2d_one_or_two(const tvm_ext_qconv2d_layer *layer, const tvm_ext_qconv2d_place *place,
                                               const void *input, void *pixel, const int8_t *restrict weights,
                                               const int32_t *restrict bias, const int32_t *restrict multipliers,
                                               const uint8_t *restrict shifts, int32_t k, int32_t count, bool is_pair)
{
    if (is_pair) {
        tvm_ext_qconv2d_pair(layer, place, input, pixel, weights, bias, multipliers, shifts, k, count);
    } else {
        tvm_ext_qconv2d_block(layer, place, input, pixel, weights, bias, multipliers, shifts, k, count);
    }
}

/* Computes all channels of one pixel, or of two. */
TVM_EXT_INLINE void tvm_ext_qconv2d_channels(const tvm_ext_qconv2d_layer *layer, const tvm_ext_qconv2d_place *place,
                                             const void *input, void *pixel, const int8_t *restrict weights,
                                             const int32_t *restrict bias, const int32_t *restrict multipliers,
                                             const uint8_t *restrict shifts, bool is_pair)
{
    const int32_t channels = layer->output.channels;
    const int32_t full = channels - (channels % TVM_EXT_QBLOCK);
    for (int32_t k = 0; k < full; k += TVM_EXT_QBLOCK) {
        tvm_ext_qconv2d_one_or_two(layer, place, input, pixel, weights, bias, multipliers, shifts, k, TVM_EXT_QBLOCK,
                                   is_pair);
    }
    if (full < channels) {
        tvm_ext_qconv2d_one_or_two(layer, place, input, pixel, weights, bias, multipliers, shifts, full,
                                   channels - full, is_pair);
    }
}

/* Computes output rows [row_begin, row_end) of all images. */
TVM_EXT_INLINE void tvm_ext_qconv2d_pairs(const tvm_ext_qconv2d_layer *layer, const void *input, void *output,
                                          const int8_t *restrict weights, const int32_t *restrict bias,
                                          const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                          int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t last = layer->input.columns - window->columns - window->column_stride;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            void *const row = tvm_ext_target(&layer->output, output, tvm_ext_row(&layer->output, n, h));
            tvm_ext_qconv2d_place place;
            place.image = n;
            place.top = (h * window->row_stride) - window->top;
            place.rows = tvm_ext_row_taps(window, &layer->input, place.top);
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                void *const pixel = tvm_ext_target(&layer->output, row, w * layer->output.pitch);
                place.left = (w * window->column_stride) - window->left;
                if (place.left >= 0 && place.left <= last) {
                    tvm_ext_qconv2d_channels(layer, &place, input, pixel, weights, bias, multipliers, shifts, true);
                    ++w;
                } else {
                    place.columns = tvm_ext_column_taps(window, &layer->input, place.left);
                    tvm_ext_qconv2d_channels(layer, &place, input, pixel, weights, bias, multipliers, shifts, false);
                }
            }
        }
    }
}

#endif
