/* Maxima and averages of windows over quantized images in plain C: up to four channels of one output pixel at a
 * time.
 *
 * Only elements inside the image count. Sums are of elements minus their zero point, and one factor for each number
 * of elements scales them to the output; in TensorFlow Lite's averages, sums are of the integers themselves. */
#ifndef TVM_EXT_QPOOL2D_H
#define TVM_EXT_QPOOL2D_H

#include "tvm_ext_layer.h"
#include "tvm_ext_qblock.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    bool is_maximum;         /* otherwise an average */
    bool divides;            /* averages the integers by a division */
    int32_t fewest;          /* least number of elements in a window, which has the first factor */
    tvm_ext_rescale rescale; /* channel_step: 1 if there is a factor for each number of elements */
} tvm_ext_qpool2d_layer;

/* Returns the initial value of a window. Without padding all windows have the same number of elements, whose zero
 * points are subtracted here. */
TVM_EXT_INLINE int32_t tvm_ext_qpool2d_start(const tvm_ext_qpool2d_layer *layer)
{
    if (layer->is_maximum) {
        return layer->rescale.low;
    }
    if (layer->divides || tvm_ext_is_padded(&layer->window)) {
        return 0;
    }
    return -layer->input.zero_point * layer->window.rows * layer->window.columns;
}

/* Adds one more element to the value of a window. */
TVM_EXT_INLINE int32_t tvm_ext_qpool2d_take(const tvm_ext_qpool2d_layer *layer, int32_t value, const void *elements,
                                            int32_t i)
{
    const int32_t x = tvm_ext_element(&layer->input, elements, i);
    if (layer->is_maximum) {
        return x > value ? x : value;
    }
    if (layer->divides || !tvm_ext_is_padded(&layer->window)) {
        return value + x;
    }
    return value + (x - layer->input.zero_point);
}

/* Adds an element of each of `count` channels. */
TVM_EXT_INLINE void tvm_ext_qpool2d_take_block(const tvm_ext_qpool2d_layer *layer, int32_t *values,
                                               const void *elements, int32_t count)
{
    values[0] = tvm_ext_qpool2d_take(layer, values[0], elements, 0);
    if (count > 1) {
        values[1] = tvm_ext_qpool2d_take(layer, values[1], elements, 1);
    }
    if (count > 2) {
        values[2] = tvm_ext_qpool2d_take(layer, values[2], elements, 2);
    }
    if (count > 3) {
        values[3] = tvm_ext_qpool2d_take(layer, values[3], elements, 3);
    }
}

/* Returns the element of the output for the value of a window with this number of elements. */
TVM_EXT_INLINE int32_t tvm_ext_qpool2d_finish(const tvm_ext_qpool2d_layer *layer, int32_t value,
                                              const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                              int32_t elements)
{
    const tvm_ext_rescale *const rescale = &layer->rescale;
    if (layer->is_maximum) {
        return tvm_ext_clamp(value, rescale->low, rescale->high);
    }
    if (layer->divides) {
        return tvm_ext_clamp(tvm_ext_average(value, elements), rescale->low, rescale->high);
    }
    return tvm_ext_rescaled(rescale, value, multipliers, shifts, elements - layer->fewest);
}

/* Stores the elements of `count` channels. */
TVM_EXT_INLINE void tvm_ext_qpool2d_store_block(const tvm_ext_qpool2d_layer *layer, void *output, const int32_t *values,
                                                const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                                int32_t elements, int32_t count)
{
    tvm_ext_set(&layer->output, output, 0, tvm_ext_qpool2d_finish(layer, values[0], multipliers, shifts, elements));
    if (count > 1) {
        tvm_ext_set(&layer->output, output, 1, tvm_ext_qpool2d_finish(layer, values[1], multipliers, shifts, elements));
    }
    if (count > 2) {
        tvm_ext_set(&layer->output, output, 2, tvm_ext_qpool2d_finish(layer, values[2], multipliers, shifts, elements));
    }
    if (count > 3) {
        tvm_ext_set(&layer->output, output, 3, tvm_ext_qpool2d_finish(layer, values[3], multipliers, shifts, elements));
    }
}

/* Computes `count` channels of one pixel from channel k on; its window begins at row `top` and column `left` of
   image n. */
TVM_EXT_INLINE void tvm_ext_qpool2d_block(const tvm_ext_qpool2d_layer *layer, const void *input, void *pixel,
                                          const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                          int32_t n, int32_t top, int32_t left, tvm_ext_taps rows, tvm_ext_taps columns,
                                          int32_t k, int32_t count)
{
    const tvm_ext_image *const image = &layer->input;
    const int32_t start = tvm_ext_qpool2d_start(layer);
    const int32_t elements = (rows.end - rows.begin) * (columns.end - columns.begin);
    int32_t values[TVM_EXT_QBLOCK] = {start, start, start, start};
    for (int32_t r = rows.begin; r < rows.end; ++r) {
        const void *const row =
            tvm_ext_source(image, input, tvm_ext_row(image, n, top + (r * layer->window.row_dilation)) + k);
        for (int32_t s = columns.begin; s < columns.end; ++s) {
            const int32_t x = left + (s * layer->window.column_dilation);
            tvm_ext_qpool2d_take_block(layer, values, tvm_ext_source(image, row, x * image->channels), count);
        }
    }
    tvm_ext_qpool2d_store_block(layer, tvm_ext_target(&layer->output, pixel, k), values, multipliers, shifts, elements,
                                count);
}

/* Computes output rows [row_begin, row_end) of all images. */
TVM_EXT_INLINE void tvm_ext_qpool2d(const tvm_ext_qpool2d_layer *layer, const void *input, void *output,
                                    const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                    int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t channels = layer->output.channels;
    const int32_t full = channels - (channels % TVM_EXT_QBLOCK);
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int32_t top = (h * window->row_stride) - window->top;
            const tvm_ext_taps rows = tvm_ext_row_taps(window, &layer->input, top);
            void *const row = tvm_ext_target(&layer->output, output, tvm_ext_row(&layer->output, n, h));
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                const int32_t left = (w * window->column_stride) - window->left;
                const tvm_ext_taps columns = tvm_ext_column_taps(window, &layer->input, left);
                void *const pixel = tvm_ext_target(&layer->output, row, w * layer->output.pitch);
                for (int32_t k = 0; k < full; k += TVM_EXT_QBLOCK) {
                    tvm_ext_qpool2d_block(layer, input, pixel, multipliers, shifts, n, top, left, rows, columns, k,
                                          TVM_EXT_QBLOCK);
                }
                if (full < channels) {
                    tvm_ext_qpool2d_block(layer, input, pixel, multipliers, shifts, n, top, left, rows, columns, full,
                                          channels - full);
                }
            }
        }
    }
}

/* Updates `count` values from channel k on of the only window, the whole image, with its rows [begin, end). */
TVM_EXT_INLINE void tvm_ext_qpool2d_block_of_rows(const tvm_ext_qpool2d_layer *layer, const void *input, void *output,
                                                  int32_t *values_kept, const int32_t *restrict multipliers,
                                                  const uint8_t *restrict shifts, int32_t begin, int32_t end, int32_t k,
                                                  int32_t count)
{
    const tvm_ext_image *const image = &layer->input;
    const int32_t start = tvm_ext_qpool2d_start(layer);
    int32_t values[TVM_EXT_QBLOCK] = {start, start, start, start};
    if (begin > 0) {
        tvm_ext_qblock_copy(values, &values_kept[k], count);
    }
    for (int32_t h = begin; h < end; ++h) {
        const void *x = tvm_ext_source(image, input, tvm_ext_row(image, 0, h) + k);
        for (int32_t w = 0; w < image->columns; ++w) {
            tvm_ext_qpool2d_take_block(layer, values, x, count);
            x = tvm_ext_source(image, x, image->channels);
        }
    }
    tvm_ext_qblock_copy(&values_kept[k], values, count);
    if (end == image->rows) {
        tvm_ext_qpool2d_store_block(layer, tvm_ext_target(&layer->output, output, k), values, multipliers, shifts,
                                    image->rows * image->columns, count);
    }
}

/* Updates the only window, the whole of one image, with its rows [begin, end); `values` are kept between the calls. */
TVM_EXT_INLINE void tvm_ext_qpool2d_add(const tvm_ext_qpool2d_layer *layer, const void *input, void *output,
                                        int32_t *values, const int32_t *restrict multipliers,
                                        const uint8_t *restrict shifts, int32_t begin, int32_t end)
{
    const int32_t channels = layer->output.channels;
    const int32_t full = channels - (channels % TVM_EXT_QBLOCK);
    for (int32_t k = 0; k < full; k += TVM_EXT_QBLOCK) {
        tvm_ext_qpool2d_block_of_rows(layer, input, output, values, multipliers, shifts, begin, end, k, TVM_EXT_QBLOCK);
    }
    if (full < channels) {
        tvm_ext_qpool2d_block_of_rows(layer, input, output, values, multipliers, shifts, begin, end, full,
                                      channels - full);
    }
}

#endif
