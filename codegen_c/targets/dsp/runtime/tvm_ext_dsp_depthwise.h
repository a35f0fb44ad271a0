/* Depthwise convolution of quantized images by the DSP extension: the loops around one channel of a few rows.
 *
 * Four channels at a time, the input rows of a strip of output rows are expanded to one plane per channel, padding
 * as zero points: words of two adjacent columns, each a 16-bit number, beginning with the first column of padding.
 * If columns are dilated by d, a row of a plane is d phases, each of every d-th column: adjacent taps, and outputs d
 * columns apart, read adjacent columns of a phase. Rows that the next strip needs stay in the planes, so each element
 * is read once, and the output may take the memory of the input. The layer's own function then multiplies the words by
 * its taps, unrolled. This function and the expansion of a row are not inlined, so that they have all registers to
 * themselves; compilers call them directly. */
#ifndef TVM_EXT_DSP_DEPTHWISE_H
#define TVM_EXT_DSP_DEPTHWISE_H

#include <stddef.h>
#include <string.h>

#include "tvm_ext_dsp.h"
#include "tvm_ext_dsp_product.h"
#include "tvm_ext_dsp_requantize.h"
#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_DSP_PLANES 4

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t strip_rows; /* output rows whose input is expanded together */
    int32_t depth;      /* input channels of a group: 1, 2 or 4; 0 if each channel is a group with one output */
} tvm_ext_dsp_depthwise_layer;

/* Expands one input row of four channels to one row of each plane; NULL for a row of padding. */
typedef void tvm_ext_dsp_row(uint32_t *cell, const uint8_t *row);

/* Computes `count` output rows of channel k from its plane; `output` is the first element of the first row, of
   channel 0. */
typedef void tvm_ext_dsp_channel(uint8_t *output, const uint32_t *restrict weights, const int32_t *restrict bias,
                                 const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                 const uint32_t *plane, int32_t count, int32_t k);

/* Returns the input rows of one output row. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_spanned_rows(const tvm_ext_window *window)
{
    return ((window->rows - 1) * window->row_dilation) + 1;
}

/* Returns the words of one phase of a row of a plane. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_phase_words(const tvm_ext_dsp_depthwise_layer *layer)
{
    const int32_t phases = layer->window.column_dilation;
    const int32_t columns = (layer->output.columns + phases - 1) / phases;
    return (((columns - 1) * layer->window.column_stride) + layer->window.columns + 1) / 2;
}

/* Returns the words of a row of a plane. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_row_words(const tvm_ext_dsp_depthwise_layer *layer)
{
    return layer->window.column_dilation * tvm_ext_dsp_phase_words(layer);
}

/* Returns the words of a plane. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_plane_words(const tvm_ext_dsp_depthwise_layer *layer)
{
    const int32_t rows =
        ((layer->strip_rows - 1) * layer->window.row_stride) + tvm_ext_dsp_spanned_rows(&layer->window);
    return rows * tvm_ext_dsp_row_words(layer);
}

/* Returns the output channels of four input channels. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_channels_of_four(const tvm_ext_dsp_depthwise_layer *layer)
{
    return layer->depth > 0 ? layer->output.channels / (layer->input.channels / TVM_EXT_DSP_PLANES)
                            : TVM_EXT_DSP_PLANES;
}

/* Returns the first plane that output channel j of four input channels reads. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_plane_of(const tvm_ext_dsp_depthwise_layer *layer, int32_t j)
{
    return layer->depth > 0 ? j * TVM_EXT_DSP_PLANES / tvm_ext_dsp_channels_of_four(layer) / layer->depth * layer->depth
                            : j;
}

/* Four adjacent channels of a column as pairs: channels 0 and 2, 1 and 3. */
typedef struct {
    uint32_t even;
    uint32_t odd;
} tvm_ext_dsp_four;

TVM_EXT_INLINE tvm_ext_dsp_four tvm_ext_dsp_column(const tvm_ext_dsp_depthwise_layer *layer, const uint8_t *x)
{
    const uint32_t word = tvm_ext_dsp_load(x);
    const bool is_unsigned = layer->input.is_unsigned;
    const tvm_ext_dsp_four four = {is_unsigned ? tvm_ext_dsp_even_u8(word) : tvm_ext_dsp_even_s8(word),
                                   is_unsigned ? tvm_ext_dsp_odd_u8(word) : tvm_ext_dsp_odd_s8(word)};
    return four;
}

/* Returns a pair of padding. */
TVM_EXT_INLINE uint32_t tvm_ext_dsp_padding(const tvm_ext_dsp_depthwise_layer *layer)
{
    return ((uint32_t)layer->input.zero_point & 0xffffu) * 0x10001u;
}

/* Writes word i of a row of each plane: four channels of two adjacent columns. */
TVM_EXT_INLINE void tvm_ext_dsp_put(const tvm_ext_dsp_depthwise_layer *layer, uint32_t *cell, int32_t i,
                                    tvm_ext_dsp_four first, tvm_ext_dsp_four second)
{
    const int32_t plane = tvm_ext_dsp_plane_words(layer);
    cell[i] = tvm_ext_dsp_lows(first.even, second.even);
    cell[i + plane] = tvm_ext_dsp_lows(first.odd, second.odd);
    cell[i + (2 * plane)] = tvm_ext_dsp_highs(first.even, second.even);
    cell[i + (3 * plane)] = tvm_ext_dsp_highs(first.odd, second.odd);
}

/* Writes word i of padding. */
TVM_EXT_INLINE void tvm_ext_dsp_put_padding(const tvm_ext_dsp_depthwise_layer *layer, uint32_t *cell, int32_t i)
{
    const int32_t plane = tvm_ext_dsp_plane_words(layer);
    const uint32_t padding = tvm_ext_dsp_padding(layer);
    cell[i] = padding;
    cell[i + plane] = padding;
    cell[i + (2 * plane)] = padding;
    cell[i + (3 * plane)] = padding;
}

/* Writes words [begin, end) of a phase of an input row, some columns of which may be padding. left: columns of padding
 * before the phase. */
TVM_EXT_INLINE void tvm_ext_dsp_expand_border(const tvm_ext_dsp_depthwise_layer *layer, uint32_t *cell,
                                              const uint8_t *row, int32_t left, int32_t begin, int32_t end)
{
    const tvm_ext_dsp_four padding = {tvm_ext_dsp_padding(layer), tvm_ext_dsp_padding(layer)};
    const int32_t columns = layer->input.columns;
    const int32_t apart = layer->window.column_dilation;
    for (int32_t i = begin; i < end; ++i) {
        const int32_t x = (2 * apart * i) - left;
        const bool has_first = x >= 0 && x < columns;
        const bool has_second = x >= -apart && x < columns - apart;
        if (has_first || has_second) {
            const int32_t place = x * layer->input.channels;
            tvm_ext_dsp_put(layer, cell, i, has_first ? tvm_ext_dsp_column(layer, &row[place]) : padding,
                            has_second ? tvm_ext_dsp_column(layer, &row[place + (apart * layer->input.channels)])
                                       : padding);
        } else {
            tvm_ext_dsp_put_padding(layer, cell, i);
        }
    }
}

/* Writes one row of padding to each plane. An image has few of them: unrolled, their code would outweigh the time. */
TVM_EXT_INLINE void tvm_ext_dsp_pad_row(const tvm_ext_dsp_depthwise_layer *layer, uint32_t *cell)
{
#pragma GCC unroll 1
    for (int32_t i = 0; i < tvm_ext_dsp_row_words(layer); ++i) {
        tvm_ext_dsp_put_padding(layer, cell, i);
    }
}

/* Writes one phase of an input row to each plane. left: columns of padding before the phase, negative for columns of
 * the image. */
TVM_EXT_INLINE void tvm_ext_dsp_expand_phase(const tvm_ext_dsp_depthwise_layer *layer, uint32_t *cell,
                                             const uint8_t *row, int32_t left)
{
    const int32_t channels = layer->input.channels;
    const int32_t apart = layer->window.column_dilation;
    const int32_t words = tvm_ext_dsp_phase_words(layer);
    const int32_t inner_begin = TVM_EXT_MIN(TVM_EXT_MAX(0, left + (2 * apart) - 1) / (2 * apart), words);
    const int32_t inner_end = TVM_EXT_MAX(
        inner_begin, TVM_EXT_MIN(TVM_EXT_MAX(0, layer->input.columns + left + apart - 1) / (2 * apart), words));
    tvm_ext_dsp_expand_border(layer, cell, row, left, 0, inner_begin);
#pragma GCC unroll 4
    for (int32_t i = inner_begin; i < inner_end; ++i) {
        const uint8_t *const x = &row[((2 * apart * i) - left) * channels];
        tvm_ext_dsp_put(layer, cell, i, tvm_ext_dsp_column(layer, x), tvm_ext_dsp_column(layer, &x[apart * channels]));
    }
    tvm_ext_dsp_expand_border(layer, cell, row, left, inner_end, words);
}

/* A tvm_ext_dsp_row, which the function of each layer calls. It reads only the shapes of the layer. */
TVM_EXT_INLINE void tvm_ext_dsp_expand_row(const tvm_ext_dsp_depthwise_layer *layer, uint32_t *cell, const uint8_t *row)
{
    if ((layer->window.top > 0 || layer->window.bottom > 0) && row == NULL) {
        tvm_ext_dsp_pad_row(layer, cell);
        return;
    }
    for (int32_t p = 0; p < layer->window.column_dilation; ++p) {
        tvm_ext_dsp_expand_phase(layer, &cell[p * tvm_ext_dsp_phase_words(layer)], row, layer->window.left - p);
    }
}

/* Moves words to the front of a plane; source and target may overlap. */
#if TVM_EXT_DSP
TVM_EXT_DSP_SHARED void tvm_ext_dsp_keep(uint32_t *to, const uint32_t *from, int32_t words)
{
#pragma GCC unroll 1
    for (; words >= 8; words -= 8) {
        __asm__ volatile("ldmia %1!, {r2, r3, r4, r5, r6, r8, r9, r12}\n\t"
                         "stmia %0!, {r2, r3, r4, r5, r6, r8, r9, r12}\n\t"
                         : "+r"(to), "+r"(from)
                         :
                         : "r2", "r3", "r4", "r5", "r6", "r8", "r9", "r12", "memory");
    }
#pragma GCC unroll 1
    for (; words > 0; --words) {
        *to = *from;
        ++to;
        ++from;
    }
}
#else
static inline void tvm_ext_dsp_keep(uint32_t *to, const uint32_t *from, int32_t words)
{
    (void)memmove(to, from, (size_t)words * sizeof *to);
}
#endif

/* Expands the rows of the planes for output rows [begin, end). done: output rows of the previous strip, or 0 for
 * none; the rows of its planes that are needed again are moved first. */
TVM_EXT_INLINE void tvm_ext_dsp_expand_strip(const tvm_ext_dsp_depthwise_layer *layer, tvm_ext_dsp_row *expand_row,
                                             uint32_t *cells, const uint8_t *input, int32_t n, int32_t begin,
                                             int32_t end, int32_t done)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t words = tvm_ext_dsp_row_words(layer);
    const int32_t plane = tvm_ext_dsp_plane_words(layer);
    const int32_t spanned = tvm_ext_dsp_spanned_rows(window);
    const int32_t kept = TVM_EXT_MAX(0, spanned - window->row_stride);
    const int32_t top = (begin * window->row_stride) - window->top;
    const int32_t rows = ((end - begin - 1) * window->row_stride) + spanned;
    int32_t r = 0;
    if (done > 0) {
        const int32_t gone = done * window->row_stride * words;
        for (int32_t j = 0; j < TVM_EXT_DSP_PLANES; ++j) {
            tvm_ext_dsp_keep(&cells[j * plane], &cells[(j * plane) + gone], kept * words);
        }
        r = kept;
    }
    for (; r < rows; ++r) {
        const int32_t y = top + r;
        const bool is_padding = (window->top > 0 || window->bottom > 0) && (y < 0 || y >= layer->input.rows);
        expand_row(&cells[r * words], is_padding ? NULL : &input[tvm_ext_row(&layer->input, n, y)]);
    }
}

/* Computes output rows [row_begin, row_end) of all images.
 *
 * The last four channels may overlap those before: computing them twice gives the same bytes. Rows of a strip are
 * contiguous, so a strip ends where a ring buffer does. */
TVM_EXT_INLINE void tvm_ext_dsp_depthwise(const tvm_ext_dsp_depthwise_layer *layer, tvm_ext_dsp_row *expand_row,
                                          tvm_ext_dsp_channel *channel, const void *input, void *output,
                                          const uint32_t *restrict weights, const int32_t *restrict bias,
                                          const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                          void *scratch, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_image *const made = &layer->output;
    const int32_t strip = layer->strip_rows;
    const int32_t plane = tvm_ext_dsp_plane_words(layer);
    const int32_t channels = layer->input.channels;
    const int32_t outputs = tvm_ext_dsp_channels_of_four(layer);
    const bool is_cut = made->is_ring && strip > 1;
    const bool is_one_strip = !made->is_ring && made->rows <= strip;
    uint32_t *const cells = (uint32_t *)scratch;
    for (int32_t n = 0; n < made->images; ++n) {
        for (int32_t first = 0; first < channels; first += TVM_EXT_DSP_PLANES) {
            const int32_t c = TVM_EXT_MIN(first, channels - TVM_EXT_DSP_PLANES);
            const int32_t k = layer->depth > 0 ? c / TVM_EXT_DSP_PLANES * outputs : c;
            const uint8_t *const source = &((const uint8_t *)input)[c];
            int32_t done = 0;
            for (int32_t h = row_begin; h < row_end; h += done) {
                int32_t end = TVM_EXT_MIN(h + strip, row_end);
                if (is_cut) {
                    end = TVM_EXT_MIN(end, h + made->ring_rows - ((h + made->ring_shift) % made->ring_rows));
                }
                uint8_t *const row = (uint8_t *)tvm_ext_target(made, output, tvm_ext_row(made, n, h));
                const int32_t before = h == row_begin || is_one_strip ? 0 : is_cut ? done : strip;
                tvm_ext_dsp_expand_strip(layer, expand_row, cells, source, n, h, end, before);
                for (int32_t j = 0; j < outputs; ++j) {
                    channel(row, weights, bias, multipliers, shifts, &cells[tvm_ext_dsp_plane_of(layer, j) * plane],
                            end - h, k + j);
                }
                done = end - h;
            }
        }
    }
}

#endif
