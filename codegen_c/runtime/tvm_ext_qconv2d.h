/* Convolution of quantized images in plain C: one output pixel by up to four channels at a time.
 *
 * Products outside the image are skipped. If windows reach there, the zero point is subtracted from each element;
 * otherwise a bias includes its part of the channel's sums. Weights are packed block after block of channels, [rows
 * of the window][columns][channels of a group][channels of the block] each; weights of 4 bits are packed two to a
 * byte, and each block begins at a byte. */
#ifndef TVM_EXT_QCONV2D_H
#define TVM_EXT_QCONV2D_H

#include "tvm_ext_layer.h"
#include "tvm_ext_qblock.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t groups;
    int32_t block;  /* channels computed together, all of one group */
    bool is_packed; /* weights of 4 bits, otherwise of 8 */
    tvm_ext_rescale rescale;
} tvm_ext_qconv2d_layer;

/* A pixel of the output: the first row and column of its window, and its taps inside the image. */
typedef struct {
    int32_t image;
    int32_t top;
    int32_t left;
    tvm_ext_taps rows;
    tvm_ext_taps columns;
} tvm_ext_qconv2d_place;

/* Adds the products of `length` adjacent elements and of the weights of a block, from its weight `first` on. */
TVM_EXT_INLINE void tvm_ext_qconv2d_add(const tvm_ext_qconv2d_layer *layer, tvm_ext_qsums *sums, const void *elements,
                                        int32_t zero_point, const int8_t *filter, int32_t first, int32_t length,
                                        int32_t count, bool is_rolled)
{
    if (layer->is_packed) {
        tvm_ext_qblock_add_nibbles(sums->part, &layer->input, elements, zero_point, filter, first, length, count);
    } else {
        tvm_ext_qsums_add(&layer->rescale, sums, &layer->input, elements, zero_point, &filter[first], length, count,
                          is_rolled);
    }
}

/* Computes `count` channels of one pixel from channel k on. */
TVM_EXT_INLINE void tvm_ext_qconv2d_block(const tvm_ext_qconv2d_layer *layer, const tvm_ext_qconv2d_place *place,
                                          const void *input, void *pixel, const int8_t *restrict weights,
                                          const void *restrict bias, const int32_t *restrict multipliers,
                                          const uint8_t *restrict shifts, int32_t k, int32_t count)
{
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_window *const window = &layer->window;
    const int32_t zero_point = tvm_ext_is_padded(window) ? image->zero_point : 0;
    const int32_t depth = image->channels / layer->groups;
    const int32_t channel = k / (layer->output.channels / layer->groups) * depth;
    const bool is_one_run = window->column_dilation == 1 && layer->groups == 1;
    const bool is_rolled = !tvm_ext_is_padded(window) && window->columns * depth >= TVM_EXT_QBLOCK_ROLLED;
    const int32_t taps = window->rows * window->columns * depth;
    const int8_t *const filter =
        &weights[layer->is_packed ? k / layer->block * (((taps * layer->block) + 1) / 2) : k * taps];
    tvm_ext_qsums sums;
    tvm_ext_qsums_begin(&layer->rescale, &sums, bias, k, count);
    for (int32_t r = place->rows.begin; r < place->rows.end; ++r) {
        const int32_t y = place->top + (r * window->row_dilation);
        const void *const row = tvm_ext_source(image, input, tvm_ext_row(image, place->image, y) + channel);
        if (is_one_run) {
            const int32_t length = (place->columns.end - place->columns.begin) * depth;
            const int32_t first = (place->left + place->columns.begin) * depth;
            const int32_t weight = ((r * window->columns) + place->columns.begin) * depth * count;
            tvm_ext_qconv2d_add(layer, &sums, tvm_ext_source(image, row, first), zero_point, filter, weight, length,
                                count, is_rolled);
        } else {
            for (int32_t s = place->columns.begin; s < place->columns.end; ++s) {
                const int32_t x = place->left + (s * window->column_dilation);
                tvm_ext_qconv2d_add(layer, &sums, tvm_ext_source(image, row, x * image->channels), zero_point, filter,
                                    ((r * window->columns) + s) * depth * count, depth, count, false);
            }
        }
    }
    tvm_ext_qsums_store(&layer->rescale, &sums, &layer->output, pixel, multipliers, shifts, k, count);
}

/* Computes output rows [row_begin, row_end) of all images. */
TVM_EXT_INLINE void tvm_ext_qconv2d(const tvm_ext_qconv2d_layer *layer, const void *input, void *output,
                                    const int8_t *restrict weights, const void *restrict bias,
                                    const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                    int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t channels = layer->output.channels;
    const int32_t full = channels - (channels % layer->block);
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
                place.columns = tvm_ext_column_taps(window, &layer->input, place.left);
                for (int32_t k = 0; k < full; k += layer->block) {
                    tvm_ext_qconv2d_block(layer, &place, input, pixel, weights, bias, multipliers, shifts, k,
                                          layer->block);
                }
                if (full < channels) {
                    tvm_ext_qconv2d_block(layer, &place, input, pixel, weights, bias, multipliers, shifts, full,
                                          channels - full);
                }
            }
        }
    }
}

#endif
