/* Convolution of float images: sums of a tile, some pixels of a row by a block of output channels.
 *
 * Products outside the image are skipped, so pixels whose windows reach outside are computed one by one. Weights are
 * packed block after block of channels, [rows of the window][columns][channels of a group][channels of the block]
 * each. Written for single floats; copied for vectors of each length under their names. */
#ifndef TVM_EXT_CONV2D_F32X1_H
#define TVM_EXT_CONV2D_F32X1_H

#include "tvm_ext_conv2d_f32.h"
#include "tvm_ext_layer.h"
#include "tvm_ext_tile_narrow_f32x1.h"

/* Adds the products of `length` elements of pixels and of the weights from `first` on, of the layer's type. */
TVM_EXT_INLINE void tvm_ext_conv2d_f32x1_add(const tvm_ext_conv2d_f32_layer *layer, tvm_ext_f32x1 *sums, const float *x,
                                             int32_t step, const void *restrict weights, int32_t first, int32_t length,
                                             int32_t pixels, int32_t vectors)
{
    if (layer->weights == TVM_EXT_FLOAT32) {
        tvm_ext_tile_f32x1_add(sums, x, step, &((const float *)weights)[first], length, pixels, vectors);
    } else {
        tvm_ext_tile_narrow_f32x1_add(sums, x, step, &((const uint16_t *)weights)[first], layer->weights, length,
                                      pixels, vectors);
    }
}

/* Sums, [pixels][vectors], of the channels from k on of pixels of image n; `at` is the position of the first window. */
TVM_EXT_INLINE void tvm_ext_conv2d_f32x1(const tvm_ext_conv2d_f32_layer *layer, tvm_ext_f32x1 *sums, const float *input,
                                         const void *restrict weights, const float *restrict bias, int32_t n,
                                         tvm_ext_place at, int32_t k, int32_t pixels, int32_t vectors)
{
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_window *const window = &layer->window;
    const int32_t depth = image->channels / layer->groups;
    const int32_t channel = k / (layer->output.channels / layer->groups) * depth;
    const int32_t block = vectors * TVM_EXT_F32X1_LANES;
    const int32_t step = window->column_stride * image->channels;
    const tvm_ext_taps all = {0, window->columns};
    const tvm_ext_taps columns = pixels > 1 ? all : at.columns;
    const int32_t filter = k * window->rows * window->columns * depth;
    tvm_ext_tile_f32x1_start(sums, &bias[k], pixels, vectors);
    for (int32_t r = at.rows.begin; r < at.rows.end; ++r) {
        const float *const row = &input[tvm_ext_row(image, n, at.top + (r * window->row_dilation)) + channel];
        const int32_t taps = filter + (r * window->columns * depth * block);
        if (window->column_dilation == 1 && layer->groups == 1) {
            tvm_ext_conv2d_f32x1_add(layer, sums, &row[(at.left + columns.begin) * depth], step, weights,
                                     taps + (columns.begin * depth * block), (columns.end - columns.begin) * depth,
                                     pixels, vectors);
        } else {
            for (int32_t s = columns.begin; s < columns.end; ++s) {
                const int32_t x = at.left + (s * window->column_dilation);
                tvm_ext_conv2d_f32x1_add(layer, sums, &row[x * image->channels], step, weights,
                                         taps + (s * depth * block), depth, pixels, vectors);
            }
        }
    }
}

#endif
