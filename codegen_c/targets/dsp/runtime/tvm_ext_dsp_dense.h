/* Dense layers by the DSP extension: one row by four output channels at a time.
 *
 * A row is expanded to cells in scratch (tvm_ext_dsp_product.h) once; then each weight is read once. Rows of whole
 * units may be multiplied directly instead, without scratch. A bias includes the zero point's part of its channel's
 * sums. Last channels that do not fill four may have weights of their own, without padding. */
#ifndef TVM_EXT_DSP_DENSE_H
#define TVM_EXT_DSP_DENSE_H

#include <stddef.h>

#include "tvm_ext_dsp_product.h"
#include "tvm_ext_dsp_requantize.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_DSP_WIDTH 4

typedef struct {
    int32_t rows;
    int32_t depth;           /* elements of a row of the input */
    int32_t channels;        /* elements of a row of the output */
    int32_t rest;            /* last channels, which are computed one by one; the others are padded to fours */
    bool has_unsigned_input; /* uint8, otherwise int8 */
    bool has_joined_weights; /* as described in tvm_ext_dsp_product.h */
    bool has_nibbles;        /* weights of 4 bits; a word precedes the cells */
    bool is_direct;          /* products of a row's bytes, not of cells */
    bool holds_sums;         /* the output: 32-bit sums, before requantization */
    int32_t block_bytes;     /* from the numbers of four channels to those of the next four, if a block has fewer */
    tvm_ext_dsp_requantize requantize;
} tvm_ext_dsp_dense_layer;

/* Computes all channels of a row from its cells, some at a time: a function of tvm_ext_dsp_single.h. */
typedef void tvm_ext_dsp_single(uint8_t *output, const int8_t *weights, const uint32_t *cells, int32_t units,
                                int32_t blocks, int32_t rounding);

/* Returns the units of two cells in a row. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_dense_units(const tvm_ext_dsp_dense_layer *layer)
{
    return (layer->depth + 3) / 4;
}

/* Expands `count` elements of a row to cells; returns the address of the next cell. */
TVM_EXT_INLINE uint32_t *tvm_ext_dsp_dense_expand(const tvm_ext_dsp_dense_layer *layer, uint32_t *cell,
                                                  const void *elements, int32_t count)
{
    return layer->has_unsigned_input ? tvm_ext_dsp_expand_1_u8(cell, (const uint8_t *)elements, count)
                                     : tvm_ext_dsp_expand_1_s8(cell, (const int8_t *)elements, count);
}

/* Computes sums of four channels, which begin at `start`. x: cells, or bytes if the layer is direct. */
TVM_EXT_INLINE void tvm_ext_dsp_dense_product(const tvm_ext_dsp_dense_layer *layer, int32_t *sums, const void *x,
                                              const int8_t *weights, const int32_t *start, int32_t units)
{
    if (layer->has_nibbles) {
        tvm_ext_dsp_product_1x4_s4(sums, x, weights, start, units);
    } else if (!layer->is_direct) {
        if (layer->has_joined_weights) {
            tvm_ext_dsp_product_1x4_joined(sums, x, weights, start, units);
        } else {
            tvm_ext_dsp_product_1x4(sums, x, weights, start, units);
        }
    } else if (layer->has_unsigned_input) {
        if (layer->has_joined_weights) {
            tvm_ext_dsp_product_1x4_u8_joined(sums, x, weights, start, units);
        } else {
            tvm_ext_dsp_product_1x4_u8(sums, x, weights, start, units);
        }
    } else {
        if (layer->has_joined_weights) {
            tvm_ext_dsp_product_1x4_s8_joined(sums, x, weights, start, units);
        } else {
            tvm_ext_dsp_product_1x4_s8(sums, x, weights, start, units);
        }
    }
}

/* Adds the products of one unit to the sums of the last `rest` channels. x, weights: of this unit. */
TVM_EXT_INLINE void tvm_ext_dsp_dense_add_unit(const tvm_ext_dsp_dense_layer *layer, int32_t *sums, const void *x,
                                               const int8_t *weights)
{
    const uint32_t *const cells = (const uint32_t *)x;
    const uint32_t word = layer->is_direct ? tvm_ext_dsp_load(x) : 0u;
    const uint32_t even = !layer->is_direct           ? cells[0]
                          : layer->has_unsigned_input ? tvm_ext_dsp_even_u8(word)
                                                      : tvm_ext_dsp_even_s8(word);
    const uint32_t odd = !layer->is_direct           ? cells[1]
                         : layer->has_unsigned_input ? tvm_ext_dsp_odd_u8(word)
                                                     : tvm_ext_dsp_odd_s8(word);
    for (int32_t k = 0; k < layer->rest; ++k) {
        const uint32_t w = tvm_ext_dsp_load(&weights[4 * k]);
        sums[k] = tvm_ext_dsp_smlad(even, tvm_ext_dsp_even_s8(w), sums[k]);
        sums[k] = tvm_ext_dsp_smlad(odd, tvm_ext_dsp_odd_s8(w), sums[k]);
    }
}

/* Computes sums of the last `rest` channels, which begin at `start`. weights: of each unit a word of each of these
 * channels, whose even bytes belong to the unit's first cell. */
TVM_EXT_INLINE void tvm_ext_dsp_dense_product_rest(const tvm_ext_dsp_dense_layer *layer, int32_t *sums, const void *x,
                                                   const int8_t *weights, const int32_t *start, int32_t units)
{
    const int32_t unit_bytes = layer->is_direct ? 4 : 8;
    const int32_t rest = layer->rest;
    const uint8_t *const bytes = (const uint8_t *)x;
    int32_t totals[TVM_EXT_DSP_WIDTH] = {0};
    for (int32_t k = 0; k < rest; ++k) {
        totals[k] = start[k];
    }
    for (int32_t u = 0; u < units; ++u) {
        tvm_ext_dsp_dense_add_unit(layer, totals, &bytes[u * unit_bytes], &weights[4 * u * rest]);
    }
    for (int32_t k = 0; k < rest; ++k) {
        sums[k] = totals[k];
    }
}

/* Stores `count` elements of the output from channel k on, or sums. */
TVM_EXT_INLINE void tvm_ext_dsp_dense_finish(const tvm_ext_dsp_dense_layer *layer, uint8_t *output, const int32_t *sums,
                                             const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                             int32_t k, int32_t count)
{
    const int32_t down = layer->has_nibbles && tvm_ext_dsp_takes_sums(&layer->requantize) ? 4 : 0;
    for (int32_t j = 0; j < count; ++j) {
        if (layer->holds_sums) {
            ((int32_t *)(void *)output)[k + j] = sums[j];
            continue;
        }
        const int32_t multiplier = tvm_ext_dsp_multiplier(&layer->requantize, multipliers, k + j);
        const int32_t shift = tvm_ext_dsp_shift(&layer->requantize, shifts, k + j);
        output[k + j] = (uint8_t)tvm_ext_dsp_element_once(&layer->requantize, sums[j] >> down, multiplier, shift);
    }
}

/* Computes all rows of the output. weights: channels in fours, as described in tvm_ext_dsp_product.h, then those of
 * tvm_ext_dsp_dense_product_rest. scratch: cells of a row; NULL if the layer is direct. */
TVM_EXT_INLINE void tvm_ext_dsp_dense(const tvm_ext_dsp_dense_layer *layer, const void *input, void *output,
                                      const int8_t *restrict weights, const int32_t *restrict bias,
                                      const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                      void *scratch)
{
    const int32_t units = tvm_ext_dsp_dense_units(layer);
    const int32_t channel_bytes = layer->has_nibbles ? 2 : 4; /* bytes of a channel's weights in a unit */
    const int32_t full = layer->channels - (layer->channels % TVM_EXT_DSP_WIDTH);
    for (int32_t m = 0; m < layer->rows; ++m) {
        uint8_t *const row = &((uint8_t *)output)[m * layer->channels * (layer->holds_sums ? 4 : 1)];
        const void *x = &((const uint8_t *)input)[m * layer->depth];
        int32_t sums[TVM_EXT_DSP_WIDTH];
        if (layer->has_nibbles) {
            (void)tvm_ext_dsp_dense_expand(layer, &((uint32_t *)scratch)[1], x, layer->depth);
            tvm_ext_dsp_offsets_1((uint32_t *)scratch, units);
            x = scratch;
        } else if (!layer->is_direct) {
            (void)tvm_ext_dsp_dense_expand(layer, (uint32_t *)scratch, x, layer->depth);
            x = scratch;
        }
        for (int32_t k = 0; k < full; k += TVM_EXT_DSP_WIDTH) {
            tvm_ext_dsp_dense_product(layer, sums, x, &weights[k * units * channel_bytes], &bias[k], units);
            tvm_ext_dsp_dense_finish(layer, row, sums, multipliers, shifts, k, TVM_EXT_DSP_WIDTH);
        }
        if (full < layer->channels) {
            const int8_t *const last = &weights[full * units * channel_bytes];
            if (layer->rest > 0) {
                tvm_ext_dsp_dense_product_rest(layer, sums, x, last, &bias[full], units);
            } else {
                tvm_ext_dsp_dense_product(layer, sums, x, last, &bias[full], units);
            }
            tvm_ext_dsp_dense_finish(layer, row, sums, multipliers, shifts, full, layer->channels - full);
        }
    }
}

/* Computes all rows of the output from products to bytes, or sums, in registers. weights: with the numbers before and
 * after them, as described in tvm_ext_dsp_single.h. */
TVM_EXT_INLINE void tvm_ext_dsp_dense_rows(const tvm_ext_dsp_dense_layer *layer, tvm_ext_dsp_single *compute,
                                           const void *input, void *output, const int8_t *restrict weights,
                                           int32_t rounding, void *scratch)
{
    const int32_t units = tvm_ext_dsp_dense_units(layer);
    const int32_t element_bytes = layer->holds_sums ? 4 : 1;
    const int32_t blocks = layer->channels / TVM_EXT_DSP_WIDTH;
    const int32_t rest = layer->channels % TVM_EXT_DSP_WIDTH;
    for (int32_t m = 0; m < layer->rows; ++m) {
        const void *const x = &((const uint8_t *)input)[m * layer->depth];
        uint8_t *const row = &((uint8_t *)output)[m * layer->channels * element_bytes];
        (void)tvm_ext_dsp_dense_expand(layer, (uint32_t *)scratch, x, layer->depth);
        if (blocks > 0) {
            compute(row, weights, (const uint32_t *)scratch, units, blocks, rounding);
        }
        if (rest > 0) {
            int32_t last[TVM_EXT_DSP_WIDTH];
            compute((uint8_t *)last, &weights[blocks * layer->block_bytes], (const uint32_t *)scratch, units, 1,
                    rounding);
            (void)memcpy(&row[blocks * TVM_EXT_DSP_WIDTH * element_bytes], last, (uint32_t)(rest * element_bytes));
        }
    }
}

/* Adds products of the cells in scratch to the sums of all channels, for one row whose elements come in parts.
 *
 * Units [begin, end) of a row are in scratch. Sums begin at the bias; the last part stores the elements of the
 * output. There are as many sums as biases. */
TVM_EXT_INLINE void tvm_ext_dsp_dense_add(const tvm_ext_dsp_dense_layer *layer, void *output, int32_t *sums,
                                          const int8_t *restrict weights, const int32_t *restrict bias,
                                          const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                          const uint32_t *cells, int32_t begin, int32_t end)
{
    const int32_t units = tvm_ext_dsp_dense_units(layer);
    const int32_t rest = layer->rest;
    const int32_t full = layer->channels - rest;
    const int32_t *const start = begin > 0 ? sums : bias;
    for (int32_t k = 0; k < full; k += TVM_EXT_DSP_WIDTH) {
        const int8_t *const part = &weights[((k * units) + (begin * TVM_EXT_DSP_WIDTH)) * 4];
        tvm_ext_dsp_dense_product(layer, &sums[k], cells, part, &start[k], end - begin);
    }
    if (rest > 0) {
        const int8_t *const part = &weights[((full * units) + (begin * rest)) * 4];
        tvm_ext_dsp_dense_product_rest(layer, &sums[full], cells, part, &start[full], end - begin);
    }
    if (end == units) {
        for (int32_t k = 0; k < layer->channels; ++k) {
            tvm_ext_dsp_dense_finish(layer, (uint8_t *)output, &sums[k], multipliers, shifts, k, 1);
        }
    }
}

#endif
