/* Convolution of quantized images by Helium: two output pixels by four channels at a time.
 *
 * If a row of the window is a whole number of steps, pixels whose windows lie inside the image are read in place;
 * windows of all others are copied to scratch first. An initial sum includes the zero point's part of all weights,
 * because padding is read like the input. */
#ifndef TVM_EXT_HELIUM_CONV2D_H
#define TVM_EXT_HELIUM_CONV2D_H

#include "tvm_ext_helium_channels.h"
#include "tvm_ext_helium_patch.h"
#include "tvm_ext_layer.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t in_place_begin; /* columns [begin, end) are read in place if all rows of their windows are inside */
    int32_t in_place_end;
    bool has_copies;        /* some pixels are copied first */
    int32_t inside_begin;   /* columns whose windows lie in columns of the image, if a row of them is one vector */
    int32_t inside_end;
    bool is_inside; /* all windows lie in the image, and no other copies are needed */
    tvm_ext_helium_product product;
} tvm_ext_helium_conv2d_layer;

/* Returns the bytes from the copy of a window to that of the next. */
TVM_EXT_INLINE int32_t tvm_ext_helium_copy_bytes(const tvm_ext_helium_conv2d_layer *layer)
{
    const int32_t bytes = layer->window.rows * layer->window.columns * layer->input.channels;
    return (bytes + TVM_EXT_HELIUM_STEP - 1) / TVM_EXT_HELIUM_STEP * TVM_EXT_HELIUM_STEP;
}

/* A tvm_ext_helium_patch, which the function of each layer calls. */
TVM_EXT_INLINE void tvm_ext_helium_conv2d_copy(const tvm_ext_helium_conv2d_layer *layer, int8_t *restrict patch,
                                               const uint8_t *input, int32_t h, int32_t w)
{
    tvm_ext_helium_copy_window(&layer->input, &layer->window, layer->input.channels, patch, input, h, w);
}

/* Copies the window of output pixel (h, w), which lies inside the image, one row per vector; this may write up to 16
 * bytes beyond the copy. */
TVM_EXT_INLINE void tvm_ext_helium_conv2d_copy_pixel(const tvm_ext_helium_conv2d_layer *layer,
                                                     tvm_ext_helium_patch *patch, int8_t *copy, const uint8_t *input,
                                                     int32_t h, int32_t w)
{
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_window *const window = &layer->window;
    const int32_t top = (h * window->row_stride) - window->top;
    const int32_t left = (w * window->column_stride) - window->left;
    if (!layer->is_inside &&
        (w < layer->inside_begin || w >= layer->inside_end || !tvm_ext_helium_has_all_rows(image, window, top))) {
        patch(copy, input, h, w);
        return;
    }
    const int32_t row_bytes = window->columns * image->channels;
    const uint8_t *const x = &input[tvm_ext_row(image, 0, top) + (left * image->channels)];
    for (int32_t r = 0; r < window->rows; ++r) {
        const int32_t place = r * window->row_dilation * image->columns * image->channels;
        const tvm_ext_i8x16 row = tvm_ext_i8x16_load_first(&x[place], row_bytes);
        const tvm_ext_i8x16 bits = tvm_ext_i8x16_splat(INT8_MIN);
        tvm_ext_i8x16_store(&copy[r * row_bytes], image->is_unsigned ? tvm_ext_i8x16_xor(row, bits) : row);
    }
}

/* Copies the windows of pixel m and of the next pixel of one image; pixels are counted through all rows of the
 * image. If the next pixel is `end`, the window of pixel m is copied twice. */
TVM_EXT_INLINE void tvm_ext_helium_conv2d_copy_two(const tvm_ext_helium_conv2d_layer *layer,
                                                   tvm_ext_helium_patch *patch, int8_t *copies, const uint8_t *input,
                                                   int32_t m, int32_t end)
{
    const int32_t columns = layer->output.columns;
    const int32_t next = m + 1 < end ? m + 1 : m;
    tvm_ext_helium_conv2d_copy_pixel(layer, patch, copies, input, m / columns, m % columns);
    tvm_ext_helium_conv2d_copy_pixel(layer, patch, &copies[tvm_ext_helium_copy_bytes(layer)], input, next / columns,
                                     next % columns);
}

/* Computes two pixels of one image, counted through all its rows, from their copies; m and `end` as for the copies. */
TVM_EXT_INLINE void tvm_ext_helium_conv2d_two(const tvm_ext_helium_conv2d_layer *layer, tvm_ext_helium_two *two,
                                              const int8_t *copies, uint8_t *output, const int8_t *restrict weights,
                                              const int32_t *restrict factors, int32_t m, int32_t end)
{
    const int32_t pitch = layer->output.pitch * tvm_ext_helium_output_bytes(&layer->product);
    const int32_t next = m + 1 < end ? m + 1 : m;
    two(copies, &copies[tvm_ext_helium_copy_bytes(layer)], 0, &output[m * pitch], &output[next * pitch], weights,
        factors);
}

/* Computes pixels [begin, end) of one image, counted through all its rows, from copies; the last may be a pair with
   itself. */
TVM_EXT_INLINE void tvm_ext_helium_conv2d_flat(const tvm_ext_helium_conv2d_layer *layer, tvm_ext_helium_two *two,
                                               tvm_ext_helium_patch *patch, const uint8_t *input, uint8_t *output,
                                               const int8_t *restrict weights, const int32_t *restrict factors,
                                               int8_t *copies, int32_t begin, int32_t end)
{
    for (int32_t m = begin; m < end; m += 2) {
        tvm_ext_helium_conv2d_copy_two(layer, patch, copies, input, m, end);
        tvm_ext_helium_conv2d_two(layer, two, copies, output, weights, factors, m, end);
    }
}

/* Computes pairs of the columns that are read in place; `row`: the first output element. */
TVM_EXT_INLINE void tvm_ext_helium_conv2d_in_place(const tvm_ext_helium_conv2d_layer *layer, tvm_ext_helium_two *two,
                                                   const uint8_t *input, uint8_t *row, const int8_t *restrict weights,
                                                   const int32_t *restrict factors, int32_t top)
{
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_window *const window = &layer->window;
    const int32_t pitch = layer->output.pitch * tvm_ext_helium_output_bytes(&layer->product);
    const int32_t left = (layer->in_place_begin * window->column_stride) - window->left;
    const int32_t step = window->column_stride * image->channels;
    const int32_t skip = ((window->row_dilation * image->columns) - window->columns) * image->channels;
    const int8_t *x = (const int8_t *)&input[tvm_ext_row(image, 0, top) + (left * image->channels)];
    for (int32_t w = layer->in_place_begin; w < layer->in_place_end; w += 2) {
        uint8_t *const y = &row[w * pitch];
        two(x, &x[step], skip, y, &y[pitch], weights, factors);
        x += 2 * step;
    }
}

/* Computes the remaining columns of a row from copies: `done` columns from in_place_begin on are complete. */
TVM_EXT_INLINE void tvm_ext_helium_conv2d_others(const tvm_ext_helium_conv2d_layer *layer, tvm_ext_helium_two *two,
                                                 tvm_ext_helium_patch *patch, const uint8_t *input, uint8_t *row,
                                                 const int8_t *restrict weights, const int32_t *restrict factors,
                                                 int8_t *copies, int32_t h, int32_t done)
{
    const int32_t first = layer->in_place_begin;
    const int32_t count = layer->output.columns - done;
    const int32_t pitch = layer->output.pitch * tvm_ext_helium_output_bytes(&layer->product);
    int8_t *const second = &copies[tvm_ext_helium_copy_bytes(layer)];
    for (int32_t i = 0; i < count; i += 2) {
        const int32_t w0 = i < first ? i : done + i;
        const int32_t behind = i + 1 < first ? i + 1 : done + i + 1;
        const int32_t w1 = i + 1 < count ? behind : w0;
        patch(copies, input, h, w0);
        patch(second, input, h, w1);
        two(copies, second, 0, &row[w0 * pitch], &row[w1 * pitch], weights, factors);
    }
}

/* Computes output rows [row_begin, row_end) of all images. */
TVM_EXT_INLINE void tvm_ext_helium_conv2d(const tvm_ext_helium_conv2d_layer *layer, tvm_ext_helium_two *two,
                                          tvm_ext_helium_patch *patch, const void *input, void *output,
                                          const int8_t *restrict weights, const int32_t *restrict factors,
                                          void *scratch, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_image *const source = &layer->input;
    const tvm_ext_image *const made = &layer->output;
    const int32_t in_place = layer->in_place_end - layer->in_place_begin;
    if (in_place == 0 && made->images == 1 && !made->is_ring) {
        tvm_ext_helium_conv2d_flat(layer, two, patch, (const uint8_t *)input, (uint8_t *)output, weights, factors,
                                   (int8_t *)scratch, row_begin * made->columns, row_end * made->columns);
        return;
    }
    for (int32_t n = 0; n < made->images; ++n) {
        const uint8_t *const image = &((const uint8_t *)input)[n * source->rows * source->columns * source->channels];
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int32_t top = (h * layer->window.row_stride) - layer->window.top;
            uint8_t *const row = (uint8_t *)tvm_ext_target(made, output, tvm_ext_row(made, n, h));
            int32_t done = 0;
            if (in_place > 0 && (!layer->has_copies || tvm_ext_helium_has_all_rows(source, &layer->window, top))) {
                tvm_ext_helium_conv2d_in_place(layer, two, image, row, weights, factors, top);
                done = in_place;
            }
            if (layer->has_copies) {
                tvm_ext_helium_conv2d_others(layer, two, patch, image, row, weights, factors, (int8_t *)scratch, h,
                                             done);
            }
        }
    }
}

#endif
