/* Depthwise convolution of quantized images with one-column windows, by the DSP extension: four channels of one
 * output pixel at a time.
 *
 * Elements are widened when they are read, so no scratch is needed. The window has no padding. */
#ifndef TVM_EXT_DSP_COLUMN_H
#define TVM_EXT_DSP_COLUMN_H

#include "tvm_ext_dsp.h"
#include "tvm_ext_dsp_product.h"
#include "tvm_ext_dsp_requantize.h"
#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_DSP_COLUMN_WIDTH 4

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    tvm_ext_dsp_requantize requantize;
} tvm_ext_dsp_column_layer;

#if TVM_EXT_DSP

/* Registers: r0 sums, r1 elements, r2 weights, r3 bias, r12 rows of taps, lr bytes from one row of elements to the
 * next. The loop processes two rows; the first row of an odd number precedes it. r7 and r11 may be frame pointers,
 * so they are saved here and not declared to the compiler. */
#define TVM_EXT_DSP_COLUMN_ROW(WIDEN, X)                                                                              \
    "ldrd r0, r11, [r2], #8\n\t" WIDEN " r3, " X "\n\t"                                                               \
    "smlabb r7, r3, r0, r7\n\t"                                                                                       \
    "smlatt r9, r3, r0, r9\n\t" WIDEN " " X ", " X ", ror #8\n\t"                                                     \
    "smlabb r8, " X ", r11, r8\n\t"                                                                                   \
    "smlatt r10, " X ", r11, r10\n\t"
#define TVM_EXT_DSP_COLUMN_ROWS(WIDEN)                                                                                \
    "push {r0, r7, r11}\n\t"                                                                                          \
    "ldm r3, {r7, r8, r9, r10}\n\t"                                                                                   \
    "lsrs r12, r12, #1\n\t"                                                                                           \
    "bcc 1f\n\t"                                                                                                      \
    "ldr r4, [r1]\n\t"                                                                                                \
    "add r1, r1, lr\n\t" TVM_EXT_DSP_COLUMN_ROW(WIDEN, "r4")                                                          \
    "cmp r12, #0\n\t"                                                                                                 \
    "beq 2f\n"                                                                                                        \
    "1:\n\t"                                                                                                          \
    "ldr r4, [r1]\n\t"                                                                                                \
    "ldr r5, [r1, lr]\n\t"                                                                                            \
    "add r1, r1, lr, lsl #1\n\t" TVM_EXT_DSP_COLUMN_ROW(WIDEN, "r4") TVM_EXT_DSP_COLUMN_ROW(WIDEN, "r5")              \
    "subs r12, r12, #1\n\t"                                                                                           \
    "bne 1b\n"                                                                                                        \
    "2:\n\t"                                                                                                          \
    "pop {r0, r4, r11}\n\t"                                                                                           \
    "stm r0, {r7, r8, r9, r10}\n\t"                                                                                   \
    "mov r7, r4\n\t"

/* Computes sums of four channels, which begin at their biases. weights: for each row of taps those of channels 0 and
 * 2, then 1 and 3. */
#define TVM_EXT_DSP_DEFINE_COLUMN(SUFFIX, WIDEN)                                                                      \
    TVM_EXT_DSP_SHARED void tvm_ext_dsp_column_##SUFFIX(int32_t *sums, const uint8_t *x, const int16_t *weights,       \
                                                        const int32_t *bias, int32_t rows, int32_t step)              \
    {                                                                                                                 \
        register int32_t *r0 __asm__("r0") = sums;                                                                    \
        register const uint8_t *r1 __asm__("r1") = x;                                                                 \
        register const int16_t *r2 __asm__("r2") = weights;                                                           \
        register const int32_t *r3 __asm__("r3") = bias;                                                              \
        register int32_t r12 __asm__("r12") = rows;                                                                   \
        register int32_t lr __asm__("lr") = step;                                                                     \
        __asm__ volatile(TVM_EXT_DSP_COLUMN_ROWS(WIDEN)                                                               \
                         : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r3), "+r"(r12), "+r"(lr)                                \
                         :                                                                                            \
                         : "r4", "r5", "r6", "r8", "r9", "r10", "cc", "memory");                                      \
    }

TVM_EXT_DSP_DEFINE_COLUMN(s8, "sxtb16")
TVM_EXT_DSP_DEFINE_COLUMN(u8, "uxtb16")

#else

#define TVM_EXT_DSP_DEFINE_COLUMN(SUFFIX, TYPE)                                                                       \
    static inline void tvm_ext_dsp_column_##SUFFIX(int32_t *sums, const uint8_t *x, const int16_t *weights,            \
                                                   const int32_t *bias, int32_t rows, int32_t step)                   \
    {                                                                                                                 \
        for (int32_t k = 0; k < TVM_EXT_DSP_COLUMN_WIDTH; ++k) {                                                      \
            int32_t sum = bias[k];                                                                                    \
            for (int32_t r = 0; r < rows; ++r) {                                                                      \
                const int32_t product = (TYPE)x[(r * step) + k] * weights[(4 * r) + (k % 2 * 2) + (k / 2)];           \
                sum = (int32_t)((uint32_t)sum + (uint32_t)product);                                                   \
            }                                                                                                         \
            sums[k] = sum;                                                                                            \
        }                                                                                                             \
    }

TVM_EXT_DSP_DEFINE_COLUMN(s8, int8_t)
TVM_EXT_DSP_DEFINE_COLUMN(u8, uint8_t)

#endif

/* Computes sums of four channels of the output pixel whose window begins in row `top` of image n. input: these
 * channels, in the window's column. */
TVM_EXT_INLINE void tvm_ext_dsp_column_sums(const tvm_ext_dsp_column_layer *layer, int32_t *sums, const uint8_t *input,
                                            const int16_t *weights, const int32_t *bias, int32_t n, int32_t top)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t at_once = layer->input.is_ring ? 1 : window->rows; /* rows of a ring may not be contiguous */
    const int32_t step = window->row_dilation * layer->input.columns * layer->input.pitch;
    const int32_t *start = bias;
    for (int32_t r = 0; r < window->rows; r += at_once) {
        const uint8_t *const x = &input[tvm_ext_row(&layer->input, n, top + (r * window->row_dilation))];
        if (layer->input.is_unsigned) {
            tvm_ext_dsp_column_u8(sums, x, &weights[4 * r], start, at_once, step);
        } else {
            tvm_ext_dsp_column_s8(sums, x, &weights[4 * r], start, at_once, step);
        }
        start = sums;
    }
}

/* Computes output rows [row_begin, row_end) of all images.
 *
 * The last four channels may overlap those before: computing them twice gives the same bytes. weights: channels in
 * fours, each with its taps. */
TVM_EXT_INLINE void tvm_ext_dsp_depthwise_column(const tvm_ext_dsp_column_layer *layer, const void *input, void *output,
                                                 const int16_t *restrict weights, const int32_t *restrict bias,
                                                 const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                                 int32_t row_begin, int32_t row_end)
{
    const tvm_ext_image *const made = &layer->output;
    const int32_t block_weights = TVM_EXT_DSP_COLUMN_WIDTH * layer->window.rows;
    for (int32_t n = 0; n < made->images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            for (int32_t w = 0; w < made->columns; ++w) {
                uint8_t *const y = &((uint8_t *)output)[tvm_ext_row(made, n, h) + (w * made->pitch)];
                const int32_t column = w * layer->window.column_stride * layer->input.pitch;
                const int16_t *f = weights;
                for (int32_t first = 0; first < made->channels; first += TVM_EXT_DSP_COLUMN_WIDTH) {
                    const int32_t k = TVM_EXT_MIN(first, made->channels - TVM_EXT_DSP_COLUMN_WIDTH);
                    int32_t sums[TVM_EXT_DSP_COLUMN_WIDTH];
                    tvm_ext_dsp_column_sums(layer, sums, &((const uint8_t *)input)[column + k], f, &bias[k], n,
                                            h * layer->window.row_stride);
                    for (int32_t j = 0; j < TVM_EXT_DSP_COLUMN_WIDTH; ++j) {
                        const int32_t multiplier = tvm_ext_dsp_multiplier(&layer->requantize, multipliers, k + j);
                        const int32_t shift = tvm_ext_dsp_shift(&layer->requantize, shifts, k + j);
                        y[k + j] = (uint8_t)tvm_ext_dsp_element_once(&layer->requantize, sums[j], multiplier, shift);
                    }
                    f += block_weights;
                }
            }
        }
    }
}

#endif
