/* Depthwise convolution of quantized images with HVX: 128 channels, or pixels and channels, at a time.
 *
 * The rows that a row of windows reads are copied to scratch four at a time, so that the elements of four rows at one
 * column and channel are a word, and one instruction multiplies them with four weights. Columns of one remainder modulo
 * the stride are adjacent there, so adjacent outputs read adjacent words. Padding holds zero points, for which the
 * initial accumulators correct. */
#ifndef TVM_EXT_HVX_DEPTHWISE_H
#define TVM_EXT_HVX_DEPTHWISE_H

#include "tvm_ext_hvx.h"
#include "tvm_ext_hvx_requantize.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_HVX_MOST_TAPS 32

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t quads;   /* groups of four rows of a window */
    int32_t span;    /* columns, with padding, that a row of windows reads */
    int32_t columns; /* in scratch, of each remainder modulo the stride */
    int32_t lanes;   /* words of a column in scratch: channels, or more */
    int32_t groups;  /* groups of 32 lanes, with weights and factors of their own */
    tvm_ext_hvx_rescale requantize;
} tvm_ext_hvx_depthwise_layer;

/* Returns the first word of a column, counted with padding, in the copy of four rows. */
TVM_EXT_INLINE int32_t tvm_ext_hvx_column(const tvm_ext_hvx_depthwise_layer *layer, int32_t quad, int32_t column)
{
    const int32_t stride = layer->window.column_stride;
    const int32_t plane = (quad * stride) + (column % stride);
    return ((plane * layer->columns) + (column / stride)) * layer->lanes;
}

/* Returns the number of words in scratch. */
TVM_EXT_INLINE int32_t tvm_ext_hvx_copied_words(const tvm_ext_hvx_depthwise_layer *layer)
{
    return layer->quads * layer->window.column_stride * layer->columns * layer->lanes;
}

/* Interleaves `count` elements of four rows. A row is NULL if it lies in padding. */
TVM_EXT_INLINE void tvm_ext_hvx_interleave_rows(int32_t *words, const uint8_t *const *rows, int32_t first,
                                                int32_t count, int32_t zero_point)
{
    const tvm_ext_hvx padding = tvm_ext_hvx_bytes(zero_point);
    for (int32_t i = 0; i < count; i += TVM_EXT_HVX_BYTES) {
        const int32_t left = count - i < TVM_EXT_HVX_BYTES ? count - i : TVM_EXT_HVX_BYTES;
        tvm_ext_hvx row[4];
        TVM_EXT_HVX_UNROLL for (int32_t r = 0; r < 4; ++r)
        {
            row[r] = rows[r] != NULL ? tvm_ext_hvx_load_first(&rows[r][first + i], left) : padding;
        }
        const tvm_ext_hvx_four four = tvm_ext_hvx_interleave(row[0], row[1], row[2], row[3]);
        TVM_EXT_HVX_UNROLL for (int32_t v = 0; v < 4; ++v)
        {
            const int32_t bytes = 4 * (left - (v * TVM_EXT_HVX_WORDS));
            if (bytes > 0) {
                tvm_ext_hvx_store_first(&words[i + (v * TVM_EXT_HVX_WORDS)], four.part[v],
                                        bytes < TVM_EXT_HVX_BYTES ? bytes : TVM_EXT_HVX_BYTES);
            }
        }
    }
}

/* Copies the rows that the windows from row `top` of image n on read. */
TVM_EXT_INLINE void tvm_ext_hvx_copy_rows(const tvm_ext_hvx_depthwise_layer *layer, int32_t *words,
                                          const uint8_t *input, int32_t n, int32_t top)
{
    const tvm_ext_window *const window = &layer->window;
    const tvm_ext_image *const image = &layer->input;
    const int32_t reach = layer->span - window->left;
    const int32_t inside = reach < image->columns ? reach : image->columns;
    const bool is_one_run = window->column_stride == 1 && layer->lanes == image->channels;
    const int32_t runs = is_one_run ? 1 : inside;
    const int32_t count = is_one_run ? inside * image->channels : image->channels;
    for (int32_t q = 0; q < layer->quads; ++q) {
        const uint8_t *rows[4];
        for (int32_t r = 0; r < 4; ++r) {
            const int32_t y = top + (((4 * q) + r) * window->row_dilation);
            const bool is_read = (4 * q) + r < window->rows && y >= 0 && y < image->rows;
            rows[r] = is_read ? &input[tvm_ext_row(image, n, y)] : NULL;
        }
        for (int32_t x = 0; x < runs; ++x) {
            tvm_ext_hvx_interleave_rows(&words[tvm_ext_hvx_column(layer, q, window->left + x)], rows,
                                        x * image->channels, count, image->zero_point);
        }
    }
}

/* Computes `count` adjacent elements from the word `words` of the copied rows on. offsets: words from there to those of
 * each tap. */
TVM_EXT_INLINE void tvm_ext_hvx_depthwise_run(const tvm_ext_hvx_depthwise_layer *layer, uint8_t *output,
                                              const int32_t *words, const int32_t *offsets, const int8_t *weights,
                                              const int32_t *factors, int32_t count)
{
    const int32_t taps = layer->quads * layer->window.columns;
    int32_t group = 0;
    for (int32_t k = 0; k < count; k += TVM_EXT_HVX_BYTES) {
        tvm_ext_hvx_four sums;
        int32_t groups[4];
        TVM_EXT_HVX_UNROLL for (int32_t v = 0; v < 4; ++v)
        {
            groups[v] = (group + v) % layer->groups;
            sums.part[v] = tvm_ext_hvx_starts(factors, groups[v]);
        }
        for (int32_t t = 0; t < taps; ++t) {
            const int32_t *const x = &words[offsets[t] + k];
            TVM_EXT_HVX_UNROLL for (int32_t v = 0; v < 4; ++v)
            {
                const int8_t *const w = &weights[((t * layer->groups) + groups[v]) * TVM_EXT_HVX_BYTES];
                sums.part[v] = tvm_ext_hvx_dots(sums.part[v], tvm_ext_hvx_load(&x[v * TVM_EXT_HVX_WORDS]),
                                                tvm_ext_hvx_load(w), layer->input.is_unsigned);
            }
        }
        const int32_t left = count - k;
        tvm_ext_hvx_store_first(&output[k],
                                tvm_ext_hvx_elements(&layer->requantize, sums, factors, group, layer->groups),
                                left < TVM_EXT_HVX_BYTES ? left : TVM_EXT_HVX_BYTES);
        group = (group + 4) % layer->groups;
    }
}

/* Computes output rows [row_begin, row_end) of all images. scratch: copied rows, and four vectors that may be read. */
TVM_EXT_INLINE void tvm_ext_hvx_depthwise(const tvm_ext_hvx_depthwise_layer *layer, const void *input, void *output,
                                          const int8_t *weights, const int32_t *factors, void *scratch,
                                          int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t channels = layer->output.channels;
    int32_t *const words = (int32_t *)scratch;
    int32_t offsets[TVM_EXT_HVX_MOST_TAPS];
    for (int32_t q = 0; q < layer->quads; ++q) {
        for (int32_t s = 0; s < window->columns; ++s) {
            offsets[(q * window->columns) + s] = tvm_ext_hvx_column(layer, q, s * window->column_dilation);
        }
    }
    /* Only columns inside the image are written later. */
    const tvm_ext_hvx padding = tvm_ext_hvx_bytes(layer->input.zero_point);
    for (int32_t i = 0; i < tvm_ext_hvx_copied_words(layer); i += TVM_EXT_HVX_WORDS) {
        tvm_ext_hvx_store(&words[i], padding);
    }
    const bool is_one_run = layer->lanes == channels && layer->output.pitch == channels;
    const int32_t runs = is_one_run ? 1 : layer->output.columns;
    const int32_t count = is_one_run ? layer->output.columns * channels : channels;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            tvm_ext_hvx_copy_rows(layer, words, (const uint8_t *)input, n, (h * window->row_stride) - window->top);
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)];
            for (int32_t w = 0; w < runs; ++w) {
                tvm_ext_hvx_depthwise_run(layer, &row[w * layer->output.pitch], &words[w * layer->lanes], offsets,
                                          weights, factors, count);
            }
        }
    }
}

#endif
