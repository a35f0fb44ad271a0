/* Windows of quantized images, copied to scratch for Helium: int8, with the zero point as padding. */
#ifndef TVM_EXT_HELIUM_PATCH_H
#define TVM_EXT_HELIUM_PATCH_H

#include "tvm_ext_helium_channels.h"
#include "tvm_ext_layer.h"

/* Copies the window of output pixel (h, w) of one image. It is not inlined; compilers call it directly. */
typedef void tvm_ext_helium_patch(int8_t *restrict patch, const uint8_t *input, int32_t h, int32_t w);

/* A tvm_ext_helium_patch, which the function of each layer calls. In the copy the channels of a tap are `depth`
 * bytes apart, at least as many as there are; bytes between are not written. */
TVM_EXT_INLINE void tvm_ext_helium_copy_window(const tvm_ext_image *image, const tvm_ext_window *window, int32_t depth,
                                               int8_t *restrict patch, const uint8_t *input, int32_t h, int32_t w)
{
    const int32_t channels = image->channels;
    const int32_t row_bytes = window->columns * depth;
    const int32_t top = (h * window->row_stride) - window->top;
    const int32_t left = (w * window->column_stride) - window->left;
    const tvm_ext_taps rows = tvm_ext_row_taps(window, image, top);
    const tvm_ext_taps taps = tvm_ext_column_taps(window, image, left);
    const bool is_run = window->column_dilation == 1 && depth == channels;
    if (rows.begin > 0 || taps.begin > 0 || rows.end < window->rows || taps.end < window->columns) {
        const int32_t zero_point = image->zero_point - (image->is_unsigned ? 128 : 0);
        tvm_ext_fill_i8(patch, (int8_t)zero_point, window->rows * row_bytes);
    }
    for (int32_t r = rows.begin; r < rows.end; ++r) {
        const int32_t row = tvm_ext_row(image, 0, top + (r * window->row_dilation));
        const uint8_t *const from = &input[row + (left * channels)];
        int8_t *const to = &patch[r * row_bytes];
        if (is_run) {
            tvm_ext_helium_copy(image, &to[taps.begin * depth], &from[taps.begin * depth],
                                (taps.end - taps.begin) * depth);
        } else {
            for (int32_t s = taps.begin; s < taps.end; ++s) {
                tvm_ext_helium_copy(image, &to[s * depth], &from[s * window->column_dilation * channels], channels);
            }
        }
    }
}

/* Returns true if all rows of the window whose first one is `top` lie inside the image and are contiguous in memory. */
TVM_EXT_INLINE bool tvm_ext_helium_has_all_rows(const tvm_ext_image *image, const tvm_ext_window *window, int32_t top)
{
    const int32_t reach = (window->rows - 1) * window->row_dilation;
    if ((window->top > 0 && top < 0) || (window->bottom > 0 && top + reach >= image->rows)) {
        return false;
    }
    return !image->is_ring || reach == 0 || ((top + image->ring_shift) % image->ring_rows) + reach < image->ring_rows;
}

#endif
