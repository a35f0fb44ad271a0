/* Convolutions and dense layers on quantized images in vectors of 16 accumulators: blocks of pixels by units of 16
 * output channels, which read a unit's weights once for all pixels of the block.
 *
 * Weights have 8 or 4 bits. Their order is [units][runs][groups of four elements][16 channels][4]; a run whose length
 * is no multiple of four ends with weights 0. */
#ifndef TVM_EXT_HOST_CONV2D_H
#define TVM_EXT_HOST_CONV2D_H

#include "tvm_ext_host_rescale.h"
#include "tvm_ext_host_rows.h"

/* The largest number of pixels, and of units, in a block. */
#define TVM_EXT_HOST_MOST 8

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t runs;   /* runs of contiguous elements in a row of a pixel's window */
    int32_t length; /* elements of a run */
    bool is_packed; /* weights have 4 bits, otherwise 8 */
    bool is_symmetric; /* no weight is -128 */
    tvm_ext_host_rescale rescale;
} tvm_ext_host_conv2d_layer;

/* Windows of adjacent output pixels in copied rows. */
typedef struct {
    const uint8_t *rows; /* [slots][row_bytes] */
    int32_t row_bytes;
    int32_t h;      /* output row, which determines the slots */
    int32_t first;  /* bytes from the begin of a row to the first window */
    int32_t step;   /* bytes from one window to the next */
    int32_t run_step; /* bytes from one run to the next in a row */
} tvm_ext_host_windows;

/* Returns the size of the parts into which `count` pixels or units are divided, as equal as possible. */
TVM_EXT_INLINE int32_t tvm_ext_host_part(int32_t count, int32_t most)
{
    const int32_t parts = (count + most - 1) / most;
    return (count + parts - 1) / parts;
}

/* Returns the pixels of a block. */
TVM_EXT_INLINE int32_t tvm_ext_host_block_pixels(int32_t columns, int32_t units)
{
    const int32_t most = TVM_EXT_I32X16_ACCUMULATORS / TVM_EXT_MIN(units, TVM_EXT_I32X16_UNITS);
    return tvm_ext_host_part(columns, TVM_EXT_MIN(most, TVM_EXT_HOST_MOST));
}

/* Returns the units of a block of so many pixels. */
TVM_EXT_INLINE int32_t tvm_ext_host_block_units(int32_t pixels, int32_t units)
{
    return tvm_ext_host_part(units, TVM_EXT_MIN(TVM_EXT_I32X16_ACCUMULATORS / pixels, TVM_EXT_HOST_MOST));
}

/* Returns the bytes of the weights of four elements of a unit. */
TVM_EXT_INLINE int32_t tvm_ext_host_quad_bytes(bool is_packed)
{
    return is_packed ? 32 : 64;
}

/* Returns the bytes of the weights of a unit. */
TVM_EXT_INLINE int32_t tvm_ext_host_unit_bytes(const tvm_ext_host_conv2d_layer *layer)
{
    return layer->window.rows * layer->runs * ((layer->length + 3) / 4) * tvm_ext_host_quad_bytes(layer->is_packed);
}

TVM_EXT_INLINE tvm_ext_i8x64 tvm_ext_host_weights(const uint8_t *source, bool is_packed)
{
    return is_packed ? tvm_ext_i8x64_nibbles(source) : tvm_ext_i8x64_load(source);
}

/* Adds the products of a run of each pixel to the accumulators of a block. */
TVM_EXT_INLINE void tvm_ext_host_add_run(const tvm_ext_host_conv2d_layer *layer,
                                         tvm_ext_i32x16 sums[TVM_EXT_HOST_MOST][TVM_EXT_HOST_MOST], const uint8_t *run,
                                         int32_t step, const uint8_t *weights, int32_t pixels, int32_t units)
{
    const int32_t unit_bytes = tvm_ext_host_unit_bytes(layer);
    for (int32_t i = 0; i < layer->length; i += 4) {
        tvm_ext_i8x64 f[TVM_EXT_HOST_MOST];
        TVM_EXT_I32X16_UNROLLED
        for (int32_t u = 0; u < units; ++u) {
            f[u] = tvm_ext_host_weights(&weights[u * unit_bytes], layer->is_packed);
        }
        TVM_EXT_I32X16_UNROLLED
        for (int32_t p = 0; p < pixels; ++p) {
            const tvm_ext_i8x64 x = tvm_ext_i8x64_quad(&run[(p * step) + i]);
            TVM_EXT_I32X16_UNROLLED
            for (int32_t u = 0; u < units; ++u) {
                sums[p][u] = tvm_ext_i32x16_add_quads(sums[p][u], x, f[u], layer->is_symmetric);
            }
        }
        weights = &weights[tvm_ext_host_quad_bytes(layer->is_packed)];
    }
}

/* Computes `pixels` adjacent pixels in `units` units from channel k on. */
TVM_EXT_INLINE void tvm_ext_host_block(const tvm_ext_host_conv2d_layer *layer, const tvm_ext_host_windows *windows,
                                       uint8_t *target, int32_t k, const uint8_t *restrict weights,
                                       const int32_t *restrict factors, int32_t pixels, int32_t units)
{
    const int32_t run_bytes = (layer->length + 3) / 4 * tvm_ext_host_quad_bytes(layer->is_packed);
    const uint8_t *f = &weights[k / TVM_EXT_HOST_UNIT * tvm_ext_host_unit_bytes(layer)];
    const int32_t *const unit_factors = tvm_ext_host_unit_factors(&layer->rescale, factors, k);
    tvm_ext_i32x16 sums[TVM_EXT_HOST_MOST][TVM_EXT_HOST_MOST];
    TVM_EXT_I32X16_UNROLLED
    for (int32_t u = 0; u < units; ++u) {
        const tvm_ext_i32x16 begin =
            tvm_ext_host_begin(tvm_ext_host_unit_factors(&layer->rescale, unit_factors, u * TVM_EXT_HOST_UNIT));
        TVM_EXT_I32X16_UNROLLED
        for (int32_t p = 0; p < pixels; ++p) {
            sums[p][u] = begin;
        }
    }
    int32_t slot = tvm_ext_host_slot(&layer->window, windows->h, 0);
    for (int32_t r = 0; r < layer->window.rows; ++r) {
        const uint8_t *run = &windows->rows[(slot * windows->row_bytes) + windows->first];
        slot = slot + 1 == layer->window.rows ? 0 : slot + 1;
        for (int32_t s = 0; s < layer->runs; ++s) {
            tvm_ext_host_add_run(layer, sums, run, windows->step, f, pixels, units);
            run = &run[windows->run_step];
            f = &f[run_bytes];
        }
    }
    TVM_EXT_I32X16_UNROLLED
    for (int32_t u = 0; u < units; ++u) {
        const int32_t channel = k + (u * TVM_EXT_HOST_UNIT);
        TVM_EXT_I32X16_UNROLLED
        for (int32_t p = 0; p < pixels; ++p) {
            tvm_ext_host_end(&layer->rescale, &target[(p * layer->output.pitch) + channel], sums[p][u],
                             tvm_ext_host_unit_factors(&layer->rescale, unit_factors, u * TVM_EXT_HOST_UNIT),
                             layer->output.channels - channel);
        }
    }
}

/* Computes all channels of `pixels` adjacent pixels, with `units` units in a block. */
TVM_EXT_INLINE void tvm_ext_host_pixels(const tvm_ext_host_conv2d_layer *layer, const tvm_ext_host_windows *windows,
                                        uint8_t *target, const uint8_t *restrict weights,
                                        const int32_t *restrict factors, int32_t pixels)
{
    const int32_t total = (layer->output.channels + TVM_EXT_HOST_UNIT - 1) / TVM_EXT_HOST_UNIT;
    const int32_t units = tvm_ext_host_block_units(pixels, total);
    const int32_t rest = total % units;
    for (int32_t u = 0; u < total - rest; u += units) {
        tvm_ext_host_block(layer, windows, target, u * TVM_EXT_HOST_UNIT, weights, factors, pixels, units);
    }
    if (rest > 0) {
        tvm_ext_host_block(layer, windows, target, (total - rest) * TVM_EXT_HOST_UNIT, weights, factors, pixels, rest);
    }
}

/* Computes output rows [row_begin, row_end) of all images from copies of the input rows that their windows read. */
TVM_EXT_INLINE void tvm_ext_host_conv2d(const tvm_ext_host_conv2d_layer *layer, const void *input, void *output,
                                        const void *restrict weights, const int32_t *restrict factors, uint8_t *scratch,
                                        int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t channels = layer->input.channels;
    const int32_t columns = layer->output.columns;
    const int32_t total = (layer->output.channels + TVM_EXT_HOST_UNIT - 1) / TVM_EXT_HOST_UNIT;
    const int32_t pixels = tvm_ext_host_block_pixels(columns, total);
    const int32_t rest = columns % pixels;
    const int32_t row_bytes = tvm_ext_host_row_columns(&layer->input, window) * channels;
    const int32_t step = window->column_stride * channels;
    tvm_ext_host_windows windows = {scratch, row_bytes, 0, 0, step, window->column_dilation * channels};
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)];
            tvm_ext_host_copy_rows(&layer->input, window, scratch, input, n, h, h == row_begin);
            windows.h = h;
            for (int32_t w = 0; w < columns - rest; w += pixels) {
                windows.first = w * windows.step;
                tvm_ext_host_pixels(layer, &windows, &row[w * layer->output.pitch], (const uint8_t *)weights, factors,
                                    pixels);
            }
            if (rest > 0) {
                windows.first = (columns - rest) * windows.step;
                tvm_ext_host_pixels(layer, &windows, &row[(columns - rest) * layer->output.pitch],
                                    (const uint8_t *)weights, factors, rest);
            }
        }
    }
}

/* Computes `pixels` vectors of a dense layer from vector w on. */
TVM_EXT_INLINE void tvm_ext_host_some_vectors(const tvm_ext_host_conv2d_layer *layer, const void *input, void *output,
                                              const void *restrict weights, const int32_t *restrict factors,
                                              uint8_t *scratch, int32_t w, int32_t pixels)
{
    const int32_t depth = layer->input.channels;
    const tvm_ext_host_windows windows = {scratch, 0, 0, 0, depth, 0};
    tvm_ext_i8x64_copy(scratch, &((const uint8_t *)input)[w * depth], pixels * depth,
                       tvm_ext_i32x16_flip(layer->input.is_unsigned));
    tvm_ext_host_pixels(layer, &windows, &((uint8_t *)output)[w * layer->output.channels], (const uint8_t *)weights,
                        factors, pixels);
}

/* Computes a dense layer. Its vectors of input.channels elements are the pixels of one row. scratch: for copies of up
 * to 8 vectors. */
TVM_EXT_INLINE void tvm_ext_host_vectors(const tvm_ext_host_conv2d_layer *layer, const void *input, void *output,
                                         const void *restrict weights, const int32_t *restrict factors,
                                         uint8_t *scratch)
{
    const int32_t vectors = layer->output.columns;
    const int32_t total = (layer->output.channels + TVM_EXT_HOST_UNIT - 1) / TVM_EXT_HOST_UNIT;
    const int32_t pixels = tvm_ext_host_block_pixels(vectors, total);
    const int32_t rest = vectors % pixels;
    for (int32_t w = 0; w < vectors - rest; w += pixels) {
        tvm_ext_host_some_vectors(layer, input, output, weights, factors, scratch, w, pixels);
    }
    if (rest > 0) {
        tvm_ext_host_some_vectors(layer, input, output, weights, factors, scratch, vectors - rest, rest);
    }
}

#endif
