/* Convolution of quantized images by Winograd's F(4, 3) and F(2, 5) in integers with the DSP extension, for windows
 * with 3 or 5 taps along rows or columns and stride 1. The results equal the direct sums of products bit for bit
 * (Winograd, Arithmetic Complexity of Computations, 1980; Lavin and Gray, Fast Algorithms for Convolutional Neural
 * Networks, 2016).
 *
 * A line d of six inputs gives four outputs of three taps, or two of five: Y = A^T [U . V], V = B^T d, U = G g. The
 * elementwise products are summed over the input channels and over the parallel lines of a window. The points of G are
 * 0, 1, -1, 2, -2 and infinity, scaled to integers; with them Y is 24 times the sums modulo 2^32:
 *
 *     B^T = 4  0 -5  0  1  0     A^T = 6 -4 -4  1  1  0
 *           0 -4 -4  1  1  0           0 -4  4  2 -2  0
 *           0  4 -4 -1  1  0           0 -4 -4  4  4  0
 *           0 -2 -1  2  1  0           0 -4  4  8 -8 24
 *           0  2 -1 -2  1  0
 *           0  4  0 -5  0  1     of five taps the first two rows of A^T, the second with 24 at its end
 *
 * Inputs of 8 bits, with zero points as padding, give |V| <= 2550 and |U| <= 3968. Multiplying by the inverse of 3
 * modulo 2^32 leaves 8 times the sums. The bias is 8 times the initial sum, which corrects for the zero point. */
#ifndef TVM_EXT_DSP_WINOGRAD_LINE_H
#define TVM_EXT_DSP_WINOGRAD_LINE_H

#include <stddef.h>

#include "tvm_ext_dsp_requantize.h"
#include "tvm_ext_dsp_winograd_patch.h"
#include "tvm_ext_dsp_winograd_product.h"
#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_DSP_LINE_PLACES 6
#define TVM_EXT_DSP_LINE_OUTPUTS 4
/* The inverse of 3 modulo 2^32, and its double and fourfold. */
#define TVM_EXT_DSP_THIRD 0xaaaaaaabu
#define TVM_EXT_DSP_THIRD_TWICE 0x55555556u
#define TVM_EXT_DSP_THIRD_FOURFOLD 0xaaaaaaacu

typedef struct {
    tvm_ext_image input; /* channels: a multiple of four */
    tvm_ext_image output;
    tvm_ext_window window;
    bool is_upright;                   /* lines lie along columns */
    bool is_dual_issue; /* the core starts two instructions in a cycle */
    tvm_ext_dsp_requantize requantize; /* applies to eight times the sums, or to the sums if it rounds twice */
} tvm_ext_dsp_line_layer;

/* Addresses of a line's outputs, channel 0. An output outside the image has the first one's address, stored last. */
typedef struct {
    uint8_t *outputs[TVM_EXT_DSP_LINE_OUTPUTS];
} tvm_ext_dsp_line_places;

/* Computes all channels of three lines. It is a function of its own so that it has all registers; called directly. */
typedef void tvm_ext_dsp_lines(const tvm_ext_dsp_line_places lines[TVM_EXT_DSP_TILES], const uint32_t *restrict weights,
                               const int32_t *restrict bias, const int32_t *restrict multipliers,
                               const uint8_t *restrict shifts, uint32_t *restrict places);

/* Transforms one of three lines from six adjacent pixels; also a function of its own. */
typedef void tvm_ext_dsp_line_input(uint32_t *restrict places, const uint8_t *pixels);

/* Returns the taps along a line. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_line_taps(const tvm_ext_dsp_line_layer *layer)
{
    return layer->is_upright ? layer->window.rows : layer->window.columns;
}

/* Returns the parallel lines of a window. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_line_across(const tvm_ext_dsp_line_layer *layer)
{
    return layer->is_upright ? layer->window.columns : layer->window.rows;
}

/* Returns the pairs of channels at one position, over all lines of a window. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_line_pairs(const tvm_ext_dsp_line_layer *layer)
{
    return tvm_ext_dsp_line_across(layer) * layer->input.channels / 2;
}

/* Transforms one pair of channels of a line, from the first of its bytes. */
TVM_EXT_INLINE void tvm_ext_dsp_line_pair(const tvm_ext_dsp_line_layer *layer, uint32_t *restrict places,
                                          const uint8_t *pixels, bool is_odd)
{
    const int32_t words = TVM_EXT_DSP_TILES * tvm_ext_dsp_line_pairs(layer);
    uint32_t d[TVM_EXT_DSP_LINE_PLACES];
    for (int32_t s = 0; s < TVM_EXT_DSP_LINE_PLACES; ++s) {
        d[s] = tvm_ext_dsp_winograd_pair(&layer->input, &pixels[s * layer->input.channels], is_odd);
    }
    const uint32_t apart = tvm_ext_dsp_subtract_pair(d[4], d[2]);
    const uint32_t first = tvm_ext_dsp_subtract_pair(d[0], d[2]);
    const uint32_t first_twice = tvm_ext_dsp_add_pair(first, first);
    places[0] = tvm_ext_dsp_add_pair(tvm_ext_dsp_add_pair(first_twice, first_twice), apart);
    const uint32_t second_twice = tvm_ext_dsp_add_pair(d[2], d[2]);
    const uint32_t even = tvm_ext_dsp_subtract_pair(d[4], tvm_ext_dsp_add_pair(second_twice, second_twice));
    const uint32_t one_twice = tvm_ext_dsp_add_pair(d[1], d[1]);
    const uint32_t odd = tvm_ext_dsp_subtract_pair(d[3], tvm_ext_dsp_add_pair(one_twice, one_twice));
    places[words] = tvm_ext_dsp_add_pair(even, odd);
    places[2 * words] = tvm_ext_dsp_subtract_pair(even, odd);
    const uint32_t between = tvm_ext_dsp_subtract_pair(d[3], d[1]);
    const uint32_t twice = tvm_ext_dsp_add_pair(between, between);
    places[3 * words] = tvm_ext_dsp_add_pair(apart, twice);
    places[4 * words] = tvm_ext_dsp_subtract_pair(apart, twice);
    const uint32_t last = tvm_ext_dsp_subtract_pair(d[5], d[3]);
    places[5 * words] = tvm_ext_dsp_subtract_pair(last, tvm_ext_dsp_add_pair(twice, twice));
}

/* The transform function of a layer, tvm_ext_dsp_line_input. */
TVM_EXT_INLINE void tvm_ext_dsp_line_transform(const tvm_ext_dsp_line_layer *layer, uint32_t *restrict places,
                                               const uint8_t *pixels)
{
    const uint8_t *const end = &pixels[layer->input.channels];
    for (; pixels < end; pixels += 4) {
        tvm_ext_dsp_line_pair(layer, places, pixels, false);
        TVM_EXT_DSP_IN_ORDER;
        tvm_ext_dsp_line_pair(layer, &places[TVM_EXT_DSP_TILES], pixels, true);
        TVM_EXT_DSP_IN_ORDER;
        places += 2 * TVM_EXT_DSP_TILES;
    }
}

/* Returns the element of eight times a sum. */
TVM_EXT_INLINE uint8_t tvm_ext_dsp_line_element(const tvm_ext_dsp_line_layer *layer, uint32_t eightfold,
                                                int32_t multiplier, int32_t shift)
{
    const int32_t sum = tvm_ext_dsp_takes_sums(&layer->requantize) ? (int32_t)eightfold >> 3 : (int32_t)eightfold;
    return (uint8_t)tvm_ext_dsp_element(&layer->requantize, sum, multiplier, shift);
}

/* Stores the outputs of channel k of a line. sums: the first of the line. */
TVM_EXT_INLINE void tvm_ext_dsp_line_outputs(const tvm_ext_dsp_line_layer *layer, const tvm_ext_dsp_line_places *line,
                                             const uint32_t *sums, uint32_t bias, int32_t multiplier, int32_t shift,
                                             int32_t k)
{
    const int32_t step = 2 * TVM_EXT_DSP_TILES;
    const uint32_t even_1 = sums[step] + sums[2 * step];
    const uint32_t odd_1 = sums[step] - sums[2 * step];
    const uint32_t even_2 = sums[3 * step] + sums[4 * step];
    const uint32_t odd_2 = sums[3 * step] - sums[4 * step];
    if (tvm_ext_dsp_line_taps(layer) == 3) {
        const uint32_t third = ((((sums[5 * step] * 3u) + odd_2) * 2u) - odd_1) * TVM_EXT_DSP_THIRD_FOURFOLD;
        line->outputs[3][k] = tvm_ext_dsp_line_element(layer, third + bias, multiplier, shift);
        const uint32_t second = (even_2 - even_1) * TVM_EXT_DSP_THIRD_FOURFOLD;
        line->outputs[2][k] = tvm_ext_dsp_line_element(layer, second + bias, multiplier, shift);
        const uint32_t first = (odd_2 - (odd_1 * 2u)) * TVM_EXT_DSP_THIRD_TWICE;
        line->outputs[1][k] = tvm_ext_dsp_line_element(layer, first + bias, multiplier, shift);
    } else {
        const uint32_t first = ((sums[5 * step] * 12u) + odd_2 - (odd_1 * 2u)) * TVM_EXT_DSP_THIRD_TWICE;
        line->outputs[1][k] = tvm_ext_dsp_line_element(layer, first + bias, multiplier, shift);
    }
    const uint32_t none = ((sums[0] * 6u) - (even_1 * 4u) + even_2) * TVM_EXT_DSP_THIRD;
    line->outputs[0][k] = tvm_ext_dsp_line_element(layer, none + bias, multiplier, shift);
}

/* The compute function of a layer, tvm_ext_dsp_lines. In place of missing lines the first one is repeated; it is stored
 * last. */
TVM_EXT_INLINE void tvm_ext_dsp_line_compute(const tvm_ext_dsp_line_layer *layer,
                                             const tvm_ext_dsp_line_places lines[TVM_EXT_DSP_TILES],
                                             const uint32_t *restrict weights, const int32_t *restrict bias,
                                             const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                             uint32_t *restrict places)
{
    const int32_t pairs = tvm_ext_dsp_line_pairs(layer);
    uint32_t *const sums = &places[TVM_EXT_DSP_LINE_PLACES * TVM_EXT_DSP_TILES * pairs];
    for (int32_t first = 0; first < layer->output.channels; first += 2) {
        const uint32_t *const next = &weights[TVM_EXT_DSP_LINE_PLACES * pairs * 2];
        tvm_ext_dsp_winograd_sums(layer->is_dual_issue, sums, places, weights, pairs, next);
        weights = next;
        const int32_t end = TVM_EXT_MIN(first + 2, layer->output.channels);
        for (int32_t k = first; k < end; ++k) {
            const int32_t multiplier = tvm_ext_dsp_multiplier(&layer->requantize, multipliers, k);
            const int32_t shift = tvm_ext_dsp_shift(&layer->requantize, shifts, k);
            for (int32_t t = TVM_EXT_DSP_TILES - 1; t >= 0; --t) {
                tvm_ext_dsp_line_outputs(layer, &lines[t], &sums[((k - first) * TVM_EXT_DSP_TILES) + t],
                                         (uint32_t)bias[k], multiplier, shift, k);
            }
        }
    }
}

/* Returns six pixels along a line from row y and column x of an image on: in place if they are adjacent and inside the
 * image, otherwise copied to the patch with padding. end: of the rows that may be read. */
TVM_EXT_INLINE const uint8_t *tvm_ext_dsp_line_pixels(const tvm_ext_dsp_line_layer *layer, const uint8_t *input,
                                                      int32_t n, int32_t y, int32_t x, int32_t end,
                                                      uint32_t *restrict patch)
{
    const tvm_ext_image *const image = &layer->input;
    const int32_t words = image->channels / 4;
    const bool is_inside = y >= 0 && y < end && x >= 0 && x + TVM_EXT_DSP_LINE_PLACES <= image->columns;
    const uint8_t *pixels = (const uint8_t *)patch;
    if (is_inside && !layer->is_upright) {
        pixels = &input[tvm_ext_row(image, n, y) + (x * image->channels)];
    } else {
        for (int32_t s = 0; s < TVM_EXT_DSP_LINE_PLACES; ++s) {
            const int32_t row = layer->is_upright ? y + s : y;
            const int32_t column = layer->is_upright ? x : x + s;
            if (row >= 0 && row < end && column >= 0 && column < image->columns) {
                const uint8_t *const pixel = &input[tvm_ext_row(image, n, row) + (column * image->channels)];
                tvm_ext_dsp_winograd_copy(&patch[s * words], pixel, words);
            } else {
                tvm_ext_dsp_winograd_fill(&patch[s * words], tvm_ext_dsp_winograd_padding(image), words);
            }
        }
    }
    return pixels;
}

/* Sets the addresses of the outputs of the line that begins at row h and column w. row_end: of the rows to compute. */
TVM_EXT_INLINE void tvm_ext_dsp_line_place(const tvm_ext_dsp_line_layer *layer, tvm_ext_dsp_line_places *line,
                                           uint8_t *output, int32_t n, int32_t h, int32_t w, int32_t row_end)
{
    const tvm_ext_image *const made = &layer->output;
    line->outputs[0] = &output[tvm_ext_row(made, n, h) + (w * made->pitch)];
    for (int32_t s = 1; s < TVM_EXT_DSP_LINE_OUTPUTS; ++s) {
        const int32_t row = layer->is_upright ? h + s : h;
        const int32_t column = layer->is_upright ? w : w + s;
        const bool is_wanted = row < row_end && column < made->columns;
        line->outputs[s] = is_wanted ? &output[tvm_ext_row(made, n, row) + (column * made->pitch)] : line->outputs[0];
    }
}

/* Computes output rows [row_begin, row_end) of all images. Rows of a ring buffer that later rows of the call would
 * overwrite are skipped.
 *
 * weights: pairs of channels, see tvm_ext_dsp_winograd_product.h; the channels of the lines of a window follow each
 * other. scratch: positions of three lines, accumulators, then the pixels of one line. */
TVM_EXT_INLINE void tvm_ext_dsp_line(const tvm_ext_dsp_line_layer *layer, tvm_ext_dsp_line_input *transform,
                                     tvm_ext_dsp_lines *compute, const void *input, void *output,
                                     const uint32_t *restrict weights, const int32_t *restrict bias,
                                     const int32_t *restrict multipliers, const uint8_t *restrict shifts, void *scratch,
                                     int32_t row_begin, int32_t row_end)
{
    const tvm_ext_image *const made = &layer->output;
    const tvm_ext_window *const window = &layer->window;
    const int32_t end = TVM_EXT_MIN(layer->input.rows, row_end + window->rows - 1 - window->top);
    const int32_t begin = made->is_ring ? TVM_EXT_MAX(row_begin, row_end - made->ring_rows) : row_begin;
    const int32_t outputs = TVM_EXT_DSP_LINE_PLACES + 1 - tvm_ext_dsp_line_taps(layer);
    const int32_t pairs = tvm_ext_dsp_line_pairs(layer);
    uint32_t *const places = (uint32_t *)scratch;
    uint32_t *const patch = &places[TVM_EXT_DSP_LINE_PLACES * TVM_EXT_DSP_TILES * (pairs + 2)];
    tvm_ext_dsp_line_places lines[TVM_EXT_DSP_TILES];
    int32_t lane = 0;
    for (int32_t n = 0; n < made->images; ++n) {
        for (int32_t h = begin; h < row_end; h += layer->is_upright ? outputs : 1) {
            for (int32_t w = 0; w < made->columns; w += layer->is_upright ? 1 : outputs) {
                for (int32_t r = 0; r < tvm_ext_dsp_line_across(layer); ++r) {
                    const int32_t y = h - window->top + (layer->is_upright ? 0 : r);
                    const int32_t x = w - window->left + (layer->is_upright ? r : 0);
                    const uint8_t *const pixels =
                        tvm_ext_dsp_line_pixels(layer, (const uint8_t *)input, n, y, x, end, patch);
                    transform(&places[(TVM_EXT_DSP_TILES * layer->input.channels / 2 * r) + lane], pixels);
                }
                tvm_ext_dsp_line_place(layer, &lines[lane], (uint8_t *)output, n, h, w, row_end);
                ++lane;
                const bool is_last = w + (layer->is_upright ? 1 : outputs) >= made->columns &&
                                     h + (layer->is_upright ? outputs : 1) >= row_end && n == made->images - 1;
                if (lane < TVM_EXT_DSP_TILES && !is_last) {
                    continue;
                }
                for (; lane < TVM_EXT_DSP_TILES; ++lane) {
                    lines[lane] = lines[0];
                }
                compute(lines, weights, bias, multipliers, shifts, places);
                lane = 0;
            }
        }
    }
}

#endif
