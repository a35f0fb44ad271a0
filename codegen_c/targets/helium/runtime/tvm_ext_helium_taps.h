/* Depthwise convolution of quantized images with Helium, with taps in lanes: four columns of one or two output rows at
 * a time.
 *
 * The input rows of one or two output rows are copied in planes of four rows: the four bytes of a column are one word.
 * The words of a plane have the order of the image, column by column of `group` channels. A window is then a few words,
 * and a sum takes one instruction per 16 of their bytes. Padding is filled with the zero point. */
#ifndef TVM_EXT_HELIUM_TAPS_H
#define TVM_EXT_HELIUM_TAPS_H

#include "tvm_ext_helium_lanes.h"
#include "tvm_ext_helium_product.h"
#include "tvm_ext_helium_rescale.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_TAPS_VECTOR 16
#define TVM_EXT_TAPS_COLUMNS 4 /* columns of a block of results */

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t rows;         /* output rows that are computed together, 1 or 2 */
    int32_t packed_rows;  /* rows for which the weights are packed, at least `rows` */
    int32_t planes;       /* planes of four input rows each */
    int32_t vectors;      /* vectors of weights for one row of results */
    int32_t group;        /* channels that are copied together: 16, or all if there are fewer */
    int32_t tile_columns; /* output columns whose windows are copied at once */
    int32_t copy_columns; /* input columns of a tile, including columns that meet zero weights only */
    tvm_ext_helium_rescale rescale;
} tvm_ext_helium_taps_layer;

/* Input and output of a run of output rows. */
typedef struct {
    const uint8_t *image;
    uint8_t *row;  /* the output row with the lowest address */
    int32_t top;   /* index of the first input row */
    int32_t count; /* number of output rows */
    tvm_ext_i16x8 places; /* offsets of two rows of four columns from a column of `row` */
} tvm_ext_helium_strip;

/* Copies 16 bytes of four rows `count` times (tvm_ext_interleave). It is a function of its own so that it has all
 * registers; compilers call it directly. */
typedef void tvm_ext_helium_interleaved(uint8_t *target, const uint8_t *const *rows, const int32_t *steps,
                                        int32_t count);

TVM_EXT_INLINE int32_t tvm_ext_taps_column_bytes(const tvm_ext_helium_taps_layer *layer)
{
    return layer->group * 4;
}

TVM_EXT_INLINE int32_t tvm_ext_taps_plane_bytes(const tvm_ext_helium_taps_layer *layer)
{
    return layer->copy_columns * tvm_ext_taps_column_bytes(layer);
}

/* Returns the bytes of one channel's weights, arranged like the words, for `rows` output rows at once. */
TVM_EXT_INLINE int32_t tvm_ext_taps_table_bytes(const tvm_ext_helium_taps_layer *layer, int32_t rows)
{
    return layer->vectors * rows * TVM_EXT_TAPS_VECTOR;
}

/* Copies rows [first, first + 4) of a strip's windows, from input column `left` and channel `channel` on. padding: 16
 * bytes of the zero point, which are read for rows outside the image. */
TVM_EXT_INLINE void tvm_ext_taps_copy_plane(const tvm_ext_helium_taps_layer *layer,
                                            tvm_ext_helium_interleaved *interleave, const tvm_ext_helium_strip *strip,
                                            uint8_t *plane, const uint8_t *padding, int32_t first, int32_t left,
                                            int32_t channel)
{
    const tvm_ext_image *const input = &layer->input;
    const tvm_ext_window *const window = &layer->window;
    const int32_t channels = input->channels;
    const int32_t column_bytes = tvm_ext_taps_column_bytes(layer);
    const int32_t begin = left < 0 ? -left : 0;
    const int32_t behind = input->columns - left;
    const int32_t end = behind < layer->copy_columns ? behind : layer->copy_columns;
    const int32_t count = (end - begin) * layer->group; /* elements of a row */
    const bool is_run = layer->group < TVM_EXT_TAPS_VECTOR;
    const int32_t step = is_run ? TVM_EXT_TAPS_VECTOR : channels;
    const int32_t needed = ((strip->count - 1) * window->row_stride) + window->rows;
    const uint8_t *rows[4];
    int32_t steps[4];
    for (int32_t r = 0; r < 4; ++r) {
        const int32_t row = strip->top + ((first + r) * window->row_dilation);
        const bool is_inside = row >= 0 && row < input->rows && first + r < needed;
        const int32_t place = is_inside ? tvm_ext_row(input, 0, row) + ((left + begin) * channels) + channel : 0;
        rows[r] = is_inside ? &strip->image[place] : padding;
        steps[r] = is_inside ? step : 0;
    }
    uint8_t *const target = &plane[begin * column_bytes];
    const int32_t zero_point = input->zero_point - (input->is_unsigned ? 128 : 0);
    if (window->left > 0 && begin > 0) {
        tvm_ext_fill_i8((int8_t *)plane, (int8_t)zero_point, begin * column_bytes);
    }
    if (end < layer->copy_columns) {
        tvm_ext_fill_i8((int8_t *)&plane[end * column_bytes], (int8_t)zero_point,
                        (layer->copy_columns - end) * column_bytes);
    }
    interleave(target, rows, steps, count / TVM_EXT_TAPS_VECTOR);
    if (is_run && count % TVM_EXT_TAPS_VECTOR > 0) {
        const int32_t last = count - TVM_EXT_TAPS_VECTOR;
        for (int32_t r = 0; r < 4; ++r) {
            rows[r] += steps[r] > 0 ? last : 0;
        }
        interleave(&target[last * 4], rows, steps, 1);
    }
}

/* Computes `columns` columns of one channel, from y on. words: of the first column. */
TVM_EXT_INLINE void tvm_ext_taps_channel(const tvm_ext_helium_taps_layer *layer, const tvm_ext_helium_strip *strip,
                                         uint8_t *y, tvm_ext_words words, const int8_t *weights, const int8_t *lanes,
                                         int8_t *table, const int32_t *factors, int32_t columns)
{
    const int32_t step = layer->window.column_stride * tvm_ext_taps_column_bytes(layer);
    const int32_t vector_bytes =
        TVM_EXT_TAPS_COLUMNS / layer->planes * layer->window.column_dilation * tvm_ext_taps_column_bytes(layer);
    const int32_t start = factors[0];
    const int32_t multiplier = factors[1];
    const int32_t shift = factors[2];
    const tvm_ext_i32x4 row_places = tvm_ext_i32x4_even(strip->places);
    tvm_ext_i8x16 kept[2];
    kept[0] = tvm_ext_i8x16_gather(weights, lanes);
    kept[1] = layer->rows > 1 ? tvm_ext_i8x16_gather(weights, &lanes[TVM_EXT_TAPS_VECTOR]) : kept[0];
    if (layer->vectors > 1) {
        for (int32_t i = 0; i < layer->vectors * layer->rows; ++i) {
            const int8_t *const from = &lanes[i * (layer->packed_rows / layer->rows) * TVM_EXT_TAPS_VECTOR];
            tvm_ext_i8x16_store(&table[i * TVM_EXT_TAPS_VECTOR], tvm_ext_i8x16_gather(weights, from));
        }
    }
    for (;;) {
        tvm_ext_i32x4 sums[2];
        words =
            tvm_ext_lanes_sums(sums, words, kept, table, layer->vectors, layer->rows, step, vector_bytes - (3 * step));
        sums[0] =
            tvm_ext_helium_rescaled_alike(&layer->rescale, tvm_ext_i32x4_add_n(sums[0], start), multiplier, shift);
        if (layer->rows > 1) {
            sums[1] =
                tvm_ext_helium_rescaled_alike(&layer->rescale, tvm_ext_i32x4_add_n(sums[1], start), multiplier, shift);
        } else {
            sums[1] = sums[0];
        }
        const tvm_ext_i16x8 results = tvm_ext_helium_pairs(&layer->rescale, tvm_ext_i16x8_narrow(sums[0], sums[1]));
        if (layer->rows > 1) {
            tvm_ext_i16x8_scatter(y, strip->places, results);
        } else {
            tvm_ext_i16x8_scatter_even(y, row_places, results);
        }
        columns -= TVM_EXT_TAPS_COLUMNS;
        if (columns <= 0) {
            return;
        }
        y += TVM_EXT_TAPS_COLUMNS * layer->output.pitch;
        if (layer->output.columns % TVM_EXT_TAPS_COLUMNS > 0 && columns < TVM_EXT_TAPS_COLUMNS) {
            const int32_t again = TVM_EXT_TAPS_COLUMNS - columns; /* columns that the block before has computed */
            y -= again * layer->output.pitch;
            words = tvm_ext_words_moved(words, -again * step);
        }
    }
}

/* Computes all channels of one strip. */
TVM_EXT_INLINE void tvm_ext_taps_strip(const tvm_ext_helium_taps_layer *layer, tvm_ext_helium_interleaved *interleave,
                                       const tvm_ext_helium_strip *strip, const int8_t *restrict weights,
                                       const int32_t *restrict factors, uint8_t *scratch)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t channels = layer->input.channels;
    const int32_t column_bytes = tvm_ext_taps_column_bytes(layer);
    const int32_t plane_bytes = tvm_ext_taps_plane_bytes(layer);
    const int32_t table_bytes = tvm_ext_taps_table_bytes(layer, layer->rows);
    const int32_t packed_bytes = tvm_ext_taps_table_bytes(layer, layer->packed_rows);
    const int32_t taps = window->rows * window->columns;
    const int32_t apart = window->column_dilation * column_bytes;
    uint32_t lane[4];
    for (int32_t i = 0; i < 4; ++i) {
        lane[i] = (uint32_t)((i / layer->planes * apart) + (i % layer->planes * plane_bytes));
    }
    int8_t *const table = (int8_t *)&scratch[TVM_EXT_TAPS_VECTOR];
    uint8_t *const copy = &scratch[TVM_EXT_TAPS_VECTOR + (layer->vectors > 1 ? table_bytes : 0)];
    /* If weights are packed for two rows, a single row has a table of its own or is computed twice. */
    const int8_t *const lanes = strip->count < layer->packed_rows ? &weights[packed_bytes] : weights;
    const int8_t *const all = &weights[layer->packed_rows * packed_bytes];
    for (int32_t w = 0; w < layer->output.columns; w += layer->tile_columns) {
        const int32_t rest = layer->output.columns - w;
        const int32_t columns = rest < layer->tile_columns ? rest : layer->tile_columns;
        const int32_t left = (w * window->column_stride) - window->left;
        for (int32_t next = 0; next < channels; next += layer->group) {
            /* No load may reach beyond a pixel, so the last copy takes the last 16 channels, whole. */
            const int32_t channel = next + layer->group <= channels ? next : channels - layer->group;
            const int32_t end = channel + layer->group;
            uint8_t *const y = strip->row;
            for (int32_t p = 0; p < layer->planes; ++p) {
                tvm_ext_taps_copy_plane(layer, interleave, strip, &copy[p * plane_bytes], scratch, p * 4, left,
                                        channel);
            }
            for (int32_t c = next; c < end; ++c) {
                const int32_t place = ((c - channel) * 4) - (window->column_stride * column_bytes);
                tvm_ext_taps_channel(layer, strip, &y[(w * layer->output.pitch) + c],
                                     tvm_ext_words_at(copy, place, lane), &all[c * (taps + 1)], lanes, table,
                                     &factors[3 * c], columns);
            }
        }
    }
}

/* Computes output rows [row_begin, row_end) of all images. */
TVM_EXT_INLINE void tvm_ext_helium_taps(const tvm_ext_helium_taps_layer *layer, tvm_ext_helium_interleaved *interleave,
                                        const void *input, void *output, const int8_t *restrict weights,
                                        const int32_t *restrict factors, void *scratch, int32_t row_begin,
                                        int32_t row_end)
{
    const tvm_ext_image *const source = &layer->input;
    const tvm_ext_image *const made = &layer->output;
    const int32_t padding = source->zero_point > INT8_MAX ? source->zero_point - 256 : source->zero_point;
    tvm_ext_fill_i8((int8_t *)scratch, (int8_t)padding, TVM_EXT_TAPS_VECTOR);
    for (int32_t n = 0; n < made->images; ++n) {
        for (int32_t h = row_begin; h < row_end; h += layer->rows) {
            const int32_t count = row_end - h < layer->rows ? row_end - h : layer->rows;
            const int32_t first = tvm_ext_row(made, n, h);
            const int32_t second = tvm_ext_row(made, n, h + count - 1);
            const int32_t least = first < second ? first : second;
            tvm_ext_helium_strip strip;
            strip.image = &((const uint8_t *)input)[n * source->rows * source->columns * source->channels];
            strip.row = &((uint8_t *)output)[least];
            strip.top = (h * layer->window.row_stride) - layer->window.top;
            strip.count = count;
            strip.places = tvm_ext_i16x8_places(first - least, second - least, made->pitch);
            tvm_ext_taps_strip(layer, interleave, &strip, weights, factors, (uint8_t *)scratch);
        }
    }
}

#endif
