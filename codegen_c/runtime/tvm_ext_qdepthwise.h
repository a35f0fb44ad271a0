/* Depthwise convolution of quantized images in plain C: up to four channels of one output pixel at a time.
 *
 * Products outside the image are skipped. If windows reach there, the zero point is subtracted from each element;
 * otherwise a bias includes its part of the channel's sums. Weights are [rows of the window][columns][channels]. */
#ifndef TVM_EXT_QDEPTHWISE_H
#define TVM_EXT_QDEPTHWISE_H

#include "tvm_ext_layer.h"
#include "tvm_ext_qblock.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    tvm_ext_rescale rescale;
} tvm_ext_qdepthwise_layer;

/* Computes `count` channels of one pixel from channel k on; its window begins at row `top` and column `left` of
   image n. */
TVM_EXT_INLINE void tvm_ext_qdepthwise_block(const tvm_ext_qdepthwise_layer *layer, const void *input, void *pixel,
                                             const int8_t *restrict weights, const void *restrict bias,
                                             const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                             int32_t n, int32_t top, int32_t left, tvm_ext_taps rows,
                                             tvm_ext_taps columns, int32_t k, int32_t count)
{
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_window *const window = &layer->window;
    const int32_t zero_point = tvm_ext_is_padded(window) ? image->zero_point : 0;
    tvm_ext_qsums sums;
    tvm_ext_qsums_begin(&layer->rescale, &sums, bias, k, count);
    for (int32_t r = rows.begin; r < rows.end; ++r) {
        const void *const row =
            tvm_ext_source(image, input, tvm_ext_row(image, n, top + (r * window->row_dilation)) + k);
        for (int32_t s = columns.begin; s < columns.end; ++s) {
            const int32_t x = (left + (s * window->column_dilation)) * image->channels;
            const int8_t *const f = &weights[(((r * window->columns) + s) * image->channels) + k];
            sums.part[0] += (tvm_ext_element(image, row, x) - zero_point) * f[0];
            if (count > 1) {
                sums.part[1] += (tvm_ext_element(image, row, x + 1) - zero_point) * f[1];
            }
            if (count > 2) {
                sums.part[2] += (tvm_ext_element(image, row, x + 2) - zero_point) * f[2];
            }
            if (count > 3) {
                sums.part[3] += (tvm_ext_element(image, row, x + 3) - zero_point) * f[3];
            }
        }
        tvm_ext_qsums_carry(&layer->rescale, &sums, count);
    }
    tvm_ext_qsums_store(&layer->rescale, &sums, &layer->output, pixel, multipliers, shifts, k, count);
}

/* Computes output rows [row_begin, row_end) of all images. */
TVM_EXT_INLINE void tvm_ext_qdepthwise(const tvm_ext_qdepthwise_layer *layer, const void *input, void *output,
                                       const int8_t *restrict weights, const void *restrict bias,
                                       const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                       int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t channels = layer->output.channels;
    const int32_t full = channels - (channels % TVM_EXT_QBLOCK);
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int32_t top = (h * window->row_stride) - window->top;
            const tvm_ext_taps rows = tvm_ext_row_taps(window, &layer->input, top);
            void *const row = tvm_ext_target(&layer->output, output, tvm_ext_row(&layer->output, n, h));
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                const int32_t left = (w * window->column_stride) - window->left;
                const tvm_ext_taps columns = tvm_ext_column_taps(window, &layer->input, left);
                void *const pixel = tvm_ext_target(&layer->output, row, w * layer->output.pitch);
                for (int32_t k = 0; k < full; k += TVM_EXT_QBLOCK) {
                    tvm_ext_qdepthwise_block(layer, input, pixel, weights, bias, multipliers, shifts, n, top, left,
                                             rows, columns, k, TVM_EXT_QBLOCK);
                }
                if (full < channels) {
                    tvm_ext_qdepthwise_block(layer, input, pixel, weights, bias, multipliers, shifts, n, top, left,
                                             rows, columns, full, channels - full);
                }
            }
        }
    }
}

#endif
