/* Depthwise convolution of quantized images with Helium: 2 x 2 results of one channel from a square of 4 x 4 bytes.
 *
 * A strip is two output rows. The four input rows of a strip are copied so that the four bytes of a column are one
 * word. A square is four gathered words and holds the windows of two columns of a strip. Each group of channels is
 * computed from the first row to the last, in tiles of a few strips, before the next group. The next tile takes the
 * rows that it shares with this one from the copies, so a channel may be written to the memory that it was read from.
 */
#ifndef TVM_EXT_HELIUM_SQUARES_H
#define TVM_EXT_HELIUM_SQUARES_H

#include "tvm_ext_helium_product.h"
#include "tvm_ext_helium_square_lanes.h"
#include "tvm_ext_kernels.h"

#define TVM_EXT_SQUARES_MOST_STRIPS 8
#define TVM_EXT_SQUARES_TABLE 64 /* bytes of the weight indices of four windows */

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t group;     /* channels that are computed together */
    int32_t tile_rows; /* output rows of a tile: two for each strip, or one */
    bool is_narrow;    /* blocks of a tile follow each other down the strips, otherwise along the rows */
    bool has_down;     /* the last columns of two strips are computed together */
    int32_t narrow;    /* common shift of all channels, or 0 */
    tvm_ext_helium_rescale rescale;
} tvm_ext_helium_squares_layer;

/* The blocks of a tile with a given number of output rows. */
typedef struct {
    int32_t rows;
    int32_t num_across;
    int32_t num_down;
    tvm_ext_squares_blocks across[2 * TVM_EXT_SQUARES_MOST_STRIPS]; /* blocks of four columns of a strip */
    tvm_ext_squares_blocks down[2];                                 /* blocks of two columns of two strips */
} tvm_ext_squares_tile;

/* Copies four rows, `count` times `lanes` bytes. from: a copy two rows higher that holds the first two rows, or NULL.
 * It is a function of its own so that it has all registers; compilers call it directly. */
typedef void tvm_ext_squares_copied(uint8_t *target, const uint8_t *from, const uint8_t *const *rows, int32_t count,
                                    int32_t lanes);

TVM_EXT_INLINE int32_t tvm_ext_squares_column_bytes(const tvm_ext_helium_squares_layer *layer)
{
    return layer->group * 4;
}

/* Returns the bytes of the copy of a strip, which ends with the square of the last two columns. */
TVM_EXT_INLINE int32_t tvm_ext_squares_copy_bytes(const tvm_ext_helium_squares_layer *layer)
{
    return (layer->output.columns + 2) * tvm_ext_squares_column_bytes(layer);
}

/* Returns the bytes between strips. Two strips share a column of padding if both sides have one. */
TVM_EXT_INLINE int32_t tvm_ext_squares_strip_bytes(const tvm_ext_helium_squares_layer *layer)
{
    return tvm_ext_squares_copy_bytes(layer) - (layer->window.left == 1 ? tvm_ext_squares_column_bytes(layer) : 0);
}

/* Copies input rows [top, top + 4) of channels [channel, channel + lanes). */
TVM_EXT_INLINE void tvm_ext_squares_copy_strip(const tvm_ext_helium_squares_layer *layer,
                                               tvm_ext_squares_copied *copied, uint8_t *copy, const uint8_t *from,
                                               const uint8_t *image, int32_t top, int32_t channel, int32_t lanes)
{
    const tvm_ext_image *const input = &layer->input;
    const int32_t column_bytes = tvm_ext_squares_column_bytes(layer);
    const int32_t copy_bytes = tvm_ext_squares_copy_bytes(layer);
    const int32_t left = layer->window.left;
    const int32_t columns = TVM_EXT_MIN(input->columns, layer->output.columns + 2 - left);
    const int8_t zero_point = (int8_t)(input->zero_point - (input->is_unsigned ? 128 : 0));
    const uint8_t *rows[4];
    if (!input->is_ring && top >= 0 && top + 4 <= input->rows) {
        rows[0] = &image[tvm_ext_row(input, 0, top) + channel];
        for (int32_t r = 1; r < 4; ++r) {
            rows[r] = &rows[r - 1][input->columns * input->channels];
        }
    } else {
        for (int32_t r = 0; r < 4; ++r) {
            const int32_t row = TVM_EXT_MAX(0, TVM_EXT_MIN(top + r, input->rows - 1));
            rows[r] = &image[tvm_ext_row(input, 0, row) + channel];
        }
    }
    uint8_t *const target = &copy[left * column_bytes];
    const uint8_t *const source = from != NULL ? &from[left * column_bytes] : NULL;
    if (layer->group < input->channels || layer->group == 16) {
        copied(target, source, rows, columns, lanes);
    } else {
        const int32_t whole = columns * layer->group / 16;
        const int32_t rest = columns * layer->group % 16;
        copied(target, source, rows, whole, 16);
        if (rest > 0) {
            for (int32_t r = 0; r < 4; ++r) {
                rows[r] += whole * 16;
            }
            copied(&target[whole * 64], source != NULL ? &source[whole * 64] : NULL, rows, 1, rest);
        }
    }
    if (left > 0) {
        tvm_ext_fill_i8((int8_t *)copy, zero_point, left * column_bytes);
    }
    if (left + columns < layer->output.columns + 2) {
        const int32_t end = (left + columns) * column_bytes;
        tvm_ext_fill_i8((int8_t *)&copy[end], zero_point, copy_bytes - end);
    }
    if (top < 0 || top + 4 > input->rows) {
        for (int32_t r = 0; r < 4; ++r) {
            if (top + r < 0 || top + r >= input->rows) {
                tvm_ext_squares_fill_row(copy, copy_bytes, r, zero_point);
            }
        }
    }
}

/* Returns the bytes from a block's second square to the next block's first one. */
TVM_EXT_INLINE int32_t tvm_ext_squares_next(const tvm_ext_helium_squares_layer *layer)
{
    const int32_t two = 2 * tvm_ext_squares_column_bytes(layer);
    return layer->is_narrow ? tvm_ext_squares_strip_bytes(layer) - two : two;
}

/* Adds blocks of four columns from column w on: of strips [0, strips), which are equally far apart, then of the last.
 */
TVM_EXT_INLINE int32_t tvm_ext_squares_plan_column(const tvm_ext_helium_squares_layer *layer,
                                                   tvm_ext_squares_blocks *blocks, int32_t num, int32_t w,
                                                   int32_t along, int32_t strips, int32_t last_row, int32_t all)
{
    const int32_t row = layer->output.columns * layer->output.pitch;
    const int32_t strip_bytes = tvm_ext_squares_strip_bytes(layer);
    const int32_t column = w * tvm_ext_squares_column_bytes(layer);
    const int32_t element = w * layer->output.pitch;
    const int32_t next = tvm_ext_squares_next(layer);
    int32_t s = 0;
    if (layer->is_narrow && strips > 0) {
        const tvm_ext_squares_blocks down = {column - next, element, strips};
        blocks[num] = down;
        ++num;
        s = strips;
    }
    for (; s < all; ++s) {
        const tvm_ext_squares_blocks one = {column + (s * strip_bytes) - next,
                                            element + (TVM_EXT_MIN(2 * s, last_row) * row), along};
        blocks[num] = one;
        ++num;
    }
    return num;
}

/* Plans the blocks of a tile. */
TVM_EXT_INLINE void tvm_ext_squares_plan(const tvm_ext_helium_squares_layer *layer, tvm_ext_squares_tile *tile)
{
    const int32_t columns = layer->output.columns;
    const int32_t row = columns * layer->output.pitch;
    const int32_t whole = tile->rows / 2;
    const int32_t strips = (tile->rows + 1) / 2;
    const int32_t last = TVM_EXT_MAX(tile->rows - 2, 0);
    const bool goes_down = layer->has_down && whole > 1;
    const int32_t along = layer->is_narrow ? 1 : columns / 4;
    int32_t num = tvm_ext_squares_plan_column(layer, tile->across, 0, 0, along, whole, last, strips);
    tile->num_down = 0;
    if (columns % 4 > 0 && !goes_down) {
        num = tvm_ext_squares_plan_column(layer, tile->across, num, columns - 4, 1, whole, last, strips);
    }
    if (goes_down) {
        const int32_t strip_bytes = tvm_ext_squares_strip_bytes(layer);
        const int32_t column = ((columns - 2) * tvm_ext_squares_column_bytes(layer)) - strip_bytes;
        const int32_t element = (columns - 2) * layer->output.pitch;
        const tvm_ext_squares_blocks pairs = {column, element, whole / 2};
        const tvm_ext_squares_blocks odd = {column + ((whole - 2) * strip_bytes), element + ((whole - 2) * 2 * row), 1};
        tile->down[0] = pairs;
        tile->down[1] = odd;
        tile->num_down = 1 + (whole % 2);
        if (tile->rows % 2 > 0) {
            const tvm_ext_squares_blocks again = {(columns - 4) * tvm_ext_squares_column_bytes(layer) +
                                                      ((strips - 1) * strip_bytes) - tvm_ext_squares_next(layer),
                                                  ((columns - 4) * layer->output.pitch) + (last * row), 1};
            tile->across[num] = again;
            ++num;
        }
    }
    tile->num_across = num;
}

/* Computes output rows [row_begin, row_end) of all images. scratch: copies of the strips of a tile, and 64 bytes. */
TVM_EXT_INLINE void tvm_ext_helium_squares(const tvm_ext_helium_squares_layer *layer, tvm_ext_squares_copied *copied,
                                           const void *input, void *output, const int8_t *restrict weights,
                                           const int32_t *restrict factors, void *scratch, int32_t row_begin,
                                           int32_t row_end)
{
    const tvm_ext_image *const source = &layer->input;
    const tvm_ext_image *const made = &layer->output;
    const int32_t taps = (layer->window.rows * layer->window.columns) + 1;
    const int32_t strip_bytes = tvm_ext_squares_strip_bytes(layer);
    const int32_t most = (layer->tile_rows + 1) / 2;
    uint8_t *const copy = (uint8_t *)scratch;
    const int32_t two = 2 * tvm_ext_squares_column_bytes(layer);
    const tvm_ext_squares_distances far = {tvm_ext_squares_next(layer), two, layer->has_down ? strip_bytes : 0, taps,
                                           layer->narrow};
    const int32_t row_bytes = made->columns * made->pitch;
    tvm_ext_squares_tile tile;
    tvm_ext_squares_work work;
    tile.rows = 0;
    for (int32_t i = 0; i < 4; ++i) {
        work.lane[i] = (uint32_t)(i * tvm_ext_squares_column_bytes(layer));
    }
    work.across_step = layer->is_narrow ? 2 * row_bytes : 4 * made->pitch;
    work.down_step = 4 * row_bytes;
    work.zero_point = layer->rescale.zero_point;
    work.across = tile.across;
    work.down = tile.down;
    work.upper_tables = weights;
#ifndef TVM_EXT_HAS_HELIUM
    /* The first tile sets these. Compilers that inline the plain C loops cannot see that a tile has rows and would
     * warn of uninitialized variables. */
    work.across_end = work.across;
    work.down_end = work.down;
    work.lower_tables = weights;
    tvm_ext_squares_places(work.across_places, 0, 0, 0, 0);
    tvm_ext_squares_places(work.down_places, 0, 0, 0, 0);
#endif
    for (int32_t n = 0; n < made->images; ++n) {
        const uint8_t *const image = &((const uint8_t *)input)[n * source->rows * source->columns * source->channels];
        for (int32_t channel = 0; channel < source->channels; channel += layer->group) {
            const int32_t lanes = TVM_EXT_MIN(layer->group, source->channels - channel);
            for (int32_t h = row_begin; h < row_end; h += layer->tile_rows) {
                const int32_t rows = TVM_EXT_MIN(layer->tile_rows, row_end - h);
                const int32_t last = TVM_EXT_MAX(rows - 2, 0);
                for (int32_t s = 0; 2 * s < rows; ++s) {
                    const int32_t top = h + TVM_EXT_MIN(2 * s, last) - layer->window.top;
                    const bool goes_on = s == 0 && h > row_begin && layer->tile_rows > 1;
                    tvm_ext_squares_copy_strip(layer, copied, &copy[s * strip_bytes],
                                               goes_on ? &copy[(most - 1) * strip_bytes] : NULL, image, top, channel,
                                               lanes);
                }
                const int32_t first = tvm_ext_row(made, n, h);
                const int32_t second = rows > 1 ? tvm_ext_row(made, n, h + 1) : first;
                const int32_t least = TVM_EXT_MIN(first, second);
                if (rows != tile.rows || made->is_ring) {
                    tile.rows = rows;
                    tvm_ext_squares_plan(layer, &tile);
                    tvm_ext_squares_places(work.across_places, first - least, second - least, made->pitch,
                                           2 * made->pitch);
                    tvm_ext_squares_places(work.down_places, first - least, second - least, made->pitch, 2 * row_bytes);
                    work.across_end = &tile.across[tile.num_across];
                    work.down_end = &tile.down[tile.num_down];
                    /* If only one row is left, the layer computes it twice. */
                    work.lower_tables = &weights[rows > 1 ? TVM_EXT_SQUARES_TABLE / 2 : 0];
                }
                work.copy = copy;
                work.y = &((uint8_t *)output)[least + channel];
                work.factors = &factors[(layer->narrow > 0 ? 2 : 3) * channel];
                work.weights = &weights[TVM_EXT_SQUARES_TABLE + (channel * taps)];
                work.channels = lanes;
                tvm_ext_squares_channels(&work, &layer->rescale, far);
            }
        }
    }
}

#endif
