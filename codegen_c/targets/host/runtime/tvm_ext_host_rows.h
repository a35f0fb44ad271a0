/* Copies of the input rows that the windows of an output row read, with padding, as bytes with the sign that products
 * take.
 *
 * The copies are a ring buffer: consecutive output rows share rows, which are copied once. */
#ifndef TVM_EXT_HOST_ROWS_H
#define TVM_EXT_HOST_ROWS_H

#include "tvm_ext_i32x16.h"

/* Returns the columns of a copied row. */
TVM_EXT_INLINE int32_t tvm_ext_host_row_columns(const tvm_ext_image *image, const tvm_ext_window *window)
{
    return window->left + image->columns + window->right;
}

/* Returns the slot of the ring buffer of row r of the window of output row h. */
TVM_EXT_INLINE int32_t tvm_ext_host_slot(const tvm_ext_window *window, int32_t h, int32_t r)
{
    return window->row_dilation > 1 ? r : ((h * window->row_stride) + r) % window->rows;
}

/* Copies row y of image n with padding around it; a row outside the image is padding. Padding is the zero point. */
TVM_EXT_INLINE void tvm_ext_host_copy_row(const tvm_ext_image *image, const tvm_ext_window *window, uint8_t *row,
                                          const void *input, int32_t n, int32_t y)
{
    const int32_t channels = image->channels;
    const uint8_t flip = tvm_ext_i32x16_flip(image->is_unsigned);
    const uint8_t padding = (uint8_t)((uint8_t)image->zero_point ^ flip);
    const size_t left = (size_t)window->left * (size_t)channels;
    const int32_t inside = image->columns * channels;
    if (y < 0 || y >= image->rows) {
        (void)memset(row, padding, (size_t)tvm_ext_host_row_columns(image, window) * (size_t)channels);
        return;
    }
    if (window->left > 0) {
        (void)memset(row, padding, left);
    }
    tvm_ext_i8x64_copy(&row[left], &((const uint8_t *)input)[tvm_ext_row(image, n, y)], inside, flip);
    if (window->right > 0) {
        (void)memset(&row[left + (size_t)inside], padding, (size_t)window->right * (size_t)channels);
    }
}

/* Copies the rows of image n that the windows of output row h read. rows: [slots][columns with padding][channels], of
 * which it expects those of output row h - 1 unless `is_first`. */
TVM_EXT_INLINE void tvm_ext_host_copy_rows(const tvm_ext_image *image, const tvm_ext_window *window, uint8_t *rows,
                                           const void *input, int32_t n, int32_t h, bool is_first)
{
    const int32_t length = tvm_ext_host_row_columns(image, window) * image->channels;
    const int32_t kept = window->row_dilation > 1 ? 0 : window->rows - window->row_stride;
    for (int32_t r = is_first || kept < 0 ? 0 : kept; r < window->rows; ++r) {
        const int32_t y = (h * window->row_stride) - window->top + (r * window->row_dilation);
        tvm_ext_host_copy_row(image, window, &rows[tvm_ext_host_slot(window, h, r) * length], input, n, y);
    }
}

#endif
