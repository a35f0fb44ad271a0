/* Interpolation of quantized images in plain C: weighted sums of a few elements of a few rows.
 *
 * The sums of a column over its rows are kept until no pixel needs them: neighbouring pixels of a larger output read
 * the same columns. Both sums are exact, so their order does not matter. */
#ifndef TVM_EXT_QINTERPOLATE_H
#define TVM_EXT_QINTERPOLATE_H

#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"

/* Loops over channels, of which four are written out. */
#if defined(__GNUC__) && !defined(__clang__)
#define TVM_EXT_BY_FOURS _Pragma("GCC unroll 4")
#else
#define TVM_EXT_BY_FOURS
#endif

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    int32_t row_taps;       /* up to 4, or a multiple of 4 */
    int32_t slots;          /* columns whose sums are kept at the same time: up to 4, or a multiple of 4 */
    int32_t slot_stride;    /* from the sum of one column to that of the next column */
    int32_t channel_stride; /* from the sum of one channel to that of the next channel */
    int32_t channels;       /* those whose sums are kept: rounded up to whole vectors */
    int32_t start;          /* minus the zero point, in the unit of the sums of a column */
    bool only_shifts;       /* the factor of a sum is 1 / 2^shift */
    bool by_high_product;   /* it is multiplier / 2^(32 + shift), and no sum lies halfway between two results */
    int32_t multiplier;     /* otherwise it is multiplier / 2^shift */
    int32_t shift;
    int32_t rounding;       /* the output's zero point and a half, in the unit of the high product */
    int32_t low;
    int32_t high;
} tvm_ext_qinterpolate_layer;

/* Places of up to four input rows, and their weights. */
typedef struct {
    const void *x[4];
    int32_t weight[4];
} tvm_ext_weighted_rows;

/* Returns the element of a sum. */
TVM_EXT_INLINE int32_t tvm_ext_qinterpolate_element(const tvm_ext_qinterpolate_layer *layer, int32_t sum)
{
    int32_t value;
    if (layer->only_shifts) {
        const int32_t odd = (sum >> layer->shift) & 1;
        value = ((sum + (1 << (layer->shift - 1)) - 1 + odd) >> layer->shift) + layer->output.zero_point;
    } else if (layer->by_high_product) {
        value = ((int32_t)(((int64_t)sum * layer->multiplier) >> 32) + layer->rounding) >> layer->shift;
    } else {
        value = tvm_ext_requantize(sum, layer->multiplier, layer->shift) + layer->output.zero_point;
    }
    return tvm_ext_limited(value, layer->low, layer->high);
}

/* Adds weighted elements of all channels of a column to its sums; the first elements set them. */
TVM_EXT_INLINE void tvm_ext_qinterpolate_add(const tvm_ext_qinterpolate_layer *layer, const tvm_ext_weighted_rows *rows,
                                             int32_t count, int32_t *sums, bool is_first)
{
    TVM_EXT_BY_FOURS
    for (int32_t c = 0; c < layer->input.channels; ++c) {
        int32_t *const place = &sums[c * layer->channel_stride];
        int32_t sum = is_first ? layer->start : *place;
        sum += rows->weight[0] * tvm_ext_element(&layer->input, rows->x[0], c);
        if (count > 1) {
            sum += rows->weight[1] * tvm_ext_element(&layer->input, rows->x[1], c);
        }
        if (count > 2) {
            sum += rows->weight[2] * tvm_ext_element(&layer->input, rows->x[2], c);
        }
        if (count > 3) {
            sum += rows->weight[3] * tvm_ext_element(&layer->input, rows->x[3], c);
        }
        *place = sum;
    }
}

/* Adds the weighted sums of the columns in up to four slots; after the last of them, writes the elements of a pixel
 * instead of `sums`. */
TVM_EXT_INLINE void tvm_ext_qinterpolate_finish(const tvm_ext_qinterpolate_layer *layer, const int32_t *slots,
                                                const int16_t *weights, int32_t count, int32_t *sums, void *pixel,
                                                bool is_first, bool is_last)
{
    const int32_t step = layer->slot_stride;
    const int32_t weight0 = weights[0];
    const int32_t weight1 = count > 1 ? weights[1] : 0;
    const int32_t weight2 = count > 2 ? weights[2] : 0;
    const int32_t weight3 = count > 3 ? weights[3] : 0;
    TVM_EXT_BY_FOURS
    for (int32_t c = 0; c < layer->input.channels; ++c) {
        const int32_t *const kept = &slots[c * layer->channel_stride];
        int32_t sum = (is_first ? 0 : sums[c]) + (weight0 * kept[0]);
        if (count > 1) {
            sum += weight1 * kept[step];
        }
        if (count > 2) {
            sum += weight2 * kept[2 * step];
        }
        if (count > 3) {
            sum += weight3 * kept[3 * step];
        }
        if (is_last) {
            tvm_ext_set(&layer->output, pixel, c, tvm_ext_qinterpolate_element(layer, sum));
        } else {
            sums[c] = sum;
        }
    }
}

typedef void (*tvm_ext_qinterpolate_adds)(const tvm_ext_qinterpolate_layer *, const tvm_ext_weighted_rows *, int32_t,
                                          int32_t *, bool);
typedef void (*tvm_ext_qinterpolate_finishes)(const tvm_ext_qinterpolate_layer *, const int32_t *, const int16_t *,
                                              int32_t, int32_t *, void *, bool, bool);

/* Returns `count` places of column 0 in the input rows of an output row, and their weights. */
TVM_EXT_INLINE tvm_ext_weighted_rows tvm_ext_qinterpolate_rows(const tvm_ext_qinterpolate_layer *layer,
                                                               const void *input, const int16_t *places,
                                                               const int16_t *weights, int32_t n, int32_t count)
{
    tvm_ext_weighted_rows found = {{input, input, input, input}, {0, 0, 0, 0}};
    for (int32_t r = 0; r < count; ++r) {
        found.x[r] = tvm_ext_source(&layer->input, input, tvm_ext_row(&layer->input, n, places[r]));
        found.weight[r] = weights[r];
    }
    return found;
}

/* Computes output rows [row_begin, row_end) of all images.
 *
 * rows, row_weights: the input rows of each output row. columns: for each output column the number of input columns
 * whose sums are not kept yet, these columns, each with its slot, and the weights of all slots. kept: sums of a pixel,
 * then the slots. */
TVM_EXT_INLINE void tvm_ext_qinterpolate(const tvm_ext_qinterpolate_layer *layer, tvm_ext_qinterpolate_adds add,
                                         tvm_ext_qinterpolate_finishes finish, const void *input, void *output,
                                         const int16_t *restrict rows, const int16_t *restrict row_weights,
                                         const int16_t *restrict columns, int32_t *kept, int32_t row_begin,
                                         int32_t row_end)
{
    const int32_t row_taps = layer->row_taps;
    const int32_t rows_at_once = row_taps < 4 ? row_taps : 4;
    const int32_t slots_at_once = layer->slots < 4 ? layer->slots : 4;
    int32_t *const slots = &kept[layer->channels];
    for (int32_t i = 0; i < layer->slots * layer->channels; ++i) {
        slots[i] = 0; /* slots that have no column yet have the weight 0 */
    }
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            void *pixel = tvm_ext_target(&layer->output, output, tvm_ext_row(&layer->output, n, h));
            const tvm_ext_weighted_rows first = tvm_ext_qinterpolate_rows(layer, input, &rows[h * row_taps],
                                                                          &row_weights[h * row_taps], n, rows_at_once);
            const int16_t *next = columns;
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                for (int32_t fresh = *next++; fresh > 0; --fresh) {
                    const int32_t place = next[0] * layer->input.pitch;
                    int32_t *const slot = &slots[next[1] * layer->slot_stride];
                    next += 2;
                    for (int32_t r = 0; r < row_taps; r += rows_at_once) {
                        tvm_ext_weighted_rows from = first;
                        if (r > 0) {
                            from = tvm_ext_qinterpolate_rows(layer, input, &rows[(h * row_taps) + r],
                                                             &row_weights[(h * row_taps) + r], n, rows_at_once);
                        }
                        for (int32_t i = 0; i < rows_at_once; ++i) {
                            from.x[i] = tvm_ext_source(&layer->input, from.x[i], place);
                        }
                        add(layer, &from, rows_at_once, slot, r == 0);
                    }
                }
                for (int32_t t = 0; t < layer->slots; t += slots_at_once) {
                    finish(layer, &slots[t * layer->slot_stride], next, slots_at_once, kept, pixel, t == 0,
                           t + slots_at_once == layer->slots);
                    next += slots_at_once;
                }
                pixel = tvm_ext_target(&layer->output, pixel, layer->output.pitch);
            }
        }
    }
}

#endif
