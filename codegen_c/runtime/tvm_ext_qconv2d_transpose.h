/* Transposed convolution of quantized images in plain C: one output pixel by up to four channels at a time.
 *
 * Input element i contributes to output elements (i * stride) + r - padding for the taps r; so output element h sums
 * the taps for which h + padding - r is a multiple of the stride. Weights are packed block after block of channels,
 * [rows of the window][columns][channels of the input][channels of the block] each. From weights that need 9 bits,
 * an offset for each channel is subtracted, which is multiplied by the sum of the elements. */
#ifndef TVM_EXT_QCONV2D_TRANSPOSE_H
#define TVM_EXT_QCONV2D_TRANSPOSE_H

#include <stddef.h>

#include "tvm_ext_layer.h"
#include "tvm_ext_qblock.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    tvm_ext_rescale rescale;
} tvm_ext_qconv2d_transpose_layer;

/* Computes `count` channels from channel k on of the pixel at row h and column w of image n. */
TVM_EXT_INLINE void tvm_ext_qconv2d_transpose_block(const tvm_ext_qconv2d_transpose_layer *layer, const void *input,
                                                    void *pixel, const int8_t *restrict weights,
                                                    const int16_t *restrict offsets, const void *restrict bias,
                                                    const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                                    int32_t n, int32_t h, int32_t w, int32_t k, int32_t count)
{
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_window *const window = &layer->window;
    const int32_t depth = image->channels;
    const int32_t bottom = h + window->top;
    const int32_t right = w + window->left;
    const int8_t *const filter = &weights[k * window->rows * window->columns * depth];
    int32_t total = 0; /* of the elements, if there are offsets */
    tvm_ext_qsums sums;
    tvm_ext_qsums_begin(&layer->rescale, &sums, bias, k, count);
    for (int32_t r = bottom % window->row_stride; r < window->rows; r += window->row_stride) {
        const int32_t i = (bottom - r) / window->row_stride;
        if (i < 0 || i >= image->rows) {
            continue;
        }
        for (int32_t s = right % window->column_stride; s < window->columns; s += window->column_stride) {
            const int32_t j = (right - s) / window->column_stride;
            if (j < 0 || j >= image->columns) {
                continue;
            }
            const void *const elements = tvm_ext_source(image, input, tvm_ext_row(image, n, i) + (j * depth));
            tvm_ext_qsums_add(&layer->rescale, &sums, image, elements, image->zero_point,
                              &filter[((r * window->columns) + s) * depth * count], depth, count, false);
            for (int32_t c = 0; offsets != NULL && c < depth; ++c) {
                total += tvm_ext_element(image, elements, c) - image->zero_point;
            }
        }
    }
    for (int32_t c = 0; offsets != NULL && c < count; ++c) {
        sums.part[c] += offsets[k + c] * total;
    }
    tvm_ext_qsums_store(&layer->rescale, &sums, &layer->output, pixel, multipliers, shifts, k, count);
}

/* Computes output rows [row_begin, row_end) of all images. */
TVM_EXT_INLINE void tvm_ext_qconv2d_transpose(const tvm_ext_qconv2d_transpose_layer *layer, const void *input,
                                              void *output, const int8_t *restrict weights,
                                              const int16_t *restrict offsets, const void *restrict bias,
                                              const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                              int32_t row_begin, int32_t row_end)
{
    const int32_t channels = layer->output.channels;
    const int32_t full = channels - (channels % TVM_EXT_QBLOCK);
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            void *const row = tvm_ext_target(&layer->output, output, tvm_ext_row(&layer->output, n, h));
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                void *const pixel = tvm_ext_target(&layer->output, row, w * layer->output.pitch);
                for (int32_t k = 0; k < full; k += TVM_EXT_QBLOCK) {
                    tvm_ext_qconv2d_transpose_block(layer, input, pixel, weights, offsets, bias, multipliers, shifts, n,
                                                    h, w, k, TVM_EXT_QBLOCK);
                }
                if (full < channels) {
                    tvm_ext_qconv2d_transpose_block(layer, input, pixel, weights, offsets, bias, multipliers, shifts, n,
                                                    h, w, full, channels - full);
                }
            }
        }
    }
}

#endif
