/* Copies of the input rows that the windows of an output row read, with padding, as 16-bit numbers. */
#ifndef TVM_EXT_HOST_ROWS_H
#define TVM_EXT_HOST_ROWS_H

#include "tvm_ext_i32x8.h"

/* Numbers that are stored at once. A copy therefore writes up to 15 numbers after its last element. */
#define TVM_EXT_HOST_STORED 16
/* Bytes that are copied at once. */
#define TVM_EXT_HOST_COPIED 32

/* Returns elements i to i + 15 of `count` elements of 8 bits, with zeros after the last one. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_host_widened(const uint8_t *source, int32_t i, int32_t count, bool is_unsigned)
{
    if (i + TVM_EXT_HOST_STORED <= count) {
        return tvm_ext_i16x16_widen(&source[i], is_unsigned);
    }
    uint8_t rest[TVM_EXT_HOST_STORED] = {0};
    (void)memcpy(rest, &source[i], (size_t)(count - i));
    return tvm_ext_i16x16_widen(rest, is_unsigned);
}

/* Widens `count` elements of 8 bits; writes whole vectors. */
TVM_EXT_INLINE void tvm_ext_host_widen(int16_t *restrict target, const uint8_t *source, int32_t count, bool is_unsigned)
{
    TVM_EXT_I32X8_UNROLLED
    for (int32_t i = 0; i < count; i += TVM_EXT_HOST_STORED) {
        tvm_ext_i16x16_store(&target[i], tvm_ext_host_widened(source, i, count, is_unsigned));
    }
}

/* Writes `value` `count` times, in whole vectors. */
TVM_EXT_INLINE void tvm_ext_host_fill(int16_t *restrict target, int32_t value, int32_t count)
{
    for (int32_t i = 0; i < count; i += TVM_EXT_HOST_STORED) {
        tvm_ext_i16x16_store(&target[i], tvm_ext_i16x16_splat(value));
    }
}

/* Returns the columns of a copied row. */
TVM_EXT_INLINE int32_t tvm_ext_host_row_columns(const tvm_ext_image *image, const tvm_ext_window *window)
{
    return window->left + image->columns + window->right;
}

/* Copies bytes; the target may lie `distance` bytes before the source and overlap it. It uses vectors, because
 * compilers turn other overlapping copies into loops of eight bytes each. */
TVM_EXT_INLINE void tvm_ext_host_copy_row(uint8_t *target, const uint8_t *source, int32_t bytes, int32_t distance)
{
    const int32_t last = bytes - TVM_EXT_HOST_COPIED;
    if (last < 0 || distance < TVM_EXT_HOST_COPIED) {
        (void)memmove(target, source, (size_t)bytes);
        return;
    }
    TVM_EXT_I32X8_UNROLLED
    for (int32_t i = 0; i < last; i += TVM_EXT_HOST_COPIED) {
        tvm_ext_i16x16_store(&target[i], tvm_ext_i16x16_load(&source[i]));
    }
    tvm_ext_i16x16_store(&target[last], tvm_ext_i16x16_load(&source[last]));
}

/* Moves the rows that the windows of an output row share with those of the previous row to their new positions. Returns
 * their number; `rows` holds them already unless `is_first`. */
TVM_EXT_INLINE int32_t tvm_ext_host_keep_rows(const tvm_ext_window *window, void *rows, int32_t row_bytes,
                                              bool is_first)
{
    const int32_t kept = window->rows - window->row_stride;
    if (is_first || kept <= 0 || window->row_dilation > 1) {
        return 0;
    }
    const int32_t distance = window->row_stride * row_bytes;
    tvm_ext_host_copy_row((uint8_t *)rows, &((const uint8_t *)rows)[distance], kept * row_bytes, distance);
    return kept;
}

/* Copies the rows of image n that a window whose first row is `top` reads, from its row `first` on. Padding is the
 * zero point.
 *
 * rows: [rows of the window][columns with padding][channels], and 15 more elements of space. */
TVM_EXT_INLINE void tvm_ext_host_copy_rows(const tvm_ext_image *image, const tvm_ext_window *window,
                                           int16_t *restrict rows, const void *input, int32_t n, int32_t top,
                                           int32_t first)
{
    const int32_t channels = image->channels;
    const int32_t length = tvm_ext_host_row_columns(image, window) * channels;
    for (int32_t r = first; r < window->rows; ++r) {
        int16_t *const row = &rows[r * length];
        const int32_t y = top + (r * window->row_dilation);
        if (y < 0 || y >= image->rows) {
            tvm_ext_host_fill(row, image->zero_point, length);
            continue;
        }
        int16_t *const inside = &row[window->left * channels];
        tvm_ext_host_fill(row, image->zero_point, window->left * channels);
        tvm_ext_host_widen(inside, &((const uint8_t *)input)[tvm_ext_row(image, n, y)], image->columns * channels,
                           image->is_unsigned);
        tvm_ext_host_fill(&inside[image->columns * channels], image->zero_point, window->right * channels);
    }
}

/* Copies the rows without widening. rows: [rows of the window][columns with padding][channels]. */
TVM_EXT_INLINE void tvm_ext_host_copy_bytes(const tvm_ext_image *image, const tvm_ext_window *window,
                                            uint8_t *restrict rows, const void *input, int32_t n, int32_t top,
                                            int32_t first)
{
    const int32_t channels = image->channels;
    const int32_t length = tvm_ext_host_row_columns(image, window) * channels;
    for (int32_t r = first; r < window->rows; ++r) {
        uint8_t *const row = &rows[r * length];
        const int32_t y = top + (r * window->row_dilation);
        if (y < 0 || y >= image->rows) {
            (void)memset(row, image->zero_point, (size_t)length);
            continue;
        }
        const int32_t inside = image->columns * channels;
        const int32_t left = window->left * channels;
        (void)memset(row, image->zero_point, (size_t)left);
        tvm_ext_host_copy_row(&row[left], &((const uint8_t *)input)[tvm_ext_row(image, n, y)], inside,
                              TVM_EXT_HOST_COPIED);
        (void)memset(&row[left + inside], image->zero_point, (size_t)window->right * (size_t)channels);
    }
}

#endif
