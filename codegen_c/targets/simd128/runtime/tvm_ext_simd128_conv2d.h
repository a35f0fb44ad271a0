/* Convolutions and dense layers on quantized images: 8 channels of four output pixels at a time.
 *
 * Weights have 8 bits in the order [units][runs][pairs of elements][channels of the unit][2]. A run is contiguous in
 * the copied rows; one of odd length ends with a weight of 0, or minus the offset of all weights. */
#ifndef TVM_EXT_SIMD128_CONV2D_H
#define TVM_EXT_SIMD128_CONV2D_H

#include "tvm_ext_simd128_rescale.h"

#define TVM_EXT_SIMD128_PIXELS 4

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t turn;  /* runs in each row of the window */
    int32_t pairs; /* pairs of elements in a run */
    int32_t weight_offset; /* added to all stored weights: not 0 if weights have 9 bits */
    tvm_ext_simd128_rescale rescale;
} tvm_ext_simd128_conv2d_layer;

/* Adds the products of a run of `pixels` pixels, `step` numbers apart, to their sums. */
TVM_EXT_INLINE void tvm_ext_simd128_add_run(const tvm_ext_simd128_conv2d_layer *layer, tvm_ext_i32x4 *sums,
                                            const int16_t *run, int32_t step, const uint8_t *weights, int32_t pixels)
{
    for (int32_t i = 0; i < layer->pairs; ++i) {
        const tvm_ext_i16x8 first = tvm_ext_simd128_weights(&weights[16 * i], layer->weight_offset);
        const tvm_ext_i16x8 second = tvm_ext_simd128_weights(&weights[(16 * i) + 8], layer->weight_offset);
        for (int32_t p = 0; p < pixels; ++p) {
            const tvm_ext_i16x8 pair = tvm_ext_i16x8_pair(&run[(p * step) + (2 * i)]);
            sums[2 * p] = tvm_ext_i32x4_add_pairs(sums[2 * p], pair, first);
            sums[(2 * p) + 1] = tvm_ext_i32x4_add_pairs(sums[(2 * p) + 1], pair, second);
        }
    }
}

/* Computes all channels of `pixels` adjacent output pixels. place: the first number of the first pixel's window. */
TVM_EXT_INLINE void tvm_ext_simd128_pixels(const tvm_ext_simd128_conv2d_layer *layer, const int16_t *place,
                                           int32_t length, uint8_t *target, const uint8_t *weights,
                                           const int32_t *factors, int32_t pixels)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t step = window->column_stride * layer->input.channels;
    const int32_t channels = layer->output.channels;
    for (int32_t k = 0; k < channels; k += TVM_EXT_SIMD128_UNIT) {
        const int32_t *const unit = &factors[k * (TVM_EXT_SIMD128_FACTORS / TVM_EXT_SIMD128_UNIT)];
        tvm_ext_i32x4 sums[2 * TVM_EXT_SIMD128_PIXELS];
        for (int32_t p = 0; p < pixels; ++p) {
            sums[2 * p] = tvm_ext_i32x4_load(unit);
            sums[(2 * p) + 1] = tvm_ext_i32x4_load(&unit[4]);
        }
        for (int32_t r = 0; r < window->rows; ++r) {
            for (int32_t s = 0; s < layer->turn; ++s) {
                const int32_t first = (r * length) + (s * window->column_dilation * layer->input.channels);
                tvm_ext_simd128_add_run(layer, sums, &place[first], step, weights, pixels);
                weights = &weights[16 * layer->pairs];
            }
        }
        for (int32_t p = 0; p < pixels; ++p) {
            tvm_ext_simd128_end(&layer->rescale, &target[(p * layer->output.pitch) + k], sums[2 * p], sums[(2 * p) + 1],
                                unit, channels - k);
        }
    }
}

/* Computes output rows [row_begin, row_end) of all images from copies of the input rows that their windows read. */
TVM_EXT_INLINE void tvm_ext_simd128_conv2d(const tvm_ext_simd128_conv2d_layer *layer, const void *input, void *output,
                                           const void *restrict weights, const int32_t *restrict factors, void *scratch,
                                           int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    int16_t *const rows = (int16_t *)scratch;
    const int32_t length = tvm_ext_simd128_columns(&layer->input, window) * layer->input.channels;
    const int32_t step = window->column_stride * layer->input.channels;
    const int32_t rest = layer->output.columns % TVM_EXT_SIMD128_PIXELS;
    const int32_t whole = layer->output.columns - rest;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)];
            tvm_ext_simd128_copy_rows(&layer->input, window, rows, input, n, (h * window->row_stride) - window->top);
            for (int32_t w = 0; w < whole; w += TVM_EXT_SIMD128_PIXELS) {
                tvm_ext_simd128_pixels(layer, &rows[w * step], length, &row[w * layer->output.pitch],
                                       (const uint8_t *)weights, factors, TVM_EXT_SIMD128_PIXELS);
            }
            if (rest > 0) {
                tvm_ext_simd128_pixels(layer, &rows[whole * step], length, &row[whole * layer->output.pitch],
                                       (const uint8_t *)weights, factors, rest);
            }
        }
    }
}

#endif
