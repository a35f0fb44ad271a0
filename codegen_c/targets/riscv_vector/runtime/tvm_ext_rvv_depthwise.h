/* Depthwise convolution of quantized images with RISC-V's vectors: vectors of channels of one output pixel at a time.
 *
 * A tap is read in place, or from a pixel of zero points if it lies outside the image; the initial accumulators correct
 * for the zero points. */
#ifndef TVM_EXT_RVV_DEPTHWISE_H
#define TVM_EXT_RVV_DEPTHWISE_H

#include "tvm_ext_layer.h"
#include "tvm_ext_rvv.h"
#include "tvm_ext_rvv_requantize.h"
#include "tvm_ext_taps.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t inside_begin; /* output columns [begin, end) whose windows lie in columns of the image */
    int32_t inside_end;
    tvm_ext_rvv_rescale requantize;
} tvm_ext_rvv_depthwise_layer;

/* Sums all channels of one output pixel. offset: elements from the address of each tap to the element to read. */
#if TVM_EXT_RVV
#define TVM_EXT_RVV_DEFINE_DEPTHWISE(SUFFIX, TYPE, WIDEN)                                                        \
    TVM_EXT_RVV_SHARED void tvm_ext_rvv_depthwise_##SUFFIX(int32_t *sums, const uint8_t *const *taps, int32_t count, \
                                                           int32_t offset, const int8_t *weights,                \
                                                           const int32_t *starts, int32_t channels)              \
    {                                                                                                            \
        for (int32_t k = 0; k < channels;) {                                                                     \
            int32_t length;                                                                                      \
            const uint8_t *x;                                                                                    \
            const uint8_t *const *tap = taps;                                                                    \
            const int8_t *w = &weights[k];                                                                       \
            __asm__ volatile(TVM_EXT_RVV_BEGIN "vsetvli %[length], %[left], e16, m4, ta, ma\n\t"                 \
                                               "vle32.v v0, (%[starts])\n"                                       \
                                               "1:\n\t"                                                          \
                                               "lw %[x], 0(%[tap])\n\t"                                          \
                                               "vle8.v v8, (%[w])\n\t"                                           \
                                               "addi %[tap], %[tap], 4\n\t"                                      \
                                               "add %[x], %[x], %[offset]\n\t"                                   \
                                               "vle8.v v10, (%[x])\n\t"                                          \
                                               "add %[w], %[w], %[step]\n\t"                                     \
                                               "vsext.vf2 v12, v8\n\t" WIDEN " v16, v10\n\t"                     \
                                               "vwmacc.vv v0, v12, v16\n\t"                                      \
                                               "bne %[tap], %[end], 1b\n\t"                                      \
                                               "vse32.v v0, (%[sums])\n\t" TVM_EXT_RVV_END                       \
                             : [length] "=&r"(length), [x] "=&r"(x), [tap] "+&r"(tap), [w] "+&r"(w)              \
                             : [left] "r"(channels - k), [starts] "r"(&starts[k]), [offset] "r"(offset + k),     \
                               [step] "r"(channels), [end] "r"(&taps[count]), [sums] "r"(&sums[k])               \
                             : "memory" TVM_EXT_RVV_CHANGED);                                                    \
            k += length;                                                                                         \
        }                                                                                                        \
    }
#else
#define TVM_EXT_RVV_DEFINE_DEPTHWISE(SUFFIX, TYPE, WIDEN)                                                        \
    TVM_EXT_RVV_SHARED void tvm_ext_rvv_depthwise_##SUFFIX(int32_t *sums, const uint8_t *const *taps, int32_t count, \
                                                           int32_t offset, const int8_t *weights,                \
                                                           const int32_t *starts, int32_t channels)              \
    {                                                                                                            \
        for (int32_t k = 0; k < channels; ++k) {                                                                 \
            uint32_t sum = (uint32_t)starts[k];                                                                  \
            for (int32_t t = 0; t < count; ++t) {                                                                \
                const int32_t element = ((const TYPE *)taps[t])[offset + k];                                     \
                sum += (uint32_t)(element * weights[(t * channels) + k]);                                        \
            }                                                                                                    \
            sums[k] = (int32_t)sum;                                                                              \
        }                                                                                                        \
    }
#endif
TVM_EXT_RVV_DEFINE_DEPTHWISE(s8, int8_t, "vsext.vf2")
TVM_EXT_RVV_DEFINE_DEPTHWISE(u8, uint8_t, "vzext.vf2")

/* Computes output rows [row_begin, row_end) of all images. taps: space for the addresses of a window's taps. scratch:
 * accumulators of a pixel, then, with padding, a pixel of zero points. Adjacent pixels whose windows lie inside the
 * image share the addresses of the taps; only the offset changes. */
TVM_EXT_INLINE void tvm_ext_rvv_depthwise(const tvm_ext_rvv_depthwise_layer *layer, const uint8_t **taps,
                                          const void *input, void *output, const int8_t *weights,
                                          const int32_t *factors, void *scratch, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t channels = layer->output.channels;
    const int32_t count = window->rows * window->columns;
    int32_t *const sums = (int32_t *)scratch;
    uint8_t *const padding = (uint8_t *)&sums[channels];
#if !TVM_EXT_RVV
    /* The first pixel of a row sets the addresses. Compilers that inline the plain C loops cannot see this and
     * would warn of uninitialized variables. */
    for (int32_t t = 0; t < count; ++t) {
        taps[t] = padding;
    }
#endif
    if (tvm_ext_is_padded(window)) {
        tvm_ext_rvv_fill(padding, layer->input.zero_point, channels);
    }
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int32_t top = (h * window->row_stride) - window->top;
            const bool has_all_rows = top >= 0 && top + ((window->rows - 1) * window->row_dilation) < layer->input.rows;
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)];
            int32_t offset = 0;
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                if (has_all_rows && w > layer->inside_begin && w < layer->inside_end) {
                    offset += window->column_stride * channels;
                } else {
                    const int32_t left = (w * window->column_stride) - window->left;
                    tvm_ext_find_taps(window, &layer->input, taps, (const uint8_t *)input, padding, n, top, left);
                    offset = 0;
                }
                (layer->input.is_unsigned ? tvm_ext_rvv_depthwise_u8 : tvm_ext_rvv_depthwise_s8)(
                    sums, taps, count, offset, weights, &factors[TVM_EXT_RVV_STARTS * channels], channels);
                tvm_ext_rvv_requantize(&layer->requantize, &row[w * layer->output.pitch], sums, factors, channels,
                                       channels);
            }
        }
    }
}

#endif
