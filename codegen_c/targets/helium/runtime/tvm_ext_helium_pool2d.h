/* Maxima and averages of windows over quantized images by Helium: 16 channels of one output pixel at a time.
 *
 * Only elements inside the image count, as int8: uint8 minus 128. Sums of up to 255 elements have 16 bits; the zero
 * points are subtracted in 32 bits, where one factor for each number of elements scales them to the output. In
 * TensorFlow Lite's averages, sums are of the integers themselves. */
#ifndef TVM_EXT_HELIUM_POOL2D_H
#define TVM_EXT_HELIUM_POOL2D_H

#include "tvm_ext_helium_rescale.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_HELIUM_POOLED 16 /* channels */

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    bool is_maximum;                /* otherwise an average */
    bool divides;                   /* averages of the integers themselves, without zero points */
    int32_t scale_bits;             /* scales sums of an average up */
    int32_t fewest;                 /* least number of elements in a window, which has the first factor */
    int32_t factor_step;            /* 1 if there is a factor for each number of elements, 0 if all share one */
    tvm_ext_helium_rescale rescale; /* for maxima only the bounds, of elements as int8 */
} tvm_ext_helium_pool2d_layer;

/* Converts uint8 to int8 and back. */
TVM_EXT_INLINE tvm_ext_i8x16 tvm_ext_helium_turned(const tvm_ext_image *image, tvm_ext_i8x16 elements)
{
    return image->is_unsigned ? tvm_ext_i8x16_xor(elements, tvm_ext_i8x16_splat(INT8_MIN)) : elements;
}

/* Loads elements of `count` channels as int8. */
TVM_EXT_INLINE tvm_ext_i8x16 tvm_ext_helium_elements(const tvm_ext_image *image, const uint8_t *elements, int32_t count)
{
    const bool is_whole = image->channels % TVM_EXT_HELIUM_POOLED == 0;
    return tvm_ext_helium_turned(image,
                                 is_whole ? tvm_ext_i8x16_load(elements) : tvm_ext_i8x16_load_first(elements, count));
}

/* Returns the maxima of a window whose first tap inside the image is at `taps`. */
TVM_EXT_INLINE tvm_ext_i8x16 tvm_ext_helium_maximum(const tvm_ext_helium_pool2d_layer *layer, const uint8_t *input,
                                                    int32_t n, int32_t top, int32_t left, tvm_ext_taps rows,
                                                    tvm_ext_taps columns, int32_t count)
{
    const tvm_ext_image *const image = &layer->input;
    tvm_ext_i8x16 largest = tvm_ext_i8x16_splat((int8_t)layer->rescale.low);
    for (int32_t r = rows.begin; r < rows.end; ++r) {
        const int32_t row = tvm_ext_row(image, n, top + (r * layer->window.row_dilation));
        for (int32_t s = columns.begin; s < columns.end; ++s) {
            const int32_t x = left + (s * layer->window.column_dilation);
            const uint8_t *const elements = &input[row + (x * image->channels)];
            largest = tvm_ext_i8x16_max(largest, tvm_ext_helium_elements(image, elements, count));
        }
    }
    return tvm_ext_helium_turned(&layer->output,
                                 tvm_ext_i8x16_min(largest, tvm_ext_i8x16_splat((int8_t)layer->rescale.high)));
}

/* Returns the results of four sums. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_helium_pooled(const tvm_ext_helium_pool2d_layer *layer, tvm_ext_i32x4 sums,
                                                   tvm_ext_i32x4 start, tvm_ext_i32x4 multiplier, tvm_ext_i32x4 shift)
{
    const tvm_ext_i32x4 whole = tvm_ext_i32x4_add(sums, start);
    const tvm_ext_i32x4 scaled = layer->scale_bits > 0 ? tvm_ext_i32x4_shift(whole, layer->scale_bits) : whole;
    return tvm_ext_helium_rescaled(&layer->rescale, scaled, multiplier, shift);
}

/* Returns the averages of a window. start: minus the zero points of its elements; multiplier, shift: for their
   number. */
TVM_EXT_INLINE tvm_ext_i8x16 tvm_ext_helium_average(const tvm_ext_helium_pool2d_layer *layer, const uint8_t *input,
                                                    int32_t n, int32_t top, int32_t left, tvm_ext_taps rows,
                                                    tvm_ext_taps columns, int32_t count, tvm_ext_i32x4 start,
                                                    tvm_ext_i32x4 multiplier, tvm_ext_i32x4 shift)
{
    const tvm_ext_image *const image = &layer->input;
    tvm_ext_i16x8 even = tvm_ext_i16x8_splat(0);
    tvm_ext_i16x8 odd = even;
    for (int32_t r = rows.begin; r < rows.end; ++r) {
        const int32_t row = tvm_ext_row(image, n, top + (r * layer->window.row_dilation));
        for (int32_t s = columns.begin; s < columns.end; ++s) {
            const int32_t x = left + (s * layer->window.column_dilation);
            const tvm_ext_i8x16 elements = tvm_ext_helium_elements(image, &input[row + (x * image->channels)], count);
            even = tvm_ext_i16x8_add(even, tvm_ext_i16x8_even(elements));
            odd = tvm_ext_i16x8_add(odd, tvm_ext_i16x8_odd(elements));
        }
    }
    const tvm_ext_i32x4 results[4] = {
        tvm_ext_helium_pooled(layer, tvm_ext_i32x4_even(even), start, multiplier, shift),
        tvm_ext_helium_pooled(layer, tvm_ext_i32x4_odd(even), start, multiplier, shift),
        tvm_ext_helium_pooled(layer, tvm_ext_i32x4_even(odd), start, multiplier, shift),
        tvm_ext_helium_pooled(layer, tvm_ext_i32x4_odd(odd), start, multiplier, shift),
    };
    return tvm_ext_helium_bytes(&layer->rescale, results);
}

/* Computes all channels of one output pixel, whose window begins at row `top` and column `left` of image n. */
TVM_EXT_INLINE void tvm_ext_helium_pool2d_pixel(const tvm_ext_helium_pool2d_layer *layer, const uint8_t *input,
                                                uint8_t *pixel, const int32_t *restrict multipliers,
                                                const int32_t *restrict shifts, int32_t n, int32_t top, int32_t left,
                                                tvm_ext_taps rows)
{
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_taps columns = tvm_ext_column_taps(&layer->window, image, left);
    const int32_t inside = (rows.end - rows.begin) * (columns.end - columns.begin);
    const int32_t factor = (inside - layer->fewest) * layer->factor_step;
    const int32_t zero_point = (layer->divides ? 0 : image->zero_point) - (image->is_unsigned ? 128 : 0);
    const bool is_whole = image->channels % TVM_EXT_HELIUM_POOLED == 0;
    for (int32_t k = 0; k < image->channels; k += TVM_EXT_HELIUM_POOLED) {
        const int32_t count = is_whole ? TVM_EXT_HELIUM_POOLED : image->channels - k;
        if (layer->is_maximum) {
            tvm_ext_i8x16_store_first(
                &pixel[k], tvm_ext_helium_maximum(layer, &input[k], n, top, left, rows, columns, count), count);
        } else {
            const tvm_ext_i32x4 start = tvm_ext_i32x4_splat(inside * -zero_point);
            const tvm_ext_i32x4 multiplier = tvm_ext_i32x4_splat(multipliers[factor]);
            const tvm_ext_i32x4 shift = tvm_ext_i32x4_splat(shifts[factor]);
            tvm_ext_i8x16_store_first(
                &pixel[k],
                tvm_ext_helium_average(layer, &input[k], n, top, left, rows, columns, count, start, multiplier, shift),
                count);
        }
    }
}

/* Computes output rows [row_begin, row_end) of all images. */
TVM_EXT_INLINE void tvm_ext_helium_pool2d(const tvm_ext_helium_pool2d_layer *layer, const void *input, void *output,
                                          const int32_t *restrict multipliers, const int32_t *restrict shifts,
                                          int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int32_t top = (h * window->row_stride) - window->top;
            const tvm_ext_taps rows = tvm_ext_row_taps(window, &layer->input, top);
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)];
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                const int32_t left = (w * window->column_stride) - window->left;
                tvm_ext_helium_pool2d_pixel(layer, (const uint8_t *)input, &row[w * layer->output.pitch], multipliers,
                                            shifts, n, top, left, rows);
            }
        }
    }
}

#endif
