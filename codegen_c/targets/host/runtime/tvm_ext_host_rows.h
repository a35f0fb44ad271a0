/* Rows of a quantized image that the windows of an output row read, copied with their padding as 16-bit numbers. */
#ifndef TVM_EXT_HOST_ROWS_H
#define TVM_EXT_HOST_ROWS_H

#include "tvm_ext_i32x8.h"

/* Widens `count` elements of 8 bits. */
TVM_EXT_INLINE void tvm_ext_host_widen(int16_t *restrict target, const uint8_t *source, int32_t count, bool is_unsigned)
{
    const int32_t whole = count - (count % 16);
    for (int32_t i = 0; i < whole; i += 16) {
        tvm_ext_i16x16_store(&target[i], tvm_ext_i16x16_widen(&source[i], is_unsigned));
    }
    for (int32_t i = whole; i < count; ++i) {
        const int32_t element = is_unsigned ? (int32_t)source[i] : (int32_t)(int8_t)source[i];
        target[i] = (int16_t)element;
    }
}

TVM_EXT_INLINE void tvm_ext_host_fill(int16_t *restrict target, int32_t value, int32_t count)
{
    for (int32_t i = 0; i < count; ++i) {
        target[i] = (int16_t)value;
    }
}

/* Numbers of a copied row, whose pixels lie `pitch` apart. */
TVM_EXT_INLINE int32_t tvm_ext_host_row_length(const tvm_ext_image *image, const tvm_ext_window *window, int32_t pitch)
{
    return (window->left + image->columns + window->right) * pitch;
}

/* Copies the rows of image n that the taps of a window read whose first row is `top`; padding is the zero point.
 *
 * rows: [rows of the window][columns with padding][pitch], pitch: channels of the image or more. */
TVM_EXT_INLINE void tvm_ext_host_copy_rows(const tvm_ext_image *image, const tvm_ext_window *window,
                                           int16_t *restrict rows, const void *input, int32_t n, int32_t top,
                                           int32_t pitch)
{
    const int32_t length = tvm_ext_host_row_length(image, window, pitch);
    for (int32_t r = 0; r < window->rows; ++r) {
        int16_t *const row = &rows[r * length];
        const int32_t y = top + (r * window->row_dilation);
        if (y < 0 || y >= image->rows) {
            tvm_ext_host_fill(row, image->zero_point, length);
            continue;
        }
        const uint8_t *const source = &((const uint8_t *)input)[tvm_ext_row(image, n, y)];
        int16_t *const inside = &row[window->left * pitch];
        tvm_ext_host_fill(row, image->zero_point, window->left * pitch);
        tvm_ext_host_fill(&inside[image->columns * pitch], image->zero_point, window->right * pitch);
        if (pitch == image->channels) {
            tvm_ext_host_widen(inside, source, image->columns * pitch, image->is_unsigned);
        } else {
            for (int32_t w = 0; w < image->columns; ++w) {
                tvm_ext_host_widen(&inside[w * pitch], &source[w * image->channels], image->channels,
                                   image->is_unsigned);
                tvm_ext_host_fill(&inside[(w * pitch) + image->channels], 0, pitch - image->channels);
            }
        }
    }
}

#endif
