/* Addresses of the taps of a window, for kernels that read each tap in place. */
#ifndef TVM_EXT_TAPS_H
#define TVM_EXT_TAPS_H

#include "tvm_ext_layer.h"

/* Finds the addresses of the taps of the window that begins with row `top` and column `left` of image n, of 8-bit
 * elements; padding: a pixel for taps outside the image. */
TVM_EXT_INLINE void tvm_ext_find_taps(const tvm_ext_window *window, const tvm_ext_image *image, const uint8_t **taps,
                                      const uint8_t *input, const uint8_t *padding, int32_t n, int32_t top,
                                      int32_t left)
{
    const bool is_padded = tvm_ext_is_padded(window);
    for (int32_t r = 0; r < window->rows; ++r) {
        const int32_t y = top + (r * window->row_dilation);
        const bool is_outside = is_padded && (y < 0 || y >= image->rows);
        const uint8_t *const row = is_outside ? padding : &input[tvm_ext_row(image, n, y)];
        for (int32_t s = 0; s < window->columns; ++s) {
            const int32_t x = left + (s * window->column_dilation);
            *taps = is_outside || (is_padded && (x < 0 || x >= image->columns)) ? padding : &row[x * image->channels];
            ++taps;
        }
    }
}

#endif
