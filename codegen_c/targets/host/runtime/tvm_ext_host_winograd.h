/* Convolution of quantized images by Winograd's F(2x2, 3x3) in integers, in vectors of 8 accumulators, for windows of
 * 3 by 3 taps and stride 1. The results equal the direct sums of products bit for bit (Winograd, Arithmetic Complexity
 * of Computations, 1980; Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016).
 *
 * A tile d of 4 by 4 inputs gives 2 by 2 outputs: Y = A^T [U . V] A, V = B^T d B, U = G g G^T. The elementwise products
 * are summed over the input channels. With twice G, all matrices are integers and Y is four times the sums modulo 2^32:
 *
 *     B^T = 1  0 -1  0     2 G = 2  0  0     A^T = 1  1  1  0
 *           0  1  1  0           1  1  1           0  1 -1 -1
 *           0 -1  1  0           1 -1  1
 *           0  1  0 -1           0  0  2
 *
 * Inputs of 8 bits, with zero points as padding, give |V| <= 1020 and |U| <= 1152. The initial accumulators belong to
 * position (1, 1), which adds to all four outputs.
 *
 * Processors that add four products of 8 bits in one instruction compute the direct sums faster. The layer has
 * constants for both methods, and the compiler of the C code chooses. */
#ifndef TVM_EXT_HOST_WINOGRAD_H
#define TVM_EXT_HOST_WINOGRAD_H

#include <stddef.h>

#include "tvm_ext_host_conv2d.h"
#include "tvm_ext_host_pairs.h"

/* Numbers that are stored at once. A copy therefore writes up to 15 numbers after its last element. */
#define TVM_EXT_HOST_STORED 16
#define TVM_EXT_HOST_PLACES 16
#define TVM_EXT_HOST_FIRST_PLACE 5 /* position of the initial accumulators */

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t columns;              /* columns of the copied rows: those of all tiles */
    int32_t pitch;                /* channels of a position of transformed inputs: whole vectors */
    tvm_ext_host_pairs product;
    tvm_ext_host_rescale direct;  /* requantization of direct sums */
} tvm_ext_host_winograd_layer;

/* Scratch, in this order. */
typedef struct {
    int32_t *sums;    /* [positions][units][16] of one block of units */
    int16_t *rows;    /* B^T d: four times [columns][channels] and space for a vector */
    int16_t *places;  /* [16][pitch] of one tile's V */
    uint8_t *padding; /* a row of zero points */
} tvm_ext_host_winograd_scratch;

/* Returns elements i to i + 15 of `count` elements of 8 bits, with zeros after the last one. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_host_widened(const uint8_t *source, int32_t i, int32_t count, bool is_unsigned)
{
    if (i + TVM_EXT_HOST_STORED <= count) {
        return tvm_ext_i16x16_widen(&source[i], is_unsigned);
    }
    uint8_t rest[TVM_EXT_HOST_STORED] = {0};
    (void)memcpy(rest, &source[i], (size_t)(count - i));
    return tvm_ext_i16x16_widen(rest, is_unsigned);
}

/* Writes `value` `count` times, in whole vectors. */
TVM_EXT_INLINE void tvm_ext_host_fill(int16_t *restrict target, int32_t value, int32_t count)
{
    for (int32_t i = 0; i < count; i += TVM_EXT_HOST_STORED) {
        tvm_ext_i16x16_store(&target[i], tvm_ext_i16x16_splat(value));
    }
}

/* Returns the distance in numbers between two of the four rows of B^T d. */
TVM_EXT_INLINE int32_t tvm_ext_host_winograd_length(const tvm_ext_host_winograd_layer *layer)
{
    return (layer->columns * layer->input.channels) + TVM_EXT_HOST_STORED;
}

TVM_EXT_INLINE tvm_ext_host_winograd_scratch tvm_ext_host_winograd_parts(const tvm_ext_host_winograd_layer *layer,
                                                                         void *scratch)
{
    int32_t *const sums = (int32_t *)scratch;
    void *const after_sums = &sums[TVM_EXT_HOST_PLACES * layer->product.units * TVM_EXT_HOST_UNIT];
    int16_t *const rows = (int16_t *)after_sums;
    int16_t *const places = &rows[4 * tvm_ext_host_winograd_length(layer)];
    uint8_t *const padding = (uint8_t *)&places[TVM_EXT_HOST_PLACES * layer->pitch];
    const tvm_ext_host_winograd_scratch parts = {sums, rows, places, padding};
    return parts;
}

/* Computes B^T d for a row of tiles, all columns: four rows of bytes become four rows of 16-bit numbers. */
TVM_EXT_INLINE void tvm_ext_host_winograd_rows(const tvm_ext_host_winograd_layer *layer, int16_t *restrict rows,
                                               const uint8_t *const sources[4])
{
    const tvm_ext_image *const image = &layer->input;
    const int32_t length = tvm_ext_host_winograd_length(layer);
    const int32_t count = image->columns * image->channels;
    const int32_t left = layer->window.left * image->channels;
    const bool is_unsigned = image->is_unsigned;
    const int32_t padding[4] = {0, 2 * image->zero_point, 0, 0};
    for (int32_t r = 0; r < 4; ++r) {
        tvm_ext_host_fill(&rows[r * length], padding[r], left);
    }
    for (int32_t i = 0; i < count; i += TVM_EXT_HOST_STORED) {
        const tvm_ext_i16x16 d0 = tvm_ext_host_widened(sources[0], i, count, is_unsigned);
        const tvm_ext_i16x16 d1 = tvm_ext_host_widened(sources[1], i, count, is_unsigned);
        const tvm_ext_i16x16 d2 = tvm_ext_host_widened(sources[2], i, count, is_unsigned);
        const tvm_ext_i16x16 d3 = tvm_ext_host_widened(sources[3], i, count, is_unsigned);
        tvm_ext_i16x16_store(&rows[left + i], tvm_ext_i16x16_subtract(d0, d2));
        tvm_ext_i16x16_store(&rows[length + left + i], tvm_ext_i16x16_add(d1, d2));
        tvm_ext_i16x16_store(&rows[(2 * length) + left + i], tvm_ext_i16x16_subtract(d2, d1));
        tvm_ext_i16x16_store(&rows[(3 * length) + left + i], tvm_ext_i16x16_subtract(d1, d3));
    }
    for (int32_t r = 0; r < 4; ++r) {
        tvm_ext_host_fill(&rows[(r * length) + left + count], padding[r],
                          (layer->columns * image->channels) - left - count);
    }
}

/* Computes (B^T d) B for one tile from its first pixel on. */
TVM_EXT_INLINE void tvm_ext_host_winograd_tile(const tvm_ext_host_winograd_layer *layer, int16_t *restrict places,
                                               const int16_t *restrict rows)
{
    const int32_t channels = layer->input.channels;
    const int32_t length = tvm_ext_host_winograd_length(layer);
    const int32_t pitch = layer->pitch;
    for (int32_t r = 0; r < 4; ++r) {
        const int16_t *const row = &rows[r * length];
        int16_t *const place = &places[4 * r * pitch];
        for (int32_t c = 0; c < channels; c += TVM_EXT_HOST_STORED) {
            const tvm_ext_i16x16 c1 = tvm_ext_i16x16_load(&row[channels + c]);
            const tvm_ext_i16x16 c2 = tvm_ext_i16x16_load(&row[(2 * channels) + c]);
            tvm_ext_i16x16_store(&place[c], tvm_ext_i16x16_subtract(tvm_ext_i16x16_load(&row[c]), c2));
            tvm_ext_i16x16_store(&place[pitch + c], tvm_ext_i16x16_add(c1, c2));
            tvm_ext_i16x16_store(&place[(2 * pitch) + c], tvm_ext_i16x16_subtract(c2, c1));
            tvm_ext_i16x16_store(&place[(3 * pitch) + c],
                                 tvm_ext_i16x16_subtract(c1, tvm_ext_i16x16_load(&row[(3 * channels) + c])));
        }
    }
}

/* Sums a block of up to 4 units at all positions of a tile. Returns the weights after those of the block. */
TVM_EXT_INLINE const int16_t *tvm_ext_host_winograd_sums(const tvm_ext_host_winograd_layer *layer,
                                                         int32_t *restrict sums, const int16_t *places,
                                                         const int16_t *weights, const int32_t *factors, int32_t units)
{
    for (int32_t p = 0; p < TVM_EXT_HOST_PLACES; ++p) {
        tvm_ext_host_sums block[4];
        if (p == TVM_EXT_HOST_FIRST_PLACE) {
            tvm_ext_host_begin_units(&layer->product.rescale, block, factors, units);
        } else {
            tvm_ext_host_clear_units(block, units);
        }
        weights = tvm_ext_host_add_run_of_pairs(&layer->product, block, &places[p * layer->pitch], weights, units, 32);
        tvm_ext_host_store_units(&sums[p * units * TVM_EXT_HOST_UNIT], block, units);
    }
    return weights;
}

/* Computes outputs (0, 0), (0, 1), (1, 0), (1, 1) of 16 channels, A^T M A. step: numbers between two positions. */
TVM_EXT_INLINE void tvm_ext_host_winograd_outputs(tvm_ext_i32x16 outputs[4], const int32_t *sums, int32_t step)
{
    tvm_ext_i32x16 top[4];
    tvm_ext_i32x16 bottom[4];
    for (int32_t s = 0; s < 4; ++s) {
        const tvm_ext_i32x16 m1 = tvm_ext_i32x16_load(&sums[(4 + s) * step]);
        const tvm_ext_i32x16 m2 = tvm_ext_i32x16_load(&sums[(8 + s) * step]);
        const tvm_ext_i32x16 m0 = tvm_ext_i32x16_load(&sums[s * step]);
        const tvm_ext_i32x16 m3 = tvm_ext_i32x16_load(&sums[(12 + s) * step]);
        top[s] = tvm_ext_i32x16_add(tvm_ext_i32x16_add(m0, m1), m2);
        bottom[s] = tvm_ext_i32x16_subtract(tvm_ext_i32x16_subtract(m1, m2), m3);
    }
    outputs[0] = tvm_ext_i32x16_add(tvm_ext_i32x16_add(top[0], top[1]), top[2]);
    outputs[1] = tvm_ext_i32x16_subtract(tvm_ext_i32x16_subtract(top[1], top[2]), top[3]);
    outputs[2] = tvm_ext_i32x16_add(tvm_ext_i32x16_add(bottom[0], bottom[1]), bottom[2]);
    outputs[3] = tvm_ext_i32x16_subtract(tvm_ext_i32x16_subtract(bottom[1], bottom[2]), bottom[3]);
}

/* Stores the first `count` elements of a unit of a tile. targets: its four pixels, NULL for pixels to leave out. */
TVM_EXT_INLINE void tvm_ext_host_winograd_end(const tvm_ext_host_winograd_layer *layer, uint8_t *const targets[4],
                                              int32_t k, const int32_t *sums, int32_t step, const int32_t *factors,
                                              int32_t count)
{
    tvm_ext_i32x16 outputs[4];
    tvm_ext_host_winograd_outputs(outputs, sums, step);
    for (int32_t i = 0; i < 4; ++i) {
        if (targets[i] != NULL) {
            const tvm_ext_i32x16 value =
                layer->product.rescale.rounds_twice ? tvm_ext_i32x16_shifted_down(outputs[i], 2) : outputs[i];
            tvm_ext_host_end(&layer->product.rescale, &targets[i][k], value, factors, count);
        }
    }
}

/* Computes `count` channels of one tile from channel k on, in up to 4 units. Returns the weights after theirs. */
TVM_EXT_INLINE const int16_t *tvm_ext_host_winograd_block(const tvm_ext_host_winograd_layer *layer,
                                                          const tvm_ext_host_winograd_scratch *parts,
                                                          uint8_t *const targets[4], int32_t k, const int16_t *weights,
                                                          const int32_t *factors, int32_t units, int32_t count)
{
    const int32_t unit = TVM_EXT_HOST_UNIT;
    const int32_t step = units * unit;
    const int32_t *const sums = parts->sums;
    const tvm_ext_host_rescale *const rescale = &layer->product.rescale;
    weights = tvm_ext_host_winograd_sums(layer, parts->sums, parts->places, weights, factors, units);
    tvm_ext_host_winograd_end(layer, targets, k, sums, step, factors, count);
    if (units > 1) {
        tvm_ext_host_winograd_end(layer, targets, k + unit, &sums[unit], step,
                                  tvm_ext_host_unit_factors(rescale, factors, unit), count - unit);
    }
    if (units > 2) {
        tvm_ext_host_winograd_end(layer, targets, k + (2 * unit), &sums[2 * unit], step,
                                  tvm_ext_host_unit_factors(rescale, factors, 2 * unit), count - (2 * unit));
    }
    if (units > 3) {
        tvm_ext_host_winograd_end(layer, targets, k + (3 * unit), &sums[3 * unit], step,
                                  tvm_ext_host_unit_factors(rescale, factors, 3 * unit), count - (3 * unit));
    }
    return weights;
}

/* Computes all channels of one tile. */
TVM_EXT_INLINE void tvm_ext_host_winograd_channels(const tvm_ext_host_winograd_layer *layer,
                                                   const tvm_ext_host_winograd_scratch *parts,
                                                   uint8_t *const targets[4], const void *restrict weights,
                                                   const int32_t *restrict factors)
{
    const tvm_ext_host_pairs *const product = &layer->product;
    const int32_t width = product->units * TVM_EXT_HOST_UNIT;
    const int32_t full = product->channels - (product->channels % width);
    const int16_t *f = (const int16_t *)weights;
    for (int32_t k = 0; k < full; k += width) {
        f = tvm_ext_host_winograd_block(layer, parts, targets, k, f,
                                        tvm_ext_host_unit_factors(&product->rescale, factors, k), product->units,
                                        width);
    }
    if (full < product->channels) {
        const int32_t rest = product->channels - full;
        (void)tvm_ext_host_winograd_block(layer, parts, targets, full, f,
                                          tvm_ext_host_unit_factors(&product->rescale, factors, full),
                                          (rest + TVM_EXT_HOST_UNIT - 1) / TVM_EXT_HOST_UNIT, rest);
    }
}

#ifndef TVM_EXT_I32X16_ADDS_QUADS

/* Computes output rows [row_begin, row_end) of all images, two at a time. Rows of a ring buffer that later rows of
 * the call would overwrite are skipped. */
TVM_EXT_INLINE void tvm_ext_host_winograd_of_pairs(const tvm_ext_host_winograd_layer *layer, const void *input,
                                                   void *output, const void *restrict weights,
                                                   const int32_t *restrict factors, void *scratch, int32_t row_begin,
                                                   int32_t row_end)
{
    const tvm_ext_image *const made = &layer->output;
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_host_winograd_scratch parts = tvm_ext_host_winograd_parts(layer, scratch);
    const int32_t end = TVM_EXT_MIN(image->rows, row_end + 2 - layer->window.top); /* end of the rows that are read */
    const int32_t begin = made->is_ring ? TVM_EXT_MAX(row_begin, row_end - made->ring_rows) : row_begin;
    (void)memset(parts.padding, image->zero_point, (size_t)image->columns * (size_t)image->channels);
    for (int32_t n = 0; n < made->images; ++n) {
        for (int32_t h = begin; h < row_end; h += 2) {
            const uint8_t *sources[4];
            for (int32_t r = 0; r < 4; ++r) {
                const int32_t y = h - layer->window.top + r;
                sources[r] = y >= 0 && y < end ? &((const uint8_t *)input)[tvm_ext_row(image, n, y)] : parts.padding;
            }
            tvm_ext_host_winograd_rows(layer, parts.rows, sources);
            uint8_t *const top = &((uint8_t *)output)[tvm_ext_row(made, n, h)];
            uint8_t *const bottom = h + 1 < row_end ? &((uint8_t *)output)[tvm_ext_row(made, n, h + 1)] : NULL;
            for (int32_t w = 0; w < made->columns; w += 2) {
                const int32_t pixel = w * made->pitch;
                const bool is_pair = w + 1 < made->columns;
                uint8_t *const targets[4] = {&top[pixel], is_pair ? &top[pixel + made->pitch] : NULL,
                                             bottom != NULL ? &bottom[pixel] : NULL,
                                             bottom != NULL && is_pair ? &bottom[pixel + made->pitch] : NULL};
                tvm_ext_host_winograd_tile(layer, parts.places, &parts.rows[w * image->channels]);
                tvm_ext_host_winograd_channels(layer, &parts, targets, weights, factors);
            }
        }
    }
}

#endif

/* Computes output rows [row_begin, row_end) of all images. direct_weights, direct_factors: for direct sums. */
TVM_EXT_INLINE void tvm_ext_host_winograd(const tvm_ext_host_winograd_layer *layer, const void *input, void *output,
                                          const void *restrict weights, const int32_t *restrict factors,
                                          const void *restrict direct_weights, const int32_t *restrict direct_factors,
                                          void *scratch, int32_t row_begin, int32_t row_end)
{
#ifdef TVM_EXT_I32X16_ADDS_QUADS
    (void)weights;
    (void)factors;
    const int32_t length = layer->window.columns * layer->input.channels;
    const tvm_ext_host_conv2d_layer direct = {layer->input, layer->output, layer->window, 1,
                                              length,       false,         false,         layer->direct};
    const tvm_ext_image *const made = &layer->output;
    const int32_t begin = made->is_ring ? TVM_EXT_MAX(row_begin, row_end - made->ring_rows) : row_begin;
    tvm_ext_host_conv2d(&direct, input, output, direct_weights, direct_factors, (uint8_t *)scratch, begin, row_end);
#else
    (void)direct_weights;
    (void)direct_factors;
    tvm_ext_host_winograd_of_pairs(layer, input, output, weights, factors, scratch, row_begin, row_end);
#endif
}

#endif
