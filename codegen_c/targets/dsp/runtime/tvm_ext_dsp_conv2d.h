/* Convolution of quantized images by the DSP extension: three output pixels by two channels at a time, or two pixels by
 * four channels.
 *
 * The windows of these pixels are expanded to cells in scratch (tvm_ext_dsp_product.h), padding as zero points, so
 * that borders and the inside run the same code; then all channels read them. Element types and zero points are
 * those of the images. A bias includes the zero point's part of its channel's sums. If channels have groups, the cells
 * of a group follow those of the group before, and its channels read these alone. */
#ifndef TVM_EXT_DSP_CONV2D_H
#define TVM_EXT_DSP_CONV2D_H

#include <stddef.h>

#include "tvm_ext_dsp_product.h"
#include "tvm_ext_dsp_requantize.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_DSP_FEW 16 /* adjacent elements that are expanded without loops */

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    bool has_joined_weights; /* as described in tvm_ext_dsp_product.h */
    bool has_nibbles; /* weights of 4 bits; a word of each pixel precedes the cells */
    int32_t groups; /* groups of an even number of output channels each; 0 for none */
    bool by_twos; /* two pixels at a time (tvm_ext_dsp_quads.h) instead of three */
    tvm_ext_dsp_requantize requantize;
} tvm_ext_dsp_conv2d_layer;

/* Computes all channels of two or three pixels from their cells, which it may change; `output`: the first element of
 * each pixel. Missing pixels are replaced by the first one. It is not inlined, so that it has all registers to itself;
 * compilers call it directly. */
typedef void tvm_ext_dsp_pixels(uint8_t *const output[TVM_EXT_DSP_PIXELS], const int8_t *restrict weights,
                                const int32_t *restrict bias, const int32_t *restrict multipliers,
                                const uint8_t *restrict shifts, uint32_t *cells);

/* Returns the pixels that are computed at a time: cells of each follow each other at this step. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_at_once(const tvm_ext_dsp_conv2d_layer *layer)
{
    return layer->by_twos ? TVM_EXT_DSP_PIXELS - 1 : TVM_EXT_DSP_PIXELS;
}

/* Returns true if the pixels that are computed at a time are always in one row. */
TVM_EXT_INLINE bool tvm_ext_dsp_fills_rows(const tvm_ext_dsp_conv2d_layer *layer)
{
    return !layer->has_nibbles && layer->output.columns % tvm_ext_dsp_at_once(layer) == 0;
}

/* Returns the cells of `count` adjacent elements of one pixel. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_num_cells(int32_t count)
{
    return (count / 4 * 2) + (((count % 4) + 1) / 2);
}

/* Returns the input channels of one group. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_depth(const tvm_ext_dsp_conv2d_layer *layer)
{
    return layer->groups > 1 ? layer->input.channels / layer->groups : layer->input.channels;
}

/* Returns true if taps of a kernel row are expanded one by one: each fills whole cells, or they are not adjacent. */
TVM_EXT_INLINE bool tvm_ext_dsp_is_by_taps(const tvm_ext_dsp_conv2d_layer *layer)
{
    return layer->groups > 1 || layer->input.channels % 4 == 0 || layer->window.column_dilation > 1;
}

/* Returns true if kernel rows that are expanded at once have an odd number of elements. The last ones of two rows then
 * share a cell, and these cells follow those of all rows. */
TVM_EXT_INLINE bool tvm_ext_dsp_has_singles(const tvm_ext_dsp_conv2d_layer *layer)
{
    return !tvm_ext_dsp_is_by_taps(layer) && layer->window.rows > 1 &&
           layer->window.columns * layer->input.channels % 2 == 1;
}

/* Returns the cells of a kernel row, or of one in a group, without its single element. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_row_cells(const tvm_ext_dsp_conv2d_layer *layer)
{
    const int32_t taps = layer->window.columns;
    return tvm_ext_dsp_is_by_taps(layer)
               ? taps * tvm_ext_dsp_num_cells(tvm_ext_dsp_depth(layer))
               : tvm_ext_dsp_num_cells((taps * layer->input.channels) - (tvm_ext_dsp_has_singles(layer) ? 1 : 0));
}

/* Returns the units of two cells in one pixel's window, or in one group of it. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_conv2d_units(const tvm_ext_dsp_conv2d_layer *layer)
{
    const int32_t singles = tvm_ext_dsp_has_singles(layer) ? (layer->window.rows + 1) / 2 : 0;
    return ((layer->window.rows * tvm_ext_dsp_row_cells(layer)) + singles + 1) / 2;
}

/* Expands four adjacent elements of one pixel to two cells. */
TVM_EXT_INLINE void tvm_ext_dsp_expand_four(const tvm_ext_dsp_conv2d_layer *layer, uint32_t *cell, const uint8_t *bytes)
{
    const bool is_unsigned = layer->input.is_unsigned;
    const uint32_t word = tvm_ext_dsp_load(bytes);
    cell[0] = is_unsigned ? tvm_ext_dsp_even_u8(word) : tvm_ext_dsp_even_s8(word);
    cell[tvm_ext_dsp_at_once(layer)] = is_unsigned ? tvm_ext_dsp_odd_u8(word) : tvm_ext_dsp_odd_s8(word);
}

/* Returns a cell of one element or two. */
TVM_EXT_INLINE uint32_t tvm_ext_dsp_expand_rest(const tvm_ext_image *input, const uint8_t *bytes, int32_t count)
{
    const int32_t first = input->is_unsigned ? (int32_t)bytes[0] : (int32_t)((const int8_t *)bytes)[0];
    if (count == 1) {
        return (uint32_t)first & 0xffffu;
    }
    const int32_t second = input->is_unsigned ? (int32_t)bytes[1] : (int32_t)((const int8_t *)bytes)[1];
    return tvm_ext_dsp_lows((uint32_t)first, (uint32_t)second);
}

/* Expands `count` adjacent elements of one pixel to cells; a few are expanded inline, without loops. */
TVM_EXT_INLINE uint32_t *tvm_ext_dsp_expand(const tvm_ext_dsp_conv2d_layer *layer, uint32_t *cell, const uint8_t *bytes,
                                            int32_t count)
{
    const tvm_ext_image *const input = &layer->input;
    const int32_t step = tvm_ext_dsp_at_once(layer);
    if (count <= TVM_EXT_DSP_FEW) {
        const int32_t fours = count / 4;
        if (fours > 0) {
            tvm_ext_dsp_expand_four(layer, cell, bytes);
        }
        if (fours > 1) {
            tvm_ext_dsp_expand_four(layer, &cell[2 * step], &bytes[4]);
        }
        if (fours > 2) {
            tvm_ext_dsp_expand_four(layer, &cell[4 * step], &bytes[8]);
        }
        if (fours > 3) {
            tvm_ext_dsp_expand_four(layer, &cell[6 * step], &bytes[12]);
        }
        cell += 2 * fours * step;
        bytes += 4 * fours;
        if (count % 4 > 0) {
            *cell = tvm_ext_dsp_expand_rest(input, bytes, count % 4);
            cell += step;
        }
        if (count % 4 > 2) {
            *cell = tvm_ext_dsp_expand_rest(input, &bytes[2], 1);
            cell += step;
        }
        return cell;
    }
    if (layer->by_twos) {
        return input->is_unsigned ? tvm_ext_dsp_expand_2_u8(cell, bytes, count)
                                  : tvm_ext_dsp_expand_2_s8(cell, (const int8_t *)bytes, count);
    }
    return input->is_unsigned ? tvm_ext_dsp_expand_3_u8(cell, bytes, count)
                              : tvm_ext_dsp_expand_3_s8(cell, (const int8_t *)bytes, count);
}

/* Fills cells with padding. */
TVM_EXT_INLINE uint32_t *tvm_ext_dsp_pad(const tvm_ext_dsp_conv2d_layer *layer, uint32_t *cell, int32_t num_cells)
{
    const uint32_t pair = ((uint32_t)layer->input.zero_point & 0xffffu) * 0x10001u;
    return tvm_ext_dsp_fill(cell, pair, num_cells, tvm_ext_dsp_at_once(layer));
}

/* Writes the single element of kernel row r to its cell. cells: those of all rows' singles. */
TVM_EXT_INLINE void tvm_ext_dsp_put_single(const tvm_ext_dsp_conv2d_layer *layer, uint32_t *cells, int32_t r,
                                           uint32_t element)
{
    uint32_t *const cell = &cells[r / 2 * tvm_ext_dsp_at_once(layer)];
    if (r % 2 == 0) {
        *cell = element & 0xffffu;
    } else {
        tvm_ext_dsp_store_high(cell, element);
    }
}

/* Expands the adjacent taps of kernel row r; a single element goes to its own cell. */
TVM_EXT_INLINE uint32_t *tvm_ext_dsp_expand_adjacent(const tvm_ext_dsp_conv2d_layer *layer, uint32_t *cell,
                                                     uint32_t *singles, int32_t r, const uint8_t *bytes)
{
    const int32_t count = layer->window.columns * layer->input.channels;
    if (!tvm_ext_dsp_has_singles(layer)) {
        return tvm_ext_dsp_expand(layer, cell, bytes, count);
    }
    tvm_ext_dsp_put_single(layer, singles, r, tvm_ext_dsp_expand_rest(&layer->input, &bytes[count - 1], 1));
    return tvm_ext_dsp_expand(layer, cell, bytes, count - 1);
}

/* Expands the taps of kernel row r, the first of which reads column `left`. singles: cells of single elements.
 * padded: memory for a row of taps. */
TVM_EXT_INLINE uint32_t *tvm_ext_dsp_expand_taps(const tvm_ext_dsp_conv2d_layer *layer, uint32_t *cell,
                                                 uint32_t *singles, int32_t r, const uint8_t *row, int32_t left,
                                                 uint8_t *padded)
{
    const tvm_ext_image *const input = &layer->input;
    const int32_t channels = input->channels;
    const int32_t taps = layer->window.columns;
    const bool is_padded = layer->window.left > 0 || layer->window.right > 0;
    const bool is_adjacent = layer->window.column_dilation == 1;
    if (is_adjacent && (!is_padded || (left >= 0 && left <= input->columns - taps))) {
        return tvm_ext_dsp_expand_adjacent(layer, cell, singles, r, &row[left * channels]);
    }
    if (tvm_ext_dsp_is_by_taps(layer)) {
        for (int32_t s = 0; s < taps; ++s) {
            const int32_t x = left + (s * layer->window.column_dilation);
            if (is_padded && (x < 0 || x >= input->columns)) {
                cell = tvm_ext_dsp_pad(layer, cell, tvm_ext_dsp_num_cells(channels));
            } else {
                cell = tvm_ext_dsp_expand(layer, cell, &row[x * channels], channels);
            }
        }
        return cell;
    }
    for (int32_t i = 0; i < taps * channels; ++i) {
        const int32_t x = (left * channels) + i;
        padded[i] = x < 0 || x >= input->columns * channels ? (uint8_t)input->zero_point : row[x];
    }
    return tvm_ext_dsp_expand_adjacent(layer, cell, singles, r, padded);
}

/* Returns the index of the first element of row y of a window, from the index `start` of its first row, `top`. The rows
 * of a window are stored at once, so that a ring buffer ends at most once among them. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_window_row(const tvm_ext_image *image, int32_t start, int32_t top, int32_t y)
{
    const int32_t row = start + ((y - top) * tvm_ext_row_elements(image));
    const int32_t end = image->is_ring ? image->ring_rows * tvm_ext_row_elements(image) : row + 1;
    return row < end ? row : row - end;
}

/* Returns the index at which row `top` of image n begins. Rows above the image are counted back from its first row, so
 * that the rows of a window follow each other. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_window_start(const tvm_ext_dsp_conv2d_layer *layer, int32_t n, int32_t top)
{
    const int32_t inside = layer->window.top > 0 && top < 0 ? 0 : top;
    return tvm_ext_row(&layer->input, n, inside) - ((inside - top) * tvm_ext_row_elements(&layer->input));
}

/* Expands one tap of a pixel to the cells of all groups, `step` words from group to group; `bytes` is NULL for a tap
 * of padding. Of channels in groups of two, four are expanded at a time. */
TVM_EXT_INLINE void tvm_ext_dsp_expand_grouped_tap(const tvm_ext_dsp_conv2d_layer *layer, uint32_t *cell, int32_t step,
                                                   const uint8_t *bytes)
{
    const tvm_ext_image *const input = &layer->input;
    const int32_t depth = tvm_ext_dsp_depth(layer);
    if ((layer->window.top > 0 || layer->window.left > 0 || layer->window.bottom > 0 || layer->window.right > 0) &&
        bytes == NULL) {
        for (int32_t g = 0; g < layer->groups; ++g) {
            (void)tvm_ext_dsp_pad(layer, &cell[g * step], tvm_ext_dsp_num_cells(depth));
        }
    } else if (depth == 2 && layer->groups % 2 == 0) {
        for (int32_t g = 0; g < layer->groups; g += 2) {
            const uint32_t word = tvm_ext_dsp_load(&bytes[2 * g]);
            const uint32_t even = input->is_unsigned ? tvm_ext_dsp_even_u8(word) : tvm_ext_dsp_even_s8(word);
            const uint32_t odd = input->is_unsigned ? tvm_ext_dsp_odd_u8(word) : tvm_ext_dsp_odd_s8(word);
            cell[g * step] = tvm_ext_dsp_lows(even, odd);
            cell[(g + 1) * step] = tvm_ext_dsp_highs(even, odd);
        }
    } else {
        for (int32_t g = 0; g < layer->groups; ++g) {
            (void)tvm_ext_dsp_expand(layer, &cell[g * step], &bytes[g * depth], depth);
        }
    }
}

/* Expands a window as the function below does, if channels have groups: each tap to the cells of all groups. */
TVM_EXT_INLINE void tvm_ext_dsp_expand_groups(const tvm_ext_dsp_conv2d_layer *layer, uint32_t *cell,
                                              const uint8_t *input, int32_t start, int32_t top, int32_t left)
{
    const tvm_ext_window *const window = &layer->window;
    const tvm_ext_image *const image = &layer->input;
    const int32_t step = 2 * tvm_ext_dsp_conv2d_units(layer) * TVM_EXT_DSP_PIXELS;
    const bool has_rows = window->top > 0 || window->bottom > 0;
    const bool has_columns = window->left > 0 || window->right > 0;
    for (int32_t r = 0; r < window->rows; ++r) {
        const int32_t y = top + (r * window->row_dilation);
        const bool is_outside = has_rows && (y < 0 || y >= image->rows);
        const int32_t row = is_outside ? 0 : tvm_ext_dsp_window_row(image, start, top, y);
        for (int32_t s = 0; s < window->columns; ++s) {
            const int32_t x = left + (s * window->column_dilation);
            const bool is_padding = is_outside || (has_columns && (x < 0 || x >= image->columns));
            tvm_ext_dsp_expand_grouped_tap(layer, cell, step, is_padding ? NULL : &input[row + (x * image->channels)]);
            cell += tvm_ext_dsp_num_cells(tvm_ext_dsp_depth(layer)) * TVM_EXT_DSP_PIXELS;
        }
    }
}

/* Expands the window that begins with row `top` and column `left` of an image, whose row `top` begins at `start`. */
TVM_EXT_INLINE void tvm_ext_dsp_expand_window(const tvm_ext_dsp_conv2d_layer *layer, uint32_t *cell,
                                              const uint8_t *input, int32_t start, int32_t top, int32_t left,
                                              uint8_t *padded)
{
    const tvm_ext_window *const window = &layer->window;
    if (layer->groups > 1) {
        tvm_ext_dsp_expand_groups(layer, cell, input, start, top, left);
        return;
    }
    const int32_t row_cells = tvm_ext_dsp_row_cells(layer);
    uint32_t *const singles = &cell[window->rows * row_cells * tvm_ext_dsp_at_once(layer)];
#pragma GCC unroll 4
    for (int32_t r = 0; r < window->rows; ++r) {
        const int32_t y = top + (r * window->row_dilation);
        if ((window->top > 0 || window->bottom > 0) && (y < 0 || y >= layer->input.rows)) {
            cell = tvm_ext_dsp_pad(layer, cell, row_cells);
            if (tvm_ext_dsp_has_singles(layer)) {
                tvm_ext_dsp_put_single(layer, singles, r, (uint32_t)layer->input.zero_point);
            }
        } else {
            const int32_t row = tvm_ext_dsp_window_row(&layer->input, start, top, y);
            cell = tvm_ext_dsp_expand_taps(layer, cell, singles, r, &input[row], left, padded);
        }
    }
}

/* Computes `count` channels, 1 or 2, of three pixels from channel k on. */
TVM_EXT_INLINE void tvm_ext_dsp_conv2d_channels(const tvm_ext_dsp_conv2d_layer *layer,
                                                uint8_t *const output[TVM_EXT_DSP_PIXELS],
                                                const int8_t *restrict weights, const int32_t *restrict bias,
                                                const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                                const uint32_t *cells, int32_t k, int32_t count)
{
    const int32_t units = tvm_ext_dsp_conv2d_units(layer);
    int32_t sums[2 * TVM_EXT_DSP_PIXELS];
    if (layer->has_nibbles) {
        tvm_ext_dsp_product_3x2_s4(sums, cells, &weights[k * units * 2], &bias[k], units);
    } else if (layer->has_joined_weights) {
        tvm_ext_dsp_product_3x2_joined(sums, cells, &weights[k * units * 4], &bias[k], units);
    } else {
        tvm_ext_dsp_product_3x2(sums, cells, &weights[k * units * 4], &bias[k], units);
    }
    const int32_t down = layer->has_nibbles && tvm_ext_dsp_takes_sums(&layer->requantize) ? 4 : 0;
    for (int32_t j = 0; j < count; ++j) {
        const int32_t multiplier = tvm_ext_dsp_multiplier(&layer->requantize, multipliers, k + j);
        const int32_t shift = tvm_ext_dsp_shift(&layer->requantize, shifts, k + j);
        const int32_t *const sum = &sums[j * TVM_EXT_DSP_PIXELS];
        if (layer->output.holds_sums) {
            ((int32_t *)(void *)output[2])[k + j] = sum[2];
            ((int32_t *)(void *)output[1])[k + j] = sum[1];
            ((int32_t *)(void *)output[0])[k + j] = sum[0];
            continue;
        }
        output[2][k + j] = (uint8_t)tvm_ext_dsp_element(&layer->requantize, sum[2] >> down, multiplier, shift);
        output[1][k + j] = (uint8_t)tvm_ext_dsp_element(&layer->requantize, sum[1] >> down, multiplier, shift);
        output[0][k + j] = (uint8_t)tvm_ext_dsp_element(&layer->requantize, sum[0] >> down, multiplier, shift);
    }
}

/* A tvm_ext_dsp_pixels, which the function of each layer calls. A missing pixel is replaced by the first one, which
 * is stored last. */
TVM_EXT_INLINE void tvm_ext_dsp_conv2d_pixels(const tvm_ext_dsp_conv2d_layer *layer,
                                              uint8_t *const output[TVM_EXT_DSP_PIXELS], const int8_t *restrict weights,
                                              const int32_t *restrict bias, const int32_t *restrict multipliers,
                                              const uint8_t *restrict shifts, const uint32_t *cells)
{
    const int32_t pairs = layer->output.channels - (layer->output.channels % 2);
    uint8_t *const places[TVM_EXT_DSP_PIXELS] = {output[0], output[1], output[2]}; /* no store can change these */
    const int32_t group_cells = 2 * tvm_ext_dsp_conv2d_units(layer) * TVM_EXT_DSP_PIXELS;
    for (int32_t k = 0; k < pairs; k += 2) {
        const int32_t group = layer->groups > 1 ? k / (layer->output.channels / layer->groups) : 0;
        const uint32_t *const own = &cells[group * group_cells];
        tvm_ext_dsp_conv2d_channels(layer, places, weights, bias, multipliers, shifts, own, k, 2);
    }
    if (pairs < layer->output.channels) {
        tvm_ext_dsp_conv2d_channels(layer, places, weights, bias, multipliers, shifts, cells, pairs, 1);
    }
}

/* Moves the cells of the first of three pixels together. */
TVM_EXT_DSP_SHARED void tvm_ext_dsp_first_of_3(uint32_t *cells, int32_t units)
{
    for (int32_t i = 0; i < 2 * units; i += 2) {
        cells[i] = cells[i * TVM_EXT_DSP_PIXELS];
        cells[i + 1] = cells[(i + 1) * TVM_EXT_DSP_PIXELS];
    }
}

/* Computes output rows [row_begin, row_end) of all images.
 *
 * weights: as described in tvm_ext_dsp_product.h, in the order of `compute`. scratch: cells of all pixels, then a row
 * of taps if taps are not expanded one by one. */
TVM_EXT_INLINE void tvm_ext_dsp_conv2d(const tvm_ext_dsp_conv2d_layer *layer, tvm_ext_dsp_pixels *compute,
                                       const void *input, void *output, const int8_t *restrict weights,
                                       const int32_t *restrict bias, const int32_t *restrict multipliers,
                                       const uint8_t *restrict shifts, void *scratch, int32_t row_begin,
                                       int32_t row_end)
{
    const int32_t columns = layer->output.columns;
    const int32_t units = tvm_ext_dsp_conv2d_units(layer);
    const int32_t at_once = tvm_ext_dsp_at_once(layer);
    uint32_t *const words = (uint32_t *)scratch;
    uint32_t *const cells = layer->has_nibbles ? &words[TVM_EXT_DSP_PIXELS] : words;
    uint8_t *const padded = (uint8_t *)&cells[2 * units * at_once];
    uint8_t *pixels[TVM_EXT_DSP_PIXELS] = {NULL, NULL, NULL};
    int32_t lane = 0;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int32_t top = (h * layer->window.row_stride) - layer->window.top;
            const int32_t start = tvm_ext_dsp_window_start(layer, n, top);
            void *const row = tvm_ext_target(&layer->output, output, tvm_ext_row(&layer->output, n, h));
            if (tvm_ext_dsp_fills_rows(layer)) {
                for (int32_t w = 0; w < columns; w += at_once) {
#pragma GCC unroll 3
                    for (int32_t p = 0; p < at_once; ++p) {
                        const int32_t left = ((w + p) * layer->window.column_stride) - layer->window.left;
                        tvm_ext_dsp_expand_window(layer, &cells[p], (const uint8_t *)input, start, top, left, padded);
                        pixels[p] = (uint8_t *)tvm_ext_target(&layer->output, row, (w + p) * layer->output.pitch);
                    }
                    compute(pixels, weights, bias, multipliers, shifts, words);
                }
                continue;
            }
            for (int32_t w = 0; w < columns; ++w) {
                const int32_t left = (w * layer->window.column_stride) - layer->window.left;
                const bool is_last = w == columns - 1 && h == row_end - 1 && n == layer->output.images - 1;
                tvm_ext_dsp_expand_window(layer, &cells[lane], (const uint8_t *)input, start, top, left, padded);
                pixels[lane] = (uint8_t *)tvm_ext_target(&layer->output, row, w * layer->output.pitch);
                ++lane;
                if (lane < at_once && !is_last) {
                    continue;
                }
                for (; lane < at_once; ++lane) {
                    pixels[lane] = pixels[0];
                }
                if (layer->has_nibbles) {
                    tvm_ext_dsp_offsets_3(words, units);
                }
                compute(pixels, weights, bias, multipliers, shifts, words);
                lane = 0;
            }
        }
    }
}

#endif
