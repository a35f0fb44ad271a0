/* Depthwise convolution of quantized images by Helium: 16 channels of one output pixel at a time, or several pixels
 * of few channels: the loops around the products, and the vectors before and after them.
 *
 * Pixels whose windows lie inside the image are read in place; windows of all others are copied to scratch first.
 * The layer's own function multiplies the taps, unrolled: sums of taps with small weights have 16 bits. */
#ifndef TVM_EXT_HELIUM_DEPTHWISE_H
#define TVM_EXT_HELIUM_DEPTHWISE_H

#include "tvm_ext_helium_patch.h"
#include "tvm_ext_helium_rescale.h"
#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_HELIUM_LANES 16

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t pixels;         /* adjacent output pixels of one vector */
    int32_t tap_bytes;      /* from tap to tap in a copied window */
    int32_t in_place_begin; /* columns [begin, end) are read in place if all rows of their windows are inside */
    int32_t in_place_end;
    bool has_copies;        /* some pixels are copied first */
    tvm_ext_helium_rescale rescale;
} tvm_ext_helium_depthwise_layer;

/* Computes all channels of the pixels of one vector. x: their window, whose rows are `pitch` bytes apart. count:
 * elements stored, if a vector has several pixels. It is not inlined, so that it has all registers to itself;
 * compilers call it directly. */
typedef void tvm_ext_helium_pixel(const int8_t *x, int32_t pitch, uint8_t *y, const int8_t *restrict weights,
                                  const int32_t *restrict factors, int32_t count);

/* Initializes sums with the starts of the factors: of every fourth lane, from lanes 0, 2, 1 and 3 on. */
TVM_EXT_INLINE void tvm_ext_helium_begin_sums(tvm_ext_i32x4 sums[4], const int32_t *factors)
{
    sums[0] = tvm_ext_i32x4_load(&factors[0]);
    sums[1] = tvm_ext_i32x4_load(&factors[4]);
    sums[2] = tvm_ext_i32x4_load(&factors[8]);
    sums[3] = tvm_ext_i32x4_load(&factors[12]);
}

/* Adds sums of 16 bits, of even and of odd lanes. */
TVM_EXT_INLINE void tvm_ext_helium_widen(tvm_ext_i32x4 sums[4], tvm_ext_i16x8 even, tvm_ext_i16x8 odd)
{
    tvm_ext_i32x4 sum0 = tvm_ext_i32x4_add(sums[0], tvm_ext_i32x4_even(even));
    tvm_ext_i32x4 sum1 = tvm_ext_i32x4_add(sums[1], tvm_ext_i32x4_odd(even));
    tvm_ext_i32x4 sum2 = tvm_ext_i32x4_add(sums[2], tvm_ext_i32x4_even(odd));
    tvm_ext_i32x4 sum3 = tvm_ext_i32x4_add(sums[3], tvm_ext_i32x4_odd(odd));
    TVM_EXT_IN_ORDER(sum0, sum1);
    TVM_EXT_IN_ORDER(sum2, sum3);
    sums[0] = sum0;
    sums[1] = sum1;
    sums[2] = sum2;
    sums[3] = sum3;
}

/* Returns the result of one of the four sums. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_helium_part(const tvm_ext_helium_rescale *rescale, tvm_ext_i32x4 sum,
                                                 const int32_t *factors, int32_t part)
{
    const tvm_ext_i32x4 multiplier = tvm_ext_i32x4_load(&factors[TVM_EXT_HELIUM_LANES + (4 * part)]);
    const tvm_ext_i32x4 shift = tvm_ext_i32x4_load(&factors[(2 * TVM_EXT_HELIUM_LANES) + (4 * part)]);
    return tvm_ext_helium_rescaled(rescale, sum, multiplier, shift);
}

/* Stores the sums, 16 or the first `count`, without requantization. */
TVM_EXT_INLINE void tvm_ext_helium_store_sums(int32_t *y, const tvm_ext_i32x4 sums[4], int32_t count)
{
    if (count == TVM_EXT_HELIUM_LANES) {
        tvm_ext_i32x4_store_in_turn(y, sums[0], sums[2], sums[1], sums[3]);
        return;
    }
    int32_t ordered[TVM_EXT_HELIUM_LANES];
    tvm_ext_i32x4_store_in_turn(ordered, sums[0], sums[2], sums[1], sums[3]);
    (void)memcpy(y, ordered, sizeof(int32_t) * (uint32_t)count);
}

/* Requantizes the sums to elements from element k on: 16, or the first `count`; or stores the sums. */
TVM_EXT_INLINE void tvm_ext_helium_end_sums(const tvm_ext_helium_depthwise_layer *layer, uint8_t *pixel, int32_t k,
                                            tvm_ext_i32x4 sums[4], const int32_t *factors, int32_t count)
{
    uint8_t *const y = &pixel[k];
    if (layer->output.holds_sums) {
        const int32_t lanes = TVM_EXT_MIN(layer->output.channels, TVM_EXT_HELIUM_LANES);
        const int32_t stored = layer->pixels > 1 ? TVM_EXT_MIN(count, TVM_EXT_HELIUM_LANES) : lanes;
        tvm_ext_helium_store_sums(&((int32_t *)(void *)pixel)[k], sums, stored);
        return;
    }
    sums[0] = tvm_ext_helium_part(&layer->rescale, sums[0], factors, 0);
    sums[1] = tvm_ext_helium_part(&layer->rescale, sums[1], factors, 1);
    sums[2] = tvm_ext_helium_part(&layer->rescale, sums[2], factors, 2);
    sums[3] = tvm_ext_helium_part(&layer->rescale, sums[3], factors, 3);
    const tvm_ext_i8x16 elements = tvm_ext_helium_bytes(&layer->rescale, sums);
    if (layer->pixels > 1) {
        tvm_ext_i8x16_store_first(y, elements, count);
    } else if (layer->output.channels < TVM_EXT_HELIUM_LANES) {
        tvm_ext_i8x16_store_first(y, elements, layer->output.channels);
    } else {
        tvm_ext_i8x16_store(y, elements);
    }
}

/* A tvm_ext_helium_patch, which the function of each layer calls: the window of all pixels of a vector, the last of
 * which may reach beyond the last pixel of its row. */
TVM_EXT_INLINE void tvm_ext_helium_depthwise_copy(const tvm_ext_helium_depthwise_layer *layer, int8_t *restrict patch,
                                                  const uint8_t *input, int32_t h, int32_t w)
{
    tvm_ext_window window = layer->window;
    window.columns += layer->pixels - 1;
    window.right += layer->pixels - 1;
    tvm_ext_helium_copy_window(&layer->input, &window, layer->tap_bytes, patch, input, h, w);
}

/* Computes output rows [row_begin, row_end) of all images. */
TVM_EXT_INLINE void tvm_ext_helium_depthwise(const tvm_ext_helium_depthwise_layer *layer, tvm_ext_helium_pixel *pixel,
                                             tvm_ext_helium_patch *patch, const void *input, void *output,
                                             const int8_t *restrict weights, const int32_t *restrict factors,
                                             void *scratch, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_image *const source = &layer->input;
    const tvm_ext_image *const made = &layer->output;
    const tvm_ext_window *const window = &layer->window;
    const int32_t channels = source->channels;
    const int32_t pixels = layer->pixels;
    const int32_t copy_pitch = (window->columns + pixels - 1) * layer->tap_bytes;
    const int32_t pitch = window->row_dilation * source->columns * channels;
    const bool is_in_place = layer->in_place_end - layer->in_place_begin >= pixels;
    for (int32_t n = 0; n < made->images; ++n) {
        const uint8_t *const image = &((const uint8_t *)input)[n * source->rows * source->columns * channels];
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int32_t top = (h * window->row_stride) - window->top;
            const bool is_whole =
                is_in_place && (!layer->has_copies || tvm_ext_helium_has_all_rows(source, window, top));
            uint8_t *const row = (uint8_t *)tvm_ext_target(made, output, tvm_ext_row(made, n, h));
            for (int32_t w = 0; w < made->columns; w += pixels) {
                uint8_t *const y = (uint8_t *)tvm_ext_target(made, row, w * made->pitch);
                if (!layer->has_copies ||
                    (is_whole && w >= layer->in_place_begin && w + pixels <= layer->in_place_end)) {
                    const int32_t left = (w * window->column_stride) - window->left;
                    const uint8_t *const x = &image[tvm_ext_row(source, 0, top) + (left * channels)];
                    pixel((const int8_t *)x, pitch, y, weights, factors, TVM_EXT_HELIUM_LANES);
                } else {
                    patch((int8_t *)scratch, image, h, w);
                    const int32_t count = pixels > 1 ? (made->columns - w) * channels : TVM_EXT_HELIUM_LANES;
                    pixel((const int8_t *)scratch, copy_pitch, y, weights, factors, count);
                }
            }
        }
    }
}

#endif
