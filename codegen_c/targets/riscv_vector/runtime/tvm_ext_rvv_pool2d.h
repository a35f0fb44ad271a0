/* Max and average pooling of quantized images with RISC-V's vectors: vectors of channels of one output pixel at a time.
 * The taps of a row of a window are one run, which is combined with the result of the rows before it. */
#ifndef TVM_EXT_RVV_POOL2D_H
#define TVM_EXT_RVV_POOL2D_H

#include "tvm_ext_layer.h"
#include "tvm_ext_rvv.h"
#include "tvm_ext_rvv_requantize.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    bool is_maximum; /* otherwise an average over windows that lie in the image */
    tvm_ext_rvv_rescale requantize; /* for maxima only its limits are used */
} tvm_ext_rvv_pool2d_layer;

/* Updates the largest element of each channel with `count` > 0 taps, `step` elements apart, and limits it to
 * `high`. */
#if TVM_EXT_RVV
#define TVM_EXT_RVV_DEFINE_LARGEST(SUFFIX, TYPE, SIGN)                                                          \
    TVM_EXT_RVV_SHARED void tvm_ext_rvv_largest_##SUFFIX(uint8_t *largest, const uint8_t *taps, int32_t step,   \
                                                         int32_t count, int32_t high, int32_t channels)         \
    {                                                                                                           \
        for (intptr_t k = 0; k < channels;) {                                                                   \
            intptr_t length;                                                                                    \
            intptr_t left = count;                                                                              \
            const uint8_t *x = &taps[k];                                                                        \
            __asm__ volatile(TVM_EXT_RVV_BEGIN "vsetvli %[length], %[channels], e8, m8, ta, ma\n\t"             \
                                               "vle8.v v0, (%[largest])\n"                                      \
                                               "1:\n\t"                                                         \
                                               "vle8.v v8, (%[x])\n\t"                                          \
                                               "addi %[left], %[left], -1\n\t"                                  \
                                               "add %[x], %[x], %[step]\n\t"                                    \
                                               "vmax" SIGN ".vv v0, v0, v8\n\t"                                 \
                                               "bnez %[left], 1b\n\t"                                           \
                                               "vmin" SIGN ".vx v0, v0, %[high]\n\t"                            \
                                               "vse8.v v0, (%[largest])\n\t" TVM_EXT_RVV_END                    \
                             : [length] "=&r"(length), [left] "+&r"(left), [x] "+&r"(x)                         \
                             : [channels] "r"(channels - k), [largest] "r"(&largest[k]), [step] "r"((intptr_t)step), \
                               [high] "r"(high)                                                                 \
                             : "memory" TVM_EXT_RVV_CHANGED);                                                   \
            k += length;                                                                                        \
        }                                                                                                       \
    }
#else
#define TVM_EXT_RVV_DEFINE_LARGEST(SUFFIX, TYPE, SIGN)                                                          \
    TVM_EXT_RVV_SHARED void tvm_ext_rvv_largest_##SUFFIX(uint8_t *largest, const uint8_t *taps, int32_t step,   \
                                                         int32_t count, int32_t high, int32_t channels)         \
    {                                                                                                           \
        for (int32_t k = 0; k < channels; ++k) {                                                                \
            int32_t value = ((const TYPE *)largest)[k];                                                         \
            for (int32_t t = 0; t < count; ++t) {                                                               \
                const int32_t element = ((const TYPE *)taps)[(t * step) + k];                                   \
                value = element > value ? element : value;                                                      \
            }                                                                                                   \
            largest[k] = (uint8_t)(value < high ? value : high);                                                \
        }                                                                                                       \
    }
#endif
TVM_EXT_RVV_DEFINE_LARGEST(s8, int8_t, "")
TVM_EXT_RVV_DEFINE_LARGEST(u8, uint8_t, "u")

/* Sets sums to `starts` plus each channel's elements of `count` > 0 taps, `step` elements apart. */
#if TVM_EXT_RVV
#define TVM_EXT_RVV_DEFINE_TAP_SUMS(SUFFIX, TYPE, WIDEN, ADD)                                                   \
    TVM_EXT_RVV_SHARED void tvm_ext_rvv_tap_sums_##SUFFIX(int32_t *sums, const int32_t *starts,                 \
                                                          const uint8_t *taps, int32_t step, int32_t count,     \
                                                          int32_t channels)                                     \
    {                                                                                                           \
        for (intptr_t k = 0; k < channels;) {                                                                   \
            intptr_t length;                                                                                    \
            intptr_t left = count;                                                                              \
            const uint8_t *x = &taps[k];                                                                        \
            __asm__ volatile(TVM_EXT_RVV_BEGIN "vsetvli %[length], %[channels], e16, m4, ta, ma\n\t"            \
                                               "vle32.v v0, (%[starts])\n"                                      \
                                               "1:\n\t"                                                         \
                                               "vle8.v v8, (%[x])\n\t"                                          \
                                               "addi %[left], %[left], -1\n\t"                                  \
                                               "add %[x], %[x], %[step]\n\t" WIDEN " v12, v8\n\t" ADD           \
                                               " v0, v0, v12\n\t"                                               \
                                               "bnez %[left], 1b\n\t"                                           \
                                               "vse32.v v0, (%[sums])\n\t" TVM_EXT_RVV_END                      \
                             : [length] "=&r"(length), [left] "+&r"(left), [x] "+&r"(x)                         \
                             : [channels] "r"(channels - k), [starts] "r"(&starts[k]), [sums] "r"(&sums[k]),    \
                               [step] "r"((intptr_t)step)                                                       \
                             : "memory" TVM_EXT_RVV_CHANGED);                                                   \
            k += length;                                                                                        \
        }                                                                                                       \
    }
#else
#define TVM_EXT_RVV_DEFINE_TAP_SUMS(SUFFIX, TYPE, WIDEN, ADD)                                                   \
    TVM_EXT_RVV_SHARED void tvm_ext_rvv_tap_sums_##SUFFIX(int32_t *sums, const int32_t *starts,                 \
                                                          const uint8_t *taps, int32_t step, int32_t count,     \
                                                          int32_t channels)                                     \
    {                                                                                                           \
        for (int32_t k = 0; k < channels; ++k) {                                                                \
            int32_t sum = starts[k];                                                                            \
            for (int32_t t = 0; t < count; ++t) {                                                               \
                sum += ((const TYPE *)taps)[(t * step) + k];                                                    \
            }                                                                                                   \
            sums[k] = sum;                                                                                      \
        }                                                                                                       \
    }
#endif
TVM_EXT_RVV_DEFINE_TAP_SUMS(s8, int8_t, "vsext.vf2", "vwadd.wv")
TVM_EXT_RVV_DEFINE_TAP_SUMS(u8, uint8_t, "vzext.vf2", "vwaddu.wv")

/* Combines a run of taps with an output pixel, or with its sums, which continue from `starts`. */
TVM_EXT_INLINE void tvm_ext_rvv_pool2d_run(const tvm_ext_rvv_pool2d_layer *layer, uint8_t *pixel, int32_t *sums,
                                           const int32_t *starts, const uint8_t *taps, int32_t count)
{
    const int32_t channels = layer->output.channels;
    const int32_t step = layer->window.column_dilation * channels;
    const int32_t high = layer->requantize.high;
    if (layer->is_maximum && layer->input.is_unsigned) {
        tvm_ext_rvv_largest_u8(pixel, taps, step, count, high, channels);
    } else if (layer->is_maximum) {
        tvm_ext_rvv_largest_s8(pixel, taps, step, count, high, channels);
    } else if (layer->input.is_unsigned) {
        tvm_ext_rvv_tap_sums_u8(sums, starts, taps, step, count, channels);
    } else {
        tvm_ext_rvv_tap_sums_s8(sums, starts, taps, step, count, channels);
    }
}

/* Computes all channels of one output pixel, whose window begins at row `top` and column `left` of image n. */
TVM_EXT_INLINE void tvm_ext_rvv_pool2d_pixel(const tvm_ext_rvv_pool2d_layer *layer, const uint8_t *input,
                                             uint8_t *pixel, const int32_t *factors, int32_t *sums, int32_t n,
                                             int32_t top, int32_t left)
{
    const int32_t channels = layer->output.channels;
    const tvm_ext_window *const window = &layer->window;
    const tvm_ext_taps rows = tvm_ext_row_taps(window, &layer->input, top);
    const tvm_ext_taps columns = tvm_ext_column_taps(window, &layer->input, left);
    const int32_t x = left + (columns.begin * window->column_dilation);
    const int32_t *starts = factors;
    if (layer->is_maximum) {
        tvm_ext_rvv_fill(pixel, layer->requantize.low, channels);
    }
    for (int32_t r = rows.begin; r < rows.end && columns.begin < columns.end; ++r) {
        const int32_t row = tvm_ext_row(&layer->input, n, top + (r * window->row_dilation));
        tvm_ext_rvv_pool2d_run(layer, pixel, sums, starts, &input[row + (x * channels)], columns.end - columns.begin);
        starts = sums;
    }
    if (!layer->is_maximum) {
        tvm_ext_rvv_requantize(&layer->requantize, pixel, sums, factors, channels, channels);
    }
}

/* Computes output rows [row_begin, row_end) of all images. factors, sums: for averages only; sums are scratch. */
TVM_EXT_INLINE void tvm_ext_rvv_pool2d(const tvm_ext_rvv_pool2d_layer *layer, const void *input, void *output,
                                       const int32_t *factors, void *sums, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int32_t top = (h * window->row_stride) - window->top;
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)];
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                tvm_ext_rvv_pool2d_pixel(layer, (const uint8_t *)input, &row[w * layer->output.pitch], factors,
                                         (int32_t *)sums, n, top, (w * window->column_stride) - window->left);
            }
        }
    }
}

#endif
