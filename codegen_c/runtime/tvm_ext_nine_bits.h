/* Channels of a convolution whose weights need 9 bits, in plain C: unsigned bytes minus a zero point.
 *
 * They are stored as an offset for each channel and bytes that are added to it, so a channel's sum is the sum of
 * products with these bytes, plus the offset times the sum of the elements, which all channels of a pixel share. Up
 * to four channels of one pixel, all of one group, are computed at a time. Weights are packed block after block of
 * channels, [rows of the window][columns][channels of a group][channels of the block] each. Products outside the
 * image are skipped; if windows reach there, the zero point is subtracted from each element, otherwise the bias
 * includes it.
 *
 * A layer with few such channels is computed by another kernel, for int8 weights, which leaves wrong elements in
 * them. These channels are then computed before, because that kernel may overwrite its input, and stored after it. */
#ifndef TVM_EXT_NINE_BITS_H
#define TVM_EXT_NINE_BITS_H

#include <stddef.h>

#include "tvm_ext_layer.h"
#include "tvm_ext_qblock.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t groups;
    int32_t count; /* channels with such weights */
    int32_t block; /* channels computed together, all of one group */
    tvm_ext_rescale rescale;
} tvm_ext_nine_bits_layer;

/* Constants of a layer. channels: index of each channel in the output; NULL if all of its channels are here. */
typedef struct {
    const uint16_t *channels;
    const int8_t *weights;
    const int16_t *offsets;
    const int32_t *bias;
    const int32_t *multipliers;
    const uint8_t *shifts;
} tvm_ext_nine_bits_constants;

/* Returns channel i of those of a layer. */
TVM_EXT_INLINE int32_t tvm_ext_nine_bits_channel(const tvm_ext_nine_bits_constants *constants, int32_t i)
{
    return constants->channels == NULL ? i : (int32_t)constants->channels[i];
}

/* Adds the products of `length` adjacent elements, each minus the zero point, and of the weights of a block. */
TVM_EXT_INLINE void tvm_ext_nine_bits_add(int32_t *sums, int32_t *total, const tvm_ext_image *image,
                                          const void *elements, int32_t zero_point, const int8_t *weights,
                                          int32_t length, int32_t count)
{
    for (int32_t c = 0; c < length; ++c) {
        const int32_t value = tvm_ext_element(image, elements, c) - zero_point;
        *total += value;
        tvm_ext_qblock_add_one(sums, value, &weights[c * count], count);
    }
}

/* Computes sums of `count` channels from channel i on at the pixel whose window begins at row `top` and column
   `left`. */
TVM_EXT_INLINE void tvm_ext_nine_bits_sums(const tvm_ext_nine_bits_layer *layer, const void *input,
                                           const tvm_ext_nine_bits_constants *constants, int32_t *sums, int32_t n,
                                           int32_t top, int32_t left, int32_t i, int32_t count)
{
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_window *const window = &layer->window;
    const tvm_ext_taps rows = tvm_ext_row_taps(window, image, top);
    const tvm_ext_taps columns = tvm_ext_column_taps(window, image, left);
    const int32_t zero_point = tvm_ext_is_padded(window) ? image->zero_point : 0;
    const int32_t depth = image->channels / layer->groups;
    const int32_t per_group = layer->output.channels / layer->groups;
    const int32_t channel = layer->groups > 1 ? tvm_ext_nine_bits_channel(constants, i) / per_group * depth : 0;
    const bool is_one_run = window->column_dilation == 1 && layer->groups == 1;
    const int8_t *const filter = &constants->weights[i * window->rows * window->columns * depth];
    int32_t total = 0;
    for (int32_t j = 0; j < count; ++j) {
        sums[j] = 0;
    }
    for (int32_t r = rows.begin; r < rows.end; ++r) {
        const int32_t row = tvm_ext_row(image, n, top + (r * window->row_dilation)) + channel;
        const int32_t step = is_one_run ? columns.end - columns.begin : 1; /* adjacent taps */
        for (int32_t s = columns.begin; s < columns.end; s += step) {
            const int32_t x = left + (s * window->column_dilation);
            const int32_t first = ((r * window->columns) + s) * depth * count;
            tvm_ext_nine_bits_add(sums, &total, image, tvm_ext_source(image, input, row + (x * image->channels)),
                                  zero_point, &filter[first], step * depth, count);
        }
    }
    for (int32_t j = 0; j < count; ++j) {
        sums[j] += (constants->offsets[i + j] * total) + constants->bias[i + j];
    }
}

/* Computes `count` channels from channel i on; `elements`: the pixel's channels, from the first one on. */
TVM_EXT_INLINE void tvm_ext_nine_bits_block(const tvm_ext_nine_bits_layer *layer, const void *input, uint8_t *elements,
                                            const tvm_ext_nine_bits_constants *constants, int32_t n, int32_t h,
                                            int32_t w, int32_t i, int32_t count)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t top = (h * window->row_stride) - window->top;
    const int32_t left = (w * window->column_stride) - window->left;
    int32_t sums[TVM_EXT_QBLOCK];
    tvm_ext_nine_bits_sums(layer, input, constants, sums, n, top, left, i, count);
    for (int32_t j = 0; j < count; ++j) {
        const int32_t value =
            tvm_ext_rescaled(&layer->rescale, sums[j], constants->multipliers, constants->shifts, i + j);
        elements[i + j] = (uint8_t)value;
    }
}

/* Computes all such channels of one pixel, as adjacent elements. */
TVM_EXT_INLINE void tvm_ext_nine_bits_pixel(const tvm_ext_nine_bits_layer *layer, const void *input, uint8_t *elements,
                                            const tvm_ext_nine_bits_constants *constants, int32_t n, int32_t h,
                                            int32_t w)
{
    const int32_t full = layer->count - (layer->count % layer->block);
    for (int32_t i = 0; i < full; i += layer->block) {
        tvm_ext_nine_bits_block(layer, input, elements, constants, n, h, w, i, layer->block);
    }
    if (full < layer->count) {
        tvm_ext_nine_bits_block(layer, input, elements, constants, n, h, w, full, layer->count - full);
    }
}

/* Computes output rows [row_begin, row_end) of all images, all channels. */
TVM_EXT_INLINE void tvm_ext_nine_bits(const tvm_ext_nine_bits_layer *layer, const void *input, void *output,
                                      const tvm_ext_nine_bits_constants *constants, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_image *const image = &layer->output;
    for (int32_t n = 0; n < image->images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            uint8_t *const row = (uint8_t *)tvm_ext_target(image, output, tvm_ext_row(image, n, h));
            for (int32_t w = 0; w < image->columns; ++w) {
                tvm_ext_nine_bits_pixel(layer, input, &row[w * image->pitch], constants, n, h, w);
            }
        }
    }
}

/* Computes some channels of output rows [row_begin, row_end), stored pixel after pixel. */
TVM_EXT_INLINE void tvm_ext_nine_bits_keep(const tvm_ext_nine_bits_layer *layer, const void *input, uint8_t *kept,
                                           const tvm_ext_nine_bits_constants *constants, int32_t row_begin,
                                           int32_t row_end)
{
    uint8_t *elements = kept;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                tvm_ext_nine_bits_pixel(layer, input, elements, constants, n, h, w);
                elements = &elements[layer->count];
            }
        }
    }
}

/* Copies these elements to the output. */
TVM_EXT_INLINE void tvm_ext_nine_bits_put(const tvm_ext_nine_bits_layer *layer, void *output, const uint8_t *kept,
                                          const tvm_ext_nine_bits_constants *constants, int32_t row_begin,
                                          int32_t row_end)
{
    const tvm_ext_image *const image = &layer->output;
    const uint8_t *elements = kept;
    for (int32_t n = 0; n < image->images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            uint8_t *const row = (uint8_t *)tvm_ext_target(image, output, tvm_ext_row(image, n, h));
            for (int32_t w = 0; w < image->columns; ++w) {
                for (int32_t i = 0; i < layer->count; ++i) {
                    row[(w * image->pitch) + tvm_ext_nine_bits_channel(constants, i)] = elements[i];
                }
                elements = &elements[layer->count];
            }
        }
    }
}

#endif
