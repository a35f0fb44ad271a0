/* Windows of two or three pixels for several convolutions of one image: they are expanded to cells once, and the
 * channels of each convolution read them. Pixels are counted through all rows of a single image. */
#ifndef TVM_EXT_DSP_SHARED_WINDOWS_H
#define TVM_EXT_DSP_SHARED_WINDOWS_H

#include "tvm_ext_dsp_conv2d.h"

/* Expands the windows of two or three pixels from `first` on, or of as many as there are before pixel `count`. */
TVM_EXT_INLINE void tvm_ext_dsp_fill_windows(const tvm_ext_dsp_conv2d_layer *layer, uint32_t *cells, const void *input,
                                             int32_t first, int32_t count)
{
    const int32_t columns = layer->output.columns;
    uint8_t *const padded = (uint8_t *)&cells[2 * tvm_ext_dsp_conv2d_units(layer) * tvm_ext_dsp_at_once(layer)];
    for (int32_t lane = 0; lane < tvm_ext_dsp_at_once(layer) && first + lane < count; ++lane) {
        const int32_t h = layer->output.rows > 1 ? (first + lane) / columns : 0;
        const int32_t w = first + lane - (h * columns);
        const int32_t top = (h * layer->window.row_stride) - layer->window.top;
        const int32_t left = (w * layer->window.column_stride) - layer->window.left;
        tvm_ext_dsp_expand_window(layer, &cells[lane], (const uint8_t *)input, tvm_ext_dsp_window_start(layer, 0, top),
                                  top, left, padded);
    }
}

/* Sets the addresses of three pixels of an output from `first` on, of which two may be used. In place of missing pixels
 * the first one is repeated; it is stored last. */
TVM_EXT_INLINE void tvm_ext_dsp_find_pixels(const tvm_ext_image *image, void *output, int32_t first, int32_t count,
                                            uint8_t *pixels[TVM_EXT_DSP_PIXELS])
{
    for (int32_t lane = 0; lane < TVM_EXT_DSP_PIXELS; ++lane) {
        const int32_t m = first + lane < count ? first + lane : first;
        pixels[lane] = (uint8_t *)tvm_ext_target(image, output, m * image->pitch);
    }
}

#endif
