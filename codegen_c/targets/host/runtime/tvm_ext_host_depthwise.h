/* Depthwise convolution of quantized images in vectors of 16 accumulators: four rows of a window at once.
 *
 * The bytes of four rows at a position are adjacent in a copy, so that one instruction multiplies them by four weights
 * of their channel. Weights have 8 or 4 bits, in the order [units][groups of four rows][columns][16 channels][4]. */
#ifndef TVM_EXT_HOST_DEPTHWISE_H
#define TVM_EXT_HOST_DEPTHWISE_H

#include "tvm_ext_host_rescale.h"
#include "tvm_ext_host_rows.h"

/* The largest number of vectors of outputs that are computed together. */
#define TVM_EXT_HOST_MOST_VECTORS 8

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t fold;   /* adjacent pixels whose channels fill a unit; 1 for 16 channels or more, or for strides */
    bool is_packed; /* weights have 4 bits, otherwise 8 */
    bool is_symmetric; /* no weight is -128 */
    tvm_ext_host_rescale rescale;
} tvm_ext_host_depthwise_layer;

/* Distances of a layer's loops, in elements. */
typedef struct {
    int32_t woven;    /* size of a group of four rows in the copy */
    int32_t tap;      /* from one column of the window to the next */
    int32_t step;     /* from the inputs of a vector of outputs to those of the next */
    int32_t out_step; /* from one vector of outputs to the next */
} tvm_ext_host_distances;

/* Returns the elements of a row in the copy: whole vectors of 64. */
TVM_EXT_INLINE int32_t tvm_ext_host_woven(const tvm_ext_host_depthwise_layer *layer)
{
    return ((tvm_ext_host_row_columns(&layer->input, &layer->window) * layer->input.channels) + 63) / 64 * 64;
}

/* Returns the groups of four rows of the window. */
TVM_EXT_INLINE int32_t tvm_ext_host_groups(const tvm_ext_host_depthwise_layer *layer)
{
    return (layer->window.rows + 3) / 4;
}

/* Interleaves each four rows of the windows of output row h. Rows beyond the last one have weights 0. */
TVM_EXT_INLINE void tvm_ext_host_weave(const tvm_ext_host_depthwise_layer *layer, uint8_t *woven, const uint8_t *rows,
                                       int32_t h)
{
    const int32_t length = tvm_ext_host_row_columns(&layer->input, &layer->window) * layer->input.channels;
    for (int32_t g = 0; g < tvm_ext_host_groups(layer); ++g) {
        const uint8_t *four[4];
        for (int32_t i = 0; i < 4; ++i) {
            const int32_t r = TVM_EXT_MIN((4 * g) + i, layer->window.rows - 1);
            four[i] = &rows[tvm_ext_host_slot(&layer->window, h, r) * length];
        }
        tvm_ext_i8x64_weave(&woven[4 * g * tvm_ext_host_woven(layer)], four, length);
    }
}

/* Computes the first `count` elements of each of `vectors` vectors of outputs. x: the woven inputs of the first one. */
TVM_EXT_INLINE void tvm_ext_host_depthwise_vectors(const tvm_ext_host_depthwise_layer *layer,
                                                   const tvm_ext_host_distances *distances, const uint8_t *x,
                                                   uint8_t *target, const uint8_t *weights, const int32_t *factors,
                                                   int32_t vectors, int32_t count)
{
    tvm_ext_i32x16 sums[TVM_EXT_HOST_MOST_VECTORS];
    const tvm_ext_i32x16 begin = tvm_ext_host_begin(factors);
    TVM_EXT_I32X16_UNROLLED
    for (int32_t p = 0; p < vectors; ++p) {
        sums[p] = begin;
    }
    for (int32_t g = 0; g < tvm_ext_host_groups(layer); ++g) {
        TVM_EXT_I32X16_UNROLLED
        for (int32_t s = 0; s < layer->window.columns; ++s) {
            const tvm_ext_i8x64 f = layer->is_packed ? tvm_ext_i8x64_nibbles(weights) : tvm_ext_i8x64_load(weights);
            const uint8_t *const tap = &x[4 * ((g * distances->woven) + (s * distances->tap))];
            TVM_EXT_I32X16_UNROLLED
            for (int32_t p = 0; p < vectors; ++p) {
                sums[p] = tvm_ext_i32x16_add_quads(sums[p], tvm_ext_i8x64_load(&tap[4 * p * distances->step]), f,
                                                   layer->is_symmetric);
            }
            weights = &weights[layer->is_packed ? 32 : 64];
        }
    }
    TVM_EXT_I32X16_UNROLLED
    for (int32_t p = 0; p < vectors; ++p) {
        tvm_ext_host_end(&layer->rescale, &target[p * distances->out_step], sums[p], factors, count);
    }
}

/* Computes an output row of `length` elements from the copy of the rows that its windows read. */
TVM_EXT_INLINE void tvm_ext_host_depthwise_row(const tvm_ext_host_depthwise_layer *layer, const uint8_t *woven,
                                               uint8_t *row, const uint8_t *restrict weights,
                                               const int32_t *restrict factors)
{
    const int32_t channels = layer->output.channels;
    const int32_t fold = layer->output.pitch == channels ? layer->fold : 1;
    const int32_t whole = layer->output.columns / fold;
    const int32_t unit_bytes = tvm_ext_host_groups(layer) * layer->window.columns * (layer->is_packed ? 32 : 64);
    const tvm_ext_host_distances distances = {
        tvm_ext_host_woven(layer),
        layer->window.column_dilation * channels,
        fold * layer->window.column_stride * channels,
        fold * layer->output.pitch,
    };
    const int32_t most = TVM_EXT_MIN(TVM_EXT_I32X16_ACCUMULATORS, TVM_EXT_HOST_MOST_VECTORS);
    const int32_t at_once = whole > 0 ? (whole + ((whole + most - 1) / most) - 1) / ((whole + most - 1) / most) : 1;
    const int32_t rest = whole % at_once;
    for (int32_t k = 0; k < channels; k += TVM_EXT_HOST_UNIT) {
        const uint8_t *const f = &weights[k / TVM_EXT_HOST_UNIT * unit_bytes];
        const int32_t *const unit = tvm_ext_host_unit_factors(&layer->rescale, factors, k);
        const int32_t count = (fold * channels) - k;
        for (int32_t w = 0; w < whole - rest; w += at_once) {
            tvm_ext_host_depthwise_vectors(layer, &distances, &woven[4 * ((w * distances.step) + k)],
                                           &row[(w * distances.out_step) + k], f, unit, at_once, count);
        }
        if (rest > 0) {
            const int32_t w = whole - rest;
            tvm_ext_host_depthwise_vectors(layer, &distances, &woven[4 * ((w * distances.step) + k)],
                                           &row[(w * distances.out_step) + k], f, unit, rest, count);
        }
    }
    if (whole * fold < layer->output.columns) { /* pixels that fill a part of a unit */
        const int32_t pixels = layer->output.columns - (whole * fold);
        tvm_ext_host_depthwise_vectors(layer, &distances, &woven[4 * whole * distances.step],
                                       &row[whole * distances.out_step], weights, factors, 1, pixels * channels);
    }
}

/* Computes output rows [row_begin, row_end) of all images. scratch: for the rows, for 64 more elements, and for the
 * rows interleaved. */
TVM_EXT_INLINE void tvm_ext_host_depthwise(const tvm_ext_host_depthwise_layer *layer, const void *input, void *output,
                                           const void *restrict weights, const int32_t *restrict factors,
                                           uint8_t *scratch, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t length = tvm_ext_host_row_columns(&layer->input, window) * layer->input.channels;
    uint8_t *const woven = &scratch[(window->rows * length) + 64];
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            tvm_ext_host_copy_rows(&layer->input, window, scratch, input, n, h, h == row_begin);
            tvm_ext_host_weave(layer, woven, scratch, h);
            tvm_ext_host_depthwise_row(layer, woven, &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)],
                                       (const uint8_t *)weights, factors);
        }
    }
}

#endif
