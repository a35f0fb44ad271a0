/* Maxima and averages of windows over quantized images with HVX: 128 channels of one output pixel at a time.
 *
 * Sums of up to 255 elements have 16 bits. An average is the sum minus the zero points times a factor, or the sum
 * divided by the number of its elements, halves away from zero. */
#ifndef TVM_EXT_HVX_POOL2D_H
#define TVM_EXT_HVX_POOL2D_H

#include "tvm_ext_hvx.h"
#include "tvm_ext_hvx_requantize.h"
#include "tvm_ext_layer.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    bool is_maximum;
    int32_t reciprocal; /* 2^31 / elements of a window, rounded up, of averages that are quotients; otherwise 0 */
    tvm_ext_hvx_rescale requantize;
} tvm_ext_hvx_pool2d_layer;

/* Returns sums / elements of a window, halves away from zero. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_quotients(const tvm_ext_hvx_pool2d_layer *layer, tvm_ext_hvx sums)
{
    const int32_t half = (layer->window.rows * layer->window.columns) / 2;
    const tvm_ext_hvx signs = tvm_ext_hvx_right(sums, 31);
    const tvm_ext_hvx sizes = tvm_ext_hvx_sub(tvm_ext_hvx_xor(sums, signs), signs);
    const tvm_ext_hvx quotients =
        tvm_ext_hvx_high(tvm_ext_hvx_add(sizes, tvm_ext_hvx_words(half)), tvm_ext_hvx_words(layer->reciprocal));
    return tvm_ext_hvx_sub(tvm_ext_hvx_xor(quotients, signs), signs);
}

/* Returns the averages of the channels whose elements are summed. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_averages(const tvm_ext_hvx_pool2d_layer *layer, tvm_ext_hvx_halves halves,
                                                const int32_t *factors)
{
    const tvm_ext_hvx_rescale *const rescale = &layer->requantize;
    tvm_ext_hvx_four sums = tvm_ext_hvx_widened(halves, layer->input.is_unsigned);
    TVM_EXT_HVX_UNROLL for (int32_t v = 0; v < 4; ++v)
    {
        sums.part[v] = layer->reciprocal > 0 ? tvm_ext_hvx_quotients(layer, sums.part[v])
                                             : tvm_ext_hvx_add(sums.part[v], tvm_ext_hvx_starts(factors, 0));
    }
    return layer->reciprocal > 0 ? tvm_ext_hvx_packed(sums, rescale->is_unsigned, rescale->low, rescale->high)
                                 : tvm_ext_hvx_elements(rescale, sums, factors, 0, 1);
}

/* Computes `count` channels of the pixel whose window begins at row `top` and column `left` of image n. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_pooled(const tvm_ext_hvx_pool2d_layer *layer, const uint8_t *input,
                                              const int32_t *factors, int32_t n, int32_t top, int32_t left,
                                              int32_t count)
{
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_taps rows = tvm_ext_row_taps(&layer->window, image, top);
    const tvm_ext_taps columns = tvm_ext_column_taps(&layer->window, image, left);
    tvm_ext_hvx largest = tvm_ext_hvx_bytes(layer->requantize.low);
    tvm_ext_hvx_halves sums = tvm_ext_hvx_no_halves();
    for (int32_t r = rows.begin; r < rows.end; ++r) {
        const int32_t row = tvm_ext_row(image, n, top + (r * layer->window.row_dilation));
        for (int32_t s = columns.begin; s < columns.end; ++s) {
            const int32_t x = left + (s * layer->window.column_dilation);
            const tvm_ext_hvx elements = tvm_ext_hvx_load_first(&input[row + (x * image->channels)], count);
            if (layer->is_maximum) {
                largest = tvm_ext_hvx_max(largest, elements, image->is_unsigned);
            } else {
                sums = tvm_ext_hvx_accumulate(sums, elements, image->is_unsigned);
            }
        }
    }
    return layer->is_maximum ? tvm_ext_hvx_min(largest, tvm_ext_hvx_bytes(layer->requantize.high), image->is_unsigned)
                             : tvm_ext_hvx_averages(layer, sums, factors);
}

/* Computes output rows [row_begin, row_end) of all images. factors: of one group of 32 equal channels. */
TVM_EXT_INLINE void tvm_ext_hvx_pool2d(const tvm_ext_hvx_pool2d_layer *layer, const void *input, void *output,
                                       const int32_t *factors, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)];
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                for (int32_t k = 0; k < layer->input.channels; k += TVM_EXT_HVX_BYTES) {
                    const int32_t left = layer->input.channels - k;
                    const int32_t count = left < TVM_EXT_HVX_BYTES ? left : TVM_EXT_HVX_BYTES;
                    const tvm_ext_hvx elements = tvm_ext_hvx_pooled(layer, &((const uint8_t *)input)[k], factors, n,
                                                                    (h * window->row_stride) - window->top,
                                                                    (w * window->column_stride) - window->left, count);
                    tvm_ext_hvx_store_first(&row[(w * layer->output.pitch) + k], elements, count);
                }
            }
        }
    }
}

#endif
