/* Depthwise convolution of quantized images in vectors of 8 sums, by rows. */
#ifndef TVM_EXT_HOST_DEPTHWISE_H
#define TVM_EXT_HOST_DEPTHWISE_H

#include "tvm_ext_host_rescale.h"
#include "tvm_ext_host_rows.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t pitch; /* numbers from one pixel to the next in copied rows */
    tvm_ext_host_rescale rescale;
} tvm_ext_host_depthwise_layer;

/* All pixels of an output row, from copies of the rows that its windows read. */
typedef void tvm_ext_host_depthwise_row(const int16_t *restrict rows, uint8_t *y, const int16_t *restrict weights,
                                        const int32_t *restrict factors);

/* Adds the products of two taps to the sums of 16 channels. weights: of both taps in turn. */
TVM_EXT_INLINE void tvm_ext_host_add_taps(tvm_ext_host_sums *sums, const int16_t *first, const int16_t *second,
                                          const int16_t *weights)
{
    const tvm_ext_i16x16 a = tvm_ext_i16x16_load(first);
    const tvm_ext_i16x16 b = tvm_ext_i16x16_load(second);
    sums->low = tvm_ext_i32x8_add_pairs(sums->low, tvm_ext_i16x16_low_turns(a, b), tvm_ext_i16x16_load(weights));
    sums->high =
        tvm_ext_i32x8_add_pairs(sums->high, tvm_ext_i16x16_high_turns(a, b), tvm_ext_i16x16_load(&weights[16]));
}

/* Output rows [row_begin, row_end) of all images. */
TVM_EXT_INLINE void tvm_ext_host_depthwise(const tvm_ext_host_depthwise_layer *layer, tvm_ext_host_depthwise_row *row,
                                           const void *input, void *output, const int16_t *restrict weights,
                                           const int32_t *restrict factors, void *scratch, int32_t row_begin,
                                           int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    int16_t *const rows = (int16_t *)scratch;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            tvm_ext_host_copy_rows(&layer->input, window, rows, input, n, (h * window->row_stride) - window->top,
                                   layer->pitch);
            row(rows, &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)], weights, factors);
        }
    }
}

#endif
