/* Depthwise convolution of quantized images on Armv6-M: four channels of one output pixel at a time.
 *
 * A pixel's taps are a list of addresses; taps outside the image share one pixel of padding, zero points, so that
 * borders and the inside run the same code. Weights are [rows of the window][columns][channels], or as in
 * tvm_ext_armv6m_depthwise_fours.h. */
#ifndef TVM_EXT_ARMV6M_DEPTHWISE_H
#define TVM_EXT_ARMV6M_DEPTHWISE_H

#include <stddef.h>
#include <string.h>

#include "tvm_ext_armv6m.h"
#include "tvm_ext_armv6m_depthwise_fours.h"
#include "tvm_ext_armv6m_requantize.h"
#include "tvm_ext_layer.h"
#include "tvm_ext_taps.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    bool is_interleaved; /* weights as in tvm_ext_armv6m_depthwise_fours.h, and requantization in 32 bits */
    tvm_ext_armv6m_requantize requantize;
} tvm_ext_armv6m_depthwise_layer;

/* Computes sums of four channels from channel k on. taps: the address of each tap, and NULL; weights: `channels` for
   each. */
#if TVM_EXT_ARMV6M
/* Assembly of one product of the tap in r1 and the weights in r2. */
#define TVM_EXT_ARMV6M_TAP(LOAD, PLACE, SUM)                     \
    LOAD " r0, [r1, " PLACE "]\n\t"                              \
    "ldrsb r7, [r2, " PLACE "]\n\t"                              \
    "muls r0, r7\n\t"                                            \
    "add " SUM ", r0\n\t"
/* r3 to r6: addresses of four channels, r8 to r11: their sums, r12: taps, lr: channels. */
#define TVM_EXT_ARMV6M_DEFINE_DEPTHWISE(SUFFIX, TYPE, LOAD)                                                    \
    TVM_EXT_ARMV6M_ASSEMBLY void tvm_ext_armv6m_depthwise_##SUFFIX(                                      \
        TVM_EXT_ARMV6M_IN uint32_t sums[TVM_EXT_ARMV6M_WIDTH], TVM_EXT_ARMV6M_IN const uint8_t *const *taps, \
        TVM_EXT_ARMV6M_IN const int8_t *weights, TVM_EXT_ARMV6M_IN int32_t k,                            \
        TVM_EXT_ARMV6M_IN int32_t channels)                                                              \
    {                                                                                                    \
        __asm__(TVM_EXT_ARMV6M_SAVE                                                                      \
                "ldr r4, [sp, #36]\n\t"                                                                  \
                "mov lr, r4\n\t"                                                                         \
                "push {r0}\n\t"                                                                          \
                "adds r4, r3, #1\n\t"                                                                    \
                "adds r5, r3, #2\n\t"                                                                    \
                "adds r6, r3, #3\n\t"                                                                    \
                "movs r7, #0\n\t"                                                                        \
                "mov r8, r7\n\t"                                                                         \
                "mov r9, r7\n\t"                                                                         \
                "mov r10, r7\n\t"                                                                        \
                "mov r11, r7\n\t"                                                                        \
                "movs r0, r1\n\t"                                                                        \
                "ldmia r0!, {r1}\n"                                                                      \
                "1:\n\t"                                                                                 \
                "mov r12, r0\n\t"                                                                        \
                TVM_EXT_ARMV6M_TAP(LOAD, "r3", "r8")                                                     \
                TVM_EXT_ARMV6M_TAP(LOAD, "r4", "r9")                                                     \
                TVM_EXT_ARMV6M_TAP(LOAD, "r5", "r10")                                                    \
                TVM_EXT_ARMV6M_TAP(LOAD, "r6", "r11")                                                    \
                "add r2, lr\n\t"                                                                         \
                "mov r0, r12\n\t"                                                                        \
                "ldmia r0!, {r1}\n\t"                                                                    \
                "cmp r1, #0\n\t"                                                                         \
                "bne 1b\n\t"                                                                             \
                "pop {r0}\n\t"                                                                           \
                "mov r12, r0\n\t"                                                                        \
                TVM_EXT_ARMV6M_STORE_SUMS TVM_EXT_ARMV6M_RESTORE);                                       \
    }
#else
#define TVM_EXT_ARMV6M_DEFINE_DEPTHWISE(SUFFIX, TYPE, LOAD)                                                       \
    TVM_EXT_ARMV6M_SHARED void tvm_ext_armv6m_depthwise_##SUFFIX(uint32_t sums[TVM_EXT_ARMV6M_WIDTH],             \
                                                                 const uint8_t *const *taps,                      \
                                                                 const int8_t *weights, int32_t k,                \
                                                                 int32_t channels)                                \
    {                                                                                                             \
        for (int32_t j = 0; j < TVM_EXT_ARMV6M_WIDTH; ++j) {                                                      \
            sums[j] = 0;                                                                                          \
            for (int32_t t = 0; taps[t] != NULL; ++t) {                                                           \
                const int32_t element = ((const TYPE *)taps[t])[k + j];                                           \
                sums[j] += (uint32_t)(element * weights[(t * channels) + k + j]);                                 \
            }                                                                                                     \
        }                                                                                                         \
    }
#endif
TVM_EXT_ARMV6M_DEFINE_DEPTHWISE(s8, int8_t, "ldrsb")
TVM_EXT_ARMV6M_DEFINE_DEPTHWISE(u8, uint8_t, "ldrb")

/* Computes all channels of one output pixel from interleaved weights one by one: in plain C, and for elements at any
 * address, as the inputs of a model are where the caller put them. */
TVM_EXT_ARMV6M_SHARED void tvm_ext_armv6m_depthwise_unaligned(const tvm_ext_armv6m_depthwise_layer *layer,
                                                              uint8_t *output, const uint8_t *const *taps,
                                                              const int8_t *weights, const int32_t *factors)
{
    const int32_t num_taps = layer->window.rows * layer->window.columns;
    for (int32_t k = 0; k < layer->output.channels; ++k) {
        const int32_t lane = k % TVM_EXT_ARMV6M_WIDTH;
        const int8_t *const own = &weights[((k - lane) * num_taps) + lane];
        uint32_t sum = 0;
        for (int32_t t = 0; t < num_taps; ++t) {
            sum += (uint32_t)(tvm_ext_element(&layer->input, taps[t], k) * own[t * TVM_EXT_ARMV6M_WIDTH]);
        }
        output[k] = tvm_ext_armv6m_narrow_element(&layer->requantize, sum, factors);
        factors += tvm_ext_armv6m_num_factors(&layer->requantize);
    }
}

#if TVM_EXT_ARMV6M
/* Computes all channels of one output pixel, a multiple of four, by assembly. */
TVM_EXT_INLINE void tvm_ext_armv6m_depthwise_aligned(const tvm_ext_armv6m_depthwise_layer *layer, uint8_t *output,
                                                     const uint8_t *const *taps, const int8_t *weights,
                                                     const int32_t *factors)
{
    const int32_t more_taps = (layer->window.rows * layer->window.columns) - 1;
    const tvm_ext_armv6m_fours pixel = {
        taps,          weights,       output, factors, layer->output.channels, layer->requantize.fraction_bits,
        more_taps % 4, more_taps / 4, 0,
    };
    if (layer->input.is_unsigned && layer->requantize.has_two_constants) {
        tvm_ext_armv6m_depthwise_fours_u8_twice(&pixel);
    } else if (layer->input.is_unsigned) {
        tvm_ext_armv6m_depthwise_fours_u8_once(&pixel);
    } else if (layer->requantize.has_two_constants) {
        tvm_ext_armv6m_depthwise_fours_s8_twice(&pixel);
    } else {
        tvm_ext_armv6m_depthwise_fours_s8_once(&pixel);
    }
}
#endif

/* Computes all channels of one output pixel. The last four may overlap those before: computing them twice gives the
 * same bytes. Each layer has its own copy, not inlined, so that it has all registers to itself. is_aligned: all
 * addresses are multiples of four. */
TVM_EXT_INLINE void tvm_ext_armv6m_depthwise_pixel(const tvm_ext_armv6m_depthwise_layer *layer, uint8_t *output,
                                                   const uint8_t *const *taps, const int8_t *weights,
                                                   const int32_t *factors, bool is_aligned)
{
    if (layer->is_interleaved) {
#if TVM_EXT_ARMV6M
        if (is_aligned) {
            tvm_ext_armv6m_depthwise_aligned(layer, output, taps, weights, factors);
            return;
        }
#else
        (void)is_aligned;
#endif
        tvm_ext_armv6m_depthwise_unaligned(layer, output, taps, weights, factors);
        return;
    }
    const int32_t channels = layer->output.channels;
    for (int32_t first = 0; first < channels; first += TVM_EXT_ARMV6M_WIDTH) {
        const int32_t last = channels - TVM_EXT_ARMV6M_WIDTH;
        const int32_t k = first < last ? first : last;
        uint32_t sums[TVM_EXT_ARMV6M_WIDTH];
        if (layer->input.is_unsigned) {
            tvm_ext_armv6m_depthwise_u8(sums, taps, weights, k, channels);
        } else {
            tvm_ext_armv6m_depthwise_s8(sums, taps, weights, k, channels);
        }
        tvm_ext_armv6m_elements(&layer->requantize, &output[k], sums,
                                &factors[k * tvm_ext_armv6m_num_factors(&layer->requantize)]);
    }
}

/* A function that computes all channels of one output pixel. */
typedef void tvm_ext_armv6m_channels(uint8_t *output, const uint8_t *const *taps, const int8_t *weights,
                                     const int32_t *factors, bool is_aligned);

/* Computes output rows [row_begin, row_end) of all images. taps: memory for the addresses of a window, and one more;
 * padding: memory for a pixel of the input, if there is padding. */
TVM_EXT_INLINE void tvm_ext_armv6m_depthwise(const tvm_ext_armv6m_depthwise_layer *layer,
                                             tvm_ext_armv6m_channels *compute, const uint8_t **taps, const void *input,
                                             void *output, const int8_t *weights, const int32_t *factors,
                                             uint8_t *padding, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    if (tvm_ext_is_padded(window)) {
        (void)memset(padding, layer->input.zero_point & 0xff, (size_t)layer->input.channels);
    }
    const bool is_aligned = (((uintptr_t)input | (uintptr_t)padding) & 3u) == 0;
    taps[window->rows * window->columns] = NULL;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int32_t top = (h * window->row_stride) - window->top;
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)];
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                const int32_t left = (w * window->column_stride) - window->left;
                tvm_ext_find_taps(window, &layer->input, taps, (const uint8_t *)input, padding, n, top, left);
                compute(&row[w * layer->output.pitch], taps, weights, factors, is_aligned);
            }
        }
    }
}

#endif
