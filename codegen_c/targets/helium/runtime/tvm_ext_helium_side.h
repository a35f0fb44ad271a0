/* Convolutions of quantized images by Helium, four adjacent pixels of a row at a time.
 *
 * If a row is no multiple of four pixels, the last four overlap the ones before them, or a pixel left over from 1x1
 * windows is computed alone. Windows that lie in the image are read in place. Others are copied to scratch first,
 * with padding: columns of four windows as one strip, or, if a row of a window is at most a vector, four windows. */
#ifndef TVM_EXT_HELIUM_SIDE_H
#define TVM_EXT_HELIUM_SIDE_H

#include "tvm_ext_copy.h"
#include "tvm_ext_helium_conv2d.h"
#include "tvm_ext_helium_fours.h"
#include "tvm_ext_layer.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t inside_begin; /* columns [begin, end) whose windows lie in columns of the image */
    int32_t inside_end;
    bool reads_beyond;    /* vectors reach beyond the input's pixels, so the last four of a run are copied first */
    bool is_in_place;     /* the output may overwrite the input */
    bool is_copied;       /* windows are copied one by one */
    bool has_others;      /* some windows do not lie in the image with contiguous rows */
    tvm_ext_helium_fours fours;
} tvm_ext_helium_side_layer;

/* Returns the first of four pixels, of `count` or more, with pixel m among them. */
TVM_EXT_INLINE int32_t tvm_ext_helium_first_of_four(int32_t m, int32_t count)
{
    return m + TVM_EXT_HELIUM_FOUR_PIXELS <= count ? m : count - TVM_EXT_HELIUM_FOUR_PIXELS;
}

/* Returns the single pixels of a run of `count`: one left over from groups of four, or all of a short run. */
TVM_EXT_INLINE int32_t tvm_ext_helium_num_ones(int32_t count)
{
    const int32_t left = count % TVM_EXT_HELIUM_FOUR_PIXELS;
    return count < TVM_EXT_HELIUM_FOUR_PIXELS || left == 1 ? left : 0;
}

/* Computes a run of pixels with 1x1 windows; if `one` is NULL, at least four. When the output overwrites the input, a
 * pixel must be read before results reach it. So the last pixels, four that may overlap the ones before or the single
 * ones, are copied at the start, and the others immediately before they are computed. */
TVM_EXT_INLINE void tvm_ext_helium_side_run(const tvm_ext_helium_side_layer *layer, tvm_ext_helium_group *four,
                                            tvm_ext_helium_group *one, const int8_t *x, uint8_t *y,
                                            const int8_t *restrict packed, int8_t *scratch, int32_t count)
{
    const int32_t depth = layer->input.channels;
    const int32_t pitch = layer->output.pitch;
    const int32_t ones = one == NULL ? 0 : tvm_ext_helium_num_ones(count);
    const int32_t kept = ones > 0 ? ones : TVM_EXT_HELIUM_FOUR_PIXELS;
    const int32_t last = count - kept;
    const bool keeps_last = scratch != NULL && (layer->reads_beyond || layer->is_in_place);
    const bool keeps_all = layer->is_in_place && layer->fours.steps > 1;
    int8_t *const copy = &scratch[keeps_all ? TVM_EXT_HELIUM_FOUR_PIXELS * layer->fours.column_bytes : 0];
    if (keeps_last) {
        tvm_ext_copy_i8(copy, &x[last * depth], kept * depth);
    }
    for (int32_t m = 0; m < count - ones; m += TVM_EXT_HELIUM_FOUR_PIXELS) {
        const int32_t first = m < last ? m : last;
        const int8_t *from = &x[first * depth];
        if (keeps_last && first == last) {
            from = copy;
        } else if (keeps_all) {
            tvm_ext_copy(scratch, from, (size_t)(TVM_EXT_HELIUM_FOUR_PIXELS * depth));
            from = scratch;
        }
        four(from, 0, &y[first * pitch], packed);
    }
    for (int32_t m = 0; m < ones; ++m) {
        one(keeps_last ? &copy[m * depth] : &x[(last + m) * depth], 0, &y[(last + m) * pitch], packed);
    }
}

/* Computes output rows [row_begin, row_end) of a convolution with 1x1 windows. `one` is NULL if no run has single
 * pixels. Groups continue from one row to the next if there is one image and its rows are contiguous. */
TVM_EXT_INLINE void tvm_ext_helium_side_pixels(const tvm_ext_helium_side_layer *layer, tvm_ext_helium_group *four,
                                               tvm_ext_helium_group *one, const void *input, void *output,
                                               const int8_t *restrict packed, void *scratch, int32_t row_begin,
                                               int32_t row_end)
{
    const tvm_ext_image *const source = &layer->input;
    const tvm_ext_image *const made = &layer->output;
    const bool is_one_run = made->images == 1 && !made->is_ring && !source->is_ring;
    const int32_t rows = is_one_run ? row_end - row_begin : 1;
    for (int32_t n = 0; n < made->images; ++n) {
        for (int32_t h = row_begin; h < row_end; h += rows) {
            tvm_ext_helium_side_run(layer, four, one, &((const int8_t *)input)[tvm_ext_row(source, n, h)],
                                    &((uint8_t *)output)[tvm_ext_row(made, n, h)], packed, (int8_t *)scratch,
                                    rows * made->columns);
        }
    }
}

/* Copies the strip under the windows of four pixels of a row, from (h, w) on. */
TVM_EXT_INLINE void tvm_ext_helium_copy_strip(const tvm_ext_helium_side_layer *layer, int8_t *restrict strip,
                                              const uint8_t *input, int32_t h, int32_t w)
{
    tvm_ext_window window = layer->window;
    window.columns += (TVM_EXT_HELIUM_FOUR_PIXELS - 1) * window.column_stride;
    tvm_ext_helium_copy_window(&layer->input, &window, layer->input.channels, strip, input, h, w);
}

#ifdef TVM_EXT_HAS_HELIUM

#define TVM_EXT_HELIUM_SHORT_ROWS                                                                                    \
    "vpsttt\n\tvldrbt.u8 q0, [%[r0]], %[pixel]\n\tvldrbt.u8 q1, [%[r1]], %[pixel]\n\t"                              \
    "vldrbt.u8 q2, [%[r2]], %[pixel]\n\tvstrb.8 q0, [%[to]], %[row]\n\tvstrb.8 q1, [%[to]], %[row]\n\t"             \
    "vstrb.8 q2, [%[to]], %[last]\n\t"

/* Copies four windows of three rows, `pitch` bytes apart in the image. pixel_bytes, row_bytes and last_bytes, from a
 * copy's last row to the next copy, are constants after expansion. */
#define TVM_EXT_HELIUM_COPY_SHORTS(copies, x, pitch, pixel_bytes, row_bytes, last_bytes)                             \
    do {                                                                                                             \
        const uint8_t *shorts_0 = (x), *shorts_1 = &shorts_0[(pitch)], *shorts_2 = &shorts_1[(pitch)];               \
        int8_t *shorts_to = (copies);                                                                                \
        __asm__ volatile("vctp.8 %[lanes]\n\t" TVM_EXT_HELIUM_SHORT_ROWS TVM_EXT_HELIUM_SHORT_ROWS                   \
                             TVM_EXT_HELIUM_SHORT_ROWS TVM_EXT_HELIUM_SHORT_ROWS                                     \
                         : [r0] "+r"(shorts_0), [r1] "+r"(shorts_1), [r2] "+r"(shorts_2), [to] "+r"(shorts_to)       \
                         : [pixel] "i"(pixel_bytes), [row] "i"(row_bytes), [last] "i"(last_bytes),                   \
                           [lanes] "r"(row_bytes)                                                                    \
                         : "q0", "q1", "q2", "cc", "memory");                                                        \
    } while (0)

#endif

/* Copies the rows of a window, each at most a vector, one after the other; writes up to 16 bytes beyond the copy. */
TVM_EXT_INLINE void tvm_ext_helium_copy_short(const tvm_ext_image *image, const tvm_ext_window *window,
                                              int8_t *restrict copy, const uint8_t *x)
{
    const int32_t row_bytes = window->columns * image->channels;
    for (int32_t r = 0; r < window->rows; ++r) {
        const tvm_ext_i8x16 row =
            tvm_ext_i8x16_load_first(&x[r * window->row_dilation * image->columns * image->channels], row_bytes);
        const tvm_ext_i8x16 bits = tvm_ext_i8x16_splat(INT8_MIN);
        tvm_ext_i8x16_store(&copy[r * row_bytes], image->is_unsigned ? tvm_ext_i8x16_xor(row, bits) : row);
    }
}

/* Copies four windows inside the image, `pixel_bytes` apart. */
TVM_EXT_INLINE void tvm_ext_helium_copy_shorts(const tvm_ext_helium_side_layer *layer, int8_t *restrict copies,
                                               const uint8_t *x, int32_t pixel_bytes)
{
#ifdef TVM_EXT_HAS_HELIUM
    const tvm_ext_window *const window = &layer->window;
    const int32_t row_bytes = window->columns * layer->input.channels;
    const int32_t last = layer->fours.column_bytes - (2 * row_bytes);
    if (window->rows == 3 && !layer->input.is_unsigned && pixel_bytes <= INT8_MAX && last <= INT8_MAX) {
        TVM_EXT_HELIUM_COPY_SHORTS(copies, x, window->row_dilation * layer->input.columns * layer->input.channels,
                                   pixel_bytes, row_bytes, last);
        return;
    }
#endif
    for (int32_t i = 0; i < TVM_EXT_HELIUM_FOUR_PIXELS; ++i) {
        tvm_ext_helium_copy_short(&layer->input, &layer->window, &copies[i * layer->fours.column_bytes],
                                  &x[i * pixel_bytes]);
    }
}

/* Copies the windows of four pixels to scratch, counted through the rows of an image from pixel `first` of row h on. */
TVM_EXT_INLINE void tvm_ext_helium_copy_four(const tvm_ext_helium_side_layer *layer, tvm_ext_helium_patch *patch,
                                             int8_t *restrict copies, const uint8_t *input, int32_t h, int32_t first)
{
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_window *const window = &layer->window;
    const int32_t columns = layer->output.columns;
    const int32_t pixel_bytes = window->column_stride * image->channels;
    int32_t row = h + (first / columns);
    int32_t w = first % columns;
    const int32_t top = (row * window->row_stride) - window->top;
    if (w >= layer->inside_begin && w + TVM_EXT_HELIUM_FOUR_PIXELS <= layer->inside_end &&
        (!layer->has_others || tvm_ext_helium_has_all_rows(image, window, top))) {
        const int32_t left = (w * pixel_bytes) - (window->left * image->channels);
        const uint8_t *const x = &input[tvm_ext_row(image, 0, top) + left];
        tvm_ext_helium_copy_shorts(layer, copies, x, pixel_bytes);
        return;
    }
    for (int32_t i = 0; i < TVM_EXT_HELIUM_FOUR_PIXELS; ++i) {
        int8_t *const copy = &copies[i * layer->fours.column_bytes];
        const int32_t begin = (row * window->row_stride) - window->top;
        if (!layer->has_others ||
            (w >= layer->inside_begin && w < layer->inside_end && tvm_ext_helium_has_all_rows(image, window, begin))) {
            const int32_t left = (w * pixel_bytes) - (window->left * image->channels);
            tvm_ext_helium_copy_short(image, window, copy, &input[tvm_ext_row(image, 0, begin) + left]);
        } else {
            patch(copy, input, row, w);
        }
        w = w + 1 < columns ? w + 1 : 0;
        row = w > 0 ? row : row + 1;
    }
}

/* Computes output rows [row_begin, row_end) from copies of windows. Groups of four pixels continue from one row to the
 * next if there is one image and its rows are contiguous. */
TVM_EXT_INLINE void tvm_ext_helium_side_copies(const tvm_ext_helium_side_layer *layer, tvm_ext_helium_group *four,
                                               tvm_ext_helium_patch *patch, const void *input, void *output,
                                               const int8_t *restrict packed, void *scratch, int32_t row_begin,
                                               int32_t row_end)
{
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_image *const made = &layer->output;
    const bool is_one_run = made->images == 1 && !made->is_ring;
    const int32_t rows = is_one_run ? row_end - row_begin : 1;
    const int32_t count = rows * made->columns;
    for (int32_t n = 0; n < made->images; ++n) {
        const uint8_t *const source = &((const uint8_t *)input)[n * image->rows * image->columns * image->channels];
        for (int32_t h = row_begin; h < row_end; h += rows) {
            uint8_t *const y = &((uint8_t *)output)[tvm_ext_row(made, n, h)];
            for (int32_t m = 0; m < count; m += TVM_EXT_HELIUM_FOUR_PIXELS) {
                const int32_t first = tvm_ext_helium_first_of_four(m, count);
                tvm_ext_helium_copy_four(layer, patch, (int8_t *)scratch, source, h, first);
                four((const int8_t *)scratch, 0, &y[first * made->pitch], packed);
            }
        }
    }
}

/* Computes four pixels from (h, w) on. row: the first output element of their row. top: the windows' first row. */
TVM_EXT_INLINE void tvm_ext_helium_side_four(const tvm_ext_helium_side_layer *layer, tvm_ext_helium_group *four,
                                             tvm_ext_helium_patch *patch, const uint8_t *input, uint8_t *row,
                                             const int8_t *restrict packed, int8_t *scratch, int32_t h, int32_t w,
                                             bool has_all_rows)
{
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_window *const window = &layer->window;
    const int32_t top = (h * window->row_stride) - window->top;
    const int32_t left = (w * window->column_stride) - window->left;
    const bool is_between = w >= layer->inside_begin && w + TVM_EXT_HELIUM_FOUR_PIXELS <= layer->inside_end;
    const bool is_inside = !layer->has_others || (has_all_rows && is_between);
    const int8_t *x = scratch;
    int32_t row_bytes = 0;
    if (is_inside) {
        x = (const int8_t *)&input[tvm_ext_row(image, 0, top) + (left * image->channels)];
        row_bytes = window->row_dilation * image->columns * image->channels;
    } else {
        patch(scratch, input, h, w);
        row_bytes = (window->columns + ((TVM_EXT_HELIUM_FOUR_PIXELS - 1) * window->column_stride)) * image->channels;
    }
    four(x, row_bytes, &row[w * layer->output.pitch], packed);
}

/* The patch function of a layer, tvm_ext_helium_patch: copies one window, or four windows as a strip. */
TVM_EXT_INLINE void tvm_ext_helium_side_copy(const tvm_ext_helium_side_layer *layer, int8_t *restrict patch,
                                             const uint8_t *input, int32_t h, int32_t w)
{
    if (layer->is_copied) {
        tvm_ext_helium_copy_window(&layer->input, &layer->window, layer->input.channels, patch, input, h, w);
    } else {
        tvm_ext_helium_copy_strip(layer, patch, input, h, w);
    }
}

/* Computes output rows [row_begin, row_end) of all images, with windows read in place or copied as strips. */
TVM_EXT_INLINE void tvm_ext_helium_side(const tvm_ext_helium_side_layer *layer, tvm_ext_helium_group *four,
                                        tvm_ext_helium_patch *patch, const void *input, void *output,
                                        const int8_t *restrict packed, void *scratch, int32_t row_begin,
                                        int32_t row_end)
{
    const tvm_ext_image *const source = &layer->input;
    const tvm_ext_image *const made = &layer->output;
    for (int32_t n = 0; n < made->images; ++n) {
        const uint8_t *const image = &((const uint8_t *)input)[n * source->rows * source->columns * source->channels];
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int32_t top = (h * layer->window.row_stride) - layer->window.top;
            const bool has_all_rows = tvm_ext_helium_has_all_rows(source, &layer->window, top);
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(made, n, h)];
            for (int32_t w = 0; w < made->columns; w += TVM_EXT_HELIUM_FOUR_PIXELS) {
                tvm_ext_helium_side_four(layer, four, patch, image, row, packed, (int8_t *)scratch, h,
                                         tvm_ext_helium_first_of_four(w, made->columns), has_all_rows);
            }
        }
    }
}

#endif
