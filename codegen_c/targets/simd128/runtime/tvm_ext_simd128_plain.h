/* Sums of two quantized images, 8 elements at a time, and maxima of windows, 16 channels at a time. */
#ifndef TVM_EXT_SIMD128_PLAIN_H
#define TVM_EXT_SIMD128_PLAIN_H

#include "tvm_ext_simd128_rescale.h"

#define TVM_EXT_SIMD128_BYTES 16
#define TVM_EXT_SIMD128_LOW_BITS 15

/* An element is start + first * a + second * b, shifted right, then clamped. Factors have 31 bits and sums 46: both
 * are in two parts, `high` * 2^15 + `low`, where `low` is not below 0. The compiler uses it only if each pair of
 * elements gets its result. */
typedef struct {
    tvm_ext_image first;
    tvm_ext_image second;
    tvm_ext_image output;
    int16_t high_factors[2]; /* of the first and of the second element */
    int16_t low_factors[2];
    int32_t high_start; /* holds the zero points, and one half for rounding */
    int32_t low_start;
    int32_t shift; /* of the high parts: the shift of sums minus 15 */
    int32_t low;
    int32_t high;
} tvm_ext_simd128_qbinary_layer;

/* Maxima of windows, then clamped. */
typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    bool has_high; /* maxima are clamped to `high` */
    int32_t low;
    int32_t high;
} tvm_ext_simd128_maxima_layer;

/* Returns the results of four pairs of elements. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_simd128_four_sums(const tvm_ext_simd128_qbinary_layer *layer, tvm_ext_i16x8 pairs)
{
    const tvm_ext_i16x8 low_factors = tvm_ext_i16x8_pair(layer->low_factors);
    const tvm_ext_i16x8 high_factors = tvm_ext_i16x8_pair(layer->high_factors);
    const tvm_ext_i32x4 low = tvm_ext_i32x4_add_pairs(tvm_ext_i32x4_splat(layer->low_start), pairs, low_factors);
    const tvm_ext_i32x4 high = tvm_ext_i32x4_add_pairs(tvm_ext_i32x4_splat(layer->high_start), pairs, high_factors);
    return tvm_ext_i32x4_right(tvm_ext_i32x4_add(high, tvm_ext_i32x4_right(low, TVM_EXT_SIMD128_LOW_BITS)),
                               layer->shift);
}

/* Computes 8 elements. */
TVM_EXT_INLINE void tvm_ext_simd128_sum(const tvm_ext_simd128_qbinary_layer *layer, const uint8_t *first,
                                        const uint8_t *second, uint8_t *output)
{
    const tvm_ext_i16x8 a = tvm_ext_i16x8_widen(first, layer->first.is_unsigned);
    const tvm_ext_i16x8 b = tvm_ext_i16x8_widen(second, layer->second.is_unsigned);
    tvm_ext_i32x4_store_bytes(output, tvm_ext_simd128_four_sums(layer, tvm_ext_i16x8_low_turns(a, b)),
                              tvm_ext_simd128_four_sums(layer, tvm_ext_i16x8_high_turns(a, b)), layer->low, layer->high,
                              layer->output.is_unsigned);
}

/* Computes the last elements of a run, fewer than 8. */
TVM_EXT_INLINE void tvm_ext_simd128_last_sums(const tvm_ext_simd128_qbinary_layer *layer, const uint8_t *first,
                                              const uint8_t *second, uint8_t *output, int32_t count)
{
    uint8_t a[TVM_EXT_SIMD128_UNIT] = {0};
    uint8_t b[TVM_EXT_SIMD128_UNIT] = {0};
    uint8_t y[TVM_EXT_SIMD128_UNIT];
    (void)memcpy(a, first, (size_t)count);
    (void)memcpy(b, second, (size_t)count);
    tvm_ext_simd128_sum(layer, a, b, y);
    (void)memcpy(output, y, (size_t)count);
}

/* Computes output rows [row_begin, row_end) of one image: in runs of a row, or of a pixel if pixels have a pitch. */
TVM_EXT_INLINE void tvm_ext_simd128_qbinary(const tvm_ext_simd128_qbinary_layer *layer, const void *first,
                                            const void *second, void *output, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_image *const image = &layer->output;
    const bool is_one_run = image->pitch == image->channels;
    const int32_t runs = is_one_run ? 1 : image->columns;
    const int32_t length = is_one_run ? image->columns * image->channels : image->channels;
    const int32_t whole = length - (length % TVM_EXT_SIMD128_UNIT);
    for (int32_t h = row_begin; h < row_end; ++h) {
        for (int32_t w = 0; w < runs; ++w) {
            const uint8_t *const a = &((const uint8_t *)first)[tvm_ext_row(&layer->first, 0, h) + (w * length)];
            const uint8_t *const b = &((const uint8_t *)second)[tvm_ext_row(&layer->second, 0, h) + (w * length)];
            uint8_t *const y = &((uint8_t *)output)[tvm_ext_row(image, 0, h) + (w * image->pitch)];
            for (int32_t i = 0; i < whole; i += TVM_EXT_SIMD128_UNIT) {
                tvm_ext_simd128_sum(layer, &a[i], &b[i], &y[i]);
            }
            if (whole < length) {
                tvm_ext_simd128_last_sums(layer, &a[whole], &b[whole], &y[whole], length - whole);
            }
        }
    }
}

/* Raises 16 maxima to the elements of a tap. */
TVM_EXT_INLINE void tvm_ext_simd128_raise(uint8_t *maxima, const uint8_t *tap, bool is_unsigned)
{
#if defined(__wasm_simd128__)
    const v128_t x = wasm_v128_load(tap);
    const v128_t most = wasm_v128_load(maxima);
    wasm_v128_store(maxima, is_unsigned ? wasm_u8x16_max(x, most) : wasm_i8x16_max(x, most));
#else
    for (int32_t i = 0; i < TVM_EXT_SIMD128_BYTES; ++i) {
        const bool is_above = is_unsigned ? tap[i] > maxima[i] : (int8_t)tap[i] > (int8_t)maxima[i];
        maxima[i] = is_above ? tap[i] : maxima[i];
    }
#endif
}

/* Computes `count` channels of an output pixel, at most 16. pixel: channel k of the window's first column. */
TVM_EXT_INLINE void tvm_ext_simd128_maximum(const tvm_ext_simd128_maxima_layer *layer, const uint8_t *input,
                                            uint8_t *output, int32_t n, int32_t top, tvm_ext_taps rows,
                                            tvm_ext_taps columns, int32_t first, int32_t count)
{
    const tvm_ext_image *const image = &layer->input;
    uint8_t maxima[TVM_EXT_SIMD128_BYTES];
    (void)memset(maxima, layer->low, sizeof maxima);
    for (int32_t r = rows.begin; r < rows.end; ++r) {
        const int32_t row = tvm_ext_row(image, n, top + (r * layer->window.row_dilation)) + first;
        for (int32_t s = columns.begin; s < columns.end; ++s) {
            const int32_t tap = row + (s * layer->window.column_dilation * image->channels);
            if (count == TVM_EXT_SIMD128_BYTES) {
                tvm_ext_simd128_raise(maxima, &input[tap], image->is_unsigned);
            } else {
                uint8_t x[TVM_EXT_SIMD128_BYTES] = {0};
                (void)memcpy(x, &input[tap], (size_t)count);
                tvm_ext_simd128_raise(maxima, x, image->is_unsigned);
            }
        }
    }
    for (int32_t i = 0; i < TVM_EXT_SIMD128_BYTES && layer->has_high; ++i) {
        const int32_t value = image->is_unsigned ? (int32_t)maxima[i] : (int32_t)(int8_t)maxima[i];
        maxima[i] = (uint8_t)(value > layer->high ? layer->high : value);
    }
    (void)memcpy(output, maxima, (size_t)count);
}

/* Computes output rows [row_begin, row_end) of all images. */
TVM_EXT_INLINE void tvm_ext_simd128_maxima(const tvm_ext_simd128_maxima_layer *layer, const void *input, void *output,
                                           int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t channels = layer->output.channels;
    const int32_t whole = channels - (channels % TVM_EXT_SIMD128_BYTES);
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int32_t top = (h * window->row_stride) - window->top;
            const tvm_ext_taps rows = tvm_ext_row_taps(window, &layer->input, top);
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)];
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                const int32_t left = (w * window->column_stride) - window->left;
                const tvm_ext_taps columns = tvm_ext_column_taps(window, &layer->input, left);
                uint8_t *const pixel = &row[w * layer->output.pitch];
                const int32_t first = left * channels;
                for (int32_t k = 0; k < whole; k += TVM_EXT_SIMD128_BYTES) {
                    tvm_ext_simd128_maximum(layer, (const uint8_t *)input, &pixel[k], n, top, rows, columns, first + k,
                                            TVM_EXT_SIMD128_BYTES);
                }
                if (whole < channels) {
                    tvm_ext_simd128_maximum(layer, (const uint8_t *)input, &pixel[whole], n, top, rows, columns,
                                            first + whole, channels - whole);
                }
            }
        }
    }
}

#endif
