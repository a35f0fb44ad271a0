/* Convolution of quantized images by Winograd's F(2x2, 3x3) in integers with the DSP extension, for windows of 3 by 3
 * taps and stride 1. The results equal the direct sums of products bit for bit (Winograd, Arithmetic Complexity of
 * Computations, 1980; Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016).
 *
 * A tile d of 4 by 4 inputs gives 2 by 2 outputs: Y = A^T [U . V] A, V = B^T d B, U = G g G^T. The elementwise products
 * are summed over the input channels. With twice G, all matrices are integers and Y is four times the sums modulo 2^32:
 *
 *     B^T = 1  0 -1  0     2 G = 2  0  0     A^T = 1  1  1  0
 *           0  1  1  0           1  1  1           0  1 -1 -1
 *           0 -1  1  0           1 -1  1
 *           0  1  0 -1           0  0  2
 *
 * Inputs of 8 bits, with zero points as padding, give |V| <= 1020 and |U| <= 1152. The bias is four times the initial
 * sum, which corrects for the zero point; at position (1, 1) it adds to all four outputs. */
#ifndef TVM_EXT_DSP_WINOGRAD_H
#define TVM_EXT_DSP_WINOGRAD_H

#include <stddef.h>

#include "tvm_ext_dsp_requantize.h"
#include "tvm_ext_dsp_winograd_fours.h"
#include "tvm_ext_dsp_winograd_patch.h"
#include "tvm_ext_dsp_winograd_product.h"
#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_DSP_TILE_ROWS 4

typedef struct {
    tvm_ext_image input; /* channels: a multiple of four */
    tvm_ext_image output;
    tvm_ext_window window;
    bool is_dual_issue; /* the core starts two instructions in a cycle */
    bool by_fours;      /* two tiles by four channels at a time, in running sums; otherwise three by two */
    tvm_ext_dsp_requantize requantize; /* applies to four times the sums, or to the sums if it rounds twice */
} tvm_ext_dsp_winograd_layer;

/* Addresses of a tile's outputs, channel 0: the first of each row. A row or column outside the output has the address
 * of the other one, which is stored last and so overwrites it. */
typedef struct {
    uint8_t *top;
    uint8_t *bottom;
    int32_t right; /* elements from the left to the right column */
} tvm_ext_dsp_tile;

/* Computes all channels of up to three tiles. It is a function of its own so that it has all registers; called
 * directly. */
typedef void tvm_ext_dsp_winograd_tiles(const tvm_ext_dsp_tile tiles[TVM_EXT_DSP_TILES],
                                        const uint32_t *restrict weights, const int32_t *restrict bias,
                                        const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                        uint32_t *restrict places);

/* Transforms one of these tiles from four rows of four adjacent pixels; also a function of its own. */
typedef void tvm_ext_dsp_winograd_input(uint32_t *restrict places, const uint8_t *const rows[TVM_EXT_DSP_TILE_ROWS]);

/* Returns the tiles that are computed at a time. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_winograd_lanes(const tvm_ext_dsp_winograd_layer *layer)
{
    return layer->by_fours ? TVM_EXT_DSP_FOURS_TILES : TVM_EXT_DSP_TILES;
}

/* Returns the output channels that are computed at a time. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_winograd_width(const tvm_ext_dsp_winograd_layer *layer)
{
    return layer->by_fours ? TVM_EXT_DSP_FOURS_CHANNELS : 2;
}

/* Returns the words of the inputs of one position: pairs of channels of the tiles. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_place_words(const tvm_ext_dsp_winograd_layer *layer)
{
    return tvm_ext_dsp_winograd_lanes(layer) * layer->input.channels / 2;
}

/* Computes a row of a transformed tile for a pair of channels: row i of B^T d from four columns, times B. */
TVM_EXT_INLINE void tvm_ext_dsp_winograd_row(const tvm_ext_dsp_winograd_layer *layer, uint32_t *restrict places,
                                             int32_t i, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3)
{
    const int32_t words = tvm_ext_dsp_place_words(layer);
    uint32_t *const row = &places[4 * i * words];
    row[(layer->by_fours ? 1 : 0) * words] = tvm_ext_dsp_subtract_pair(c0, c2);
    row[(layer->by_fours ? 2 : 1) * words] = tvm_ext_dsp_add_pair(c1, c2);
    row[(layer->by_fours ? 0 : 2) * words] = tvm_ext_dsp_subtract_pair(c2, c1);
    row[3 * words] = tvm_ext_dsp_subtract_pair(c1, c3);
}

/* Transforms one pair of channels of a tile, from the first of its bytes in each row. */
TVM_EXT_INLINE void tvm_ext_dsp_winograd_tile(const tvm_ext_dsp_winograd_layer *layer, uint32_t *restrict places,
                                              const uint8_t *x0, const uint8_t *x1, const uint8_t *x2,
                                              const uint8_t *x3, bool is_odd)
{
    uint32_t d1[4], d2[4], c[4];
    for (int32_t s = 0; s < 4; ++s) {
        const int32_t column = s * layer->input.channels;
        d1[s] = tvm_ext_dsp_winograd_pair(&layer->input, &x1[column], is_odd);
        d2[s] = tvm_ext_dsp_winograd_pair(&layer->input, &x2[column], is_odd);
    }
    for (int32_t s = 0; s < 4; ++s) {
        const uint32_t d0 = tvm_ext_dsp_winograd_pair(&layer->input, &x0[s * layer->input.channels], is_odd);
        c[s] = tvm_ext_dsp_subtract_pair(d0, d2[s]);
    }
    tvm_ext_dsp_winograd_row(layer, places, 0, c[0], c[1], c[2], c[3]);
    TVM_EXT_DSP_IN_ORDER;
    for (int32_t s = 0; s < 4; ++s) {
        const uint32_t d3 = tvm_ext_dsp_winograd_pair(&layer->input, &x3[s * layer->input.channels], is_odd);
        c[s] = tvm_ext_dsp_subtract_pair(d1[s], d3);
    }
    tvm_ext_dsp_winograd_row(layer, places, 3, c[0], c[1], c[2], c[3]);
    TVM_EXT_DSP_IN_ORDER;
    for (int32_t s = 0; s < 4; ++s) {
        c[s] = tvm_ext_dsp_add_pair(d1[s], d2[s]);
    }
    tvm_ext_dsp_winograd_row(layer, places, 1, c[0], c[1], c[2], c[3]);
    TVM_EXT_DSP_IN_ORDER;
    for (int32_t s = 0; s < 4; ++s) {
        c[s] = tvm_ext_dsp_subtract_pair(d2[s], d1[s]);
    }
    tvm_ext_dsp_winograd_row(layer, places, 2, c[0], c[1], c[2], c[3]);
    TVM_EXT_DSP_IN_ORDER;
}

/* The transform function of a layer, tvm_ext_dsp_winograd_input. */
TVM_EXT_INLINE void tvm_ext_dsp_winograd_transform(const tvm_ext_dsp_winograd_layer *layer, uint32_t *restrict places,
                                                   const uint8_t *const rows[TVM_EXT_DSP_TILE_ROWS])
{
    const uint8_t *x0 = rows[0], *x1 = rows[1], *x2 = rows[2], *x3 = rows[3];
    const uint8_t *const end = &x0[layer->input.channels];
    for (; x0 < end; x0 += 4, x1 += 4, x2 += 4, x3 += 4) {
        tvm_ext_dsp_winograd_tile(layer, places, x0, x1, x2, x3, false);
        tvm_ext_dsp_winograd_tile(layer, &places[tvm_ext_dsp_winograd_lanes(layer)], x0, x1, x2, x3, true);
        places += 2 * tvm_ext_dsp_winograd_lanes(layer);
    }
}

/* Returns the element of four times a sum. */
TVM_EXT_INLINE uint8_t tvm_ext_dsp_winograd_element(const tvm_ext_dsp_winograd_layer *layer, uint32_t fourfold,
                                                    int32_t multiplier, int32_t shift)
{
    const int32_t sum = tvm_ext_dsp_takes_sums(&layer->requantize) ? (int32_t)fourfold >> 2 : (int32_t)fourfold;
    return (uint8_t)tvm_ext_dsp_element(&layer->requantize, sum, multiplier, shift);
}

/* Stores the outputs of channel k of a tile. sums: the first of the tile. */
TVM_EXT_INLINE void tvm_ext_dsp_winograd_output(const tvm_ext_dsp_winograd_layer *layer, const tvm_ext_dsp_tile *tile,
                                                const uint32_t *sums, int32_t bias, int32_t multiplier, int32_t shift,
                                                int32_t k)
{
    uint32_t fourfold[4];
    if (layer->by_fours) {
        tvm_ext_dsp_winograd_outputs_of_fours(fourfold, sums, (uint32_t)bias);
    } else {
        tvm_ext_dsp_winograd_outputs(fourfold, sums, (uint32_t)bias);
    }
    uint8_t *const top = &tile->top[k]; /* local copies, because compilers assume that stores change the members */
    uint8_t *const bottom = &tile->bottom[k];
    const int32_t right = layer->output.columns % 2 == 0 ? layer->output.pitch : tile->right;
    bottom[right] = tvm_ext_dsp_winograd_element(layer, fourfold[3], multiplier, shift);
    bottom[0] = tvm_ext_dsp_winograd_element(layer, fourfold[2], multiplier, shift);
    top[right] = tvm_ext_dsp_winograd_element(layer, fourfold[1], multiplier, shift);
    top[0] = tvm_ext_dsp_winograd_element(layer, fourfold[0], multiplier, shift);
}

/* The compute function of a layer, tvm_ext_dsp_winograd_tiles. In place of missing tiles the first one is repeated; it
 * is stored last. */
TVM_EXT_INLINE void tvm_ext_dsp_winograd_compute(const tvm_ext_dsp_winograd_layer *layer,
                                                 const tvm_ext_dsp_tile tiles[TVM_EXT_DSP_TILES],
                                                 const uint32_t *restrict weights, const int32_t *restrict bias,
                                                 const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                                 uint32_t *restrict places)
{
    const int32_t pairs = layer->input.channels / 2;
    const int32_t lanes = tvm_ext_dsp_winograd_lanes(layer);
    const int32_t width = tvm_ext_dsp_winograd_width(layer);
    uint32_t *const sums = &places[TVM_EXT_DSP_PLACES * tvm_ext_dsp_place_words(layer)];
    for (int32_t first = 0; first < layer->output.channels; first += width) {
        const uint32_t *const next = &weights[TVM_EXT_DSP_PLACES * pairs * width];
        if (layer->by_fours) {
            tvm_ext_dsp_winograd_2x4(sums, places, weights, pairs, next);
        } else {
            tvm_ext_dsp_winograd_sums(layer->is_dual_issue, sums, places, weights, pairs, next);
        }
        weights = next;
        const int32_t end = TVM_EXT_MIN(first + width, layer->output.channels);
        for (int32_t k = first; k < end; ++k) {
            const int32_t multiplier = tvm_ext_dsp_multiplier(&layer->requantize, multipliers, k);
            const int32_t shift = tvm_ext_dsp_shift(&layer->requantize, shifts, k);
            const uint32_t *const of_channel = &sums[layer->by_fours ? k - first : (k - first) * lanes];
            for (int32_t t = lanes - 1; t >= 0; --t) {
                tvm_ext_dsp_winograd_output(layer, &tiles[t], &of_channel[layer->by_fours ? t * width : t], bias[k],
                                            multiplier, shift, k);
            }
        }
    }
}

/* Copies four pixels of a row from column `left` on to row r of the four rows of the patch, with padding outside the
 * image. row: NULL for a row of padding. */
TVM_EXT_DSP_SHARED const uint8_t *tvm_ext_dsp_winograd_border(const tvm_ext_image *image, uint32_t *restrict patch,
                                                              const uint8_t *row, int32_t left, int32_t r)
{
    uint32_t *const pixels = &patch[r * image->channels];
    const int32_t words = image->channels / 4;
    const uint32_t padding = tvm_ext_dsp_winograd_padding(image);
    const int32_t first = row == NULL ? 4 : TVM_EXT_MIN(TVM_EXT_MAX(-left, 0), 4);
    const int32_t last = TVM_EXT_MAX(TVM_EXT_MIN(left + 4, image->columns) - left, first);
    tvm_ext_dsp_winograd_fill(pixels, padding, first * words);
    if (first < last) {
        tvm_ext_dsp_winograd_copy(&pixels[first * words], &row[(left + first) * image->channels],
                                  (last - first) * words);
    }
    tvm_ext_dsp_winograd_fill(&pixels[last * words], padding, (4 - last) * words);
    return (const uint8_t *)pixels;
}

/* Transforms the tile that begins with column `left` of four input rows; a row is NULL if it is padding. patch: space
 * for the inputs of a tile. */
TVM_EXT_INLINE void tvm_ext_dsp_winograd_expand(const tvm_ext_dsp_winograd_layer *layer,
                                                tvm_ext_dsp_winograd_input *transform, uint32_t *restrict places,
                                                const uint8_t *const rows[TVM_EXT_DSP_TILE_ROWS], int32_t left,
                                                uint32_t *restrict patch)
{
    const tvm_ext_image *const image = &layer->input;
    const bool is_inside = left >= 0 && left + 4 <= image->columns;
    const int32_t offset = left * image->channels;
    const uint8_t *const pixels[TVM_EXT_DSP_TILE_ROWS] = {
        is_inside && rows[0] != NULL ? &rows[0][offset] : tvm_ext_dsp_winograd_border(image, patch, rows[0], left, 0),
        is_inside && rows[1] != NULL ? &rows[1][offset] : tvm_ext_dsp_winograd_border(image, patch, rows[1], left, 1),
        is_inside && rows[2] != NULL ? &rows[2][offset] : tvm_ext_dsp_winograd_border(image, patch, rows[2], left, 2),
        is_inside && rows[3] != NULL ? &rows[3][offset] : tvm_ext_dsp_winograd_border(image, patch, rows[3], left, 3),
    };
    transform(places, pixels);
}

/* Computes output rows [row_begin, row_end) of all images, two at a time. Rows of a ring buffer that later rows of the
 * call would overwrite are skipped.
 *
 * weights: pairs of channels, see tvm_ext_dsp_winograd_product.h and tvm_ext_dsp_winograd_fours.h. scratch: positions
 * of the tiles, accumulators, then the inputs of one tile. */
TVM_EXT_INLINE void tvm_ext_dsp_winograd(const tvm_ext_dsp_winograd_layer *layer, tvm_ext_dsp_winograd_input *transform,
                                         tvm_ext_dsp_winograd_tiles *compute, const void *input, void *output,
                                         const uint32_t *restrict weights, const int32_t *restrict bias,
                                         const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                         void *scratch, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_image *const made = &layer->output;
    const int32_t end = TVM_EXT_MIN(layer->input.rows, row_end + 2 - layer->window.top); /* end of the rows to read */
    const int32_t begin = made->is_ring ? TVM_EXT_MAX(row_begin, row_end - made->ring_rows) : row_begin;
    uint32_t *const places = (uint32_t *)scratch;
    const int32_t lanes = tvm_ext_dsp_winograd_lanes(layer);
    const int32_t sums = lanes * tvm_ext_dsp_winograd_width(layer); /* accumulators of a position */
    uint32_t *const patch = &places[TVM_EXT_DSP_PLACES * (tvm_ext_dsp_place_words(layer) + sums)];
    const uint8_t *rows[TVM_EXT_DSP_TILE_ROWS];
    tvm_ext_dsp_tile tiles[TVM_EXT_DSP_TILES];
    int32_t lane = 0;
    for (int32_t n = 0; n < made->images; ++n) {
        for (int32_t h = begin; h < row_end; h += 2) {
            uint8_t *const top = &((uint8_t *)output)[tvm_ext_row(made, n, h)];
            uint8_t *const bottom = h + 1 < row_end ? &((uint8_t *)output)[tvm_ext_row(made, n, h + 1)] : top;
            for (int32_t r = 0; r < TVM_EXT_DSP_TILE_ROWS; ++r) {
                const int32_t y = h - layer->window.top + r;
                rows[r] = y >= 0 && y < end ? &((const uint8_t *)input)[tvm_ext_row(&layer->input, n, y)] : NULL;
            }
            for (int32_t w = 0; w < made->columns; w += 2) {
                const bool is_last = w + 2 >= made->columns && h + 2 >= row_end && n == made->images - 1;
                tvm_ext_dsp_winograd_expand(layer, transform, &places[lane], rows, w - layer->window.left, patch);
                tiles[lane].top = &top[w * made->pitch];
                tiles[lane].bottom = &bottom[w * made->pitch];
                tiles[lane].right = w + 1 < made->columns ? made->pitch : 0;
                ++lane;
                if (lane < lanes && !is_last) {
                    continue;
                }
                for (; lane < lanes; ++lane) {
                    tiles[lane] = tiles[0];
                }
                compute(tiles, weights, bias, multipliers, shifts, places);
                lane = 0;
            }
        }
    }
}

#endif
