/* Depthwise windows of 5x5 and 7x7 taps by the DSP extension: strips of output rows of one channel, four columns at
 * a time, from a plane of tvm_ext_dsp_depthwise.h to bytes.
 *
 * Each word of weights is read once for four sums. A row of taps, of stride 1: pairs of taps (0, 1), (2, 3), ... and
 * then (1, 2), (3, 4), ...; of stride 2: (0, 1), (2, 3), ... and the last tap alone. An element is (high product of
 * sum and multiplier + rounding) >> shift, saturated. */
#ifndef TVM_EXT_DSP_STRIP_H
#define TVM_EXT_DSP_STRIP_H

#include <stdbool.h>
#include <stdint.h>

#include "tvm_ext_dsp.h"
#include "tvm_ext_dsp_product.h"
#include "tvm_ext_requantize.h"

typedef struct {
    uint8_t *output;         /* the first element */
    int32_t pitch;           /* elements from one column to the next */
    int32_t last; /* elements from the third of four columns to the fourth; 0 if the fourth is not needed */
    int32_t multiplier; /* the factor of the high product */
    int32_t rounding; /* the zero point and a half, which are added to the high product */
    int32_t plane_bytes; /* bytes from one row of taps to the next in the plane */
    const uint32_t *plane; /* the first word of the first element's window */
    const uint32_t *weights; /* the weights of the channel */
    int32_t start; /* the initial value of every sum */
    const uint32_t *end; /* the end of the first row's blocks in the plane */
    int32_t output_step; /* elements from the end of a row of outputs to the next row */
    int32_t plane_step; /* bytes from the end of a row of blocks to the next row's */
    int32_t row_bytes; /* bytes from a row of blocks to the next one in the plane */
    int32_t rows; /* rows of outputs */
} tvm_ext_dsp_strip;

#if TVM_EXT_DSP

/* Registers: r8, r9, r10 and lr sums of four columns, r7 plane, r11 weights; words of the plane from r0 on, and
 * weights up to r12. The strip is on the stack, and is advanced there. r7 and r11 may be frame pointers, so they are
 * saved here and not declared to the compiler. */
#define TVM_EXT_DSP_STRIP_NEXT                                                                                        \
    "ldr r5, [sp, #20]\n\t"                                                                                           \
    "add r7, r7, r5\n\t"
#define TVM_EXT_DSP_STRIP_MULTIPLY(INSTRUCTION, SUM, X, W) INSTRUCTION " " SUM ", " X ", " W ", " SUM "\n\t"

#define TVM_EXT_DSP_STRIP_5_1                                                                                         \
    "ldmia r7, {r0, r1, r2, r3}\n\t"                                                                                  \
    "ldmia r11!, {r4, r5, r6, r12}\n\t" TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r8", "r0", "r4")                         \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r8", "r1", "r5") TVM_EXT_DSP_STRIP_MULTIPLY("smlabt", "r8", "r2", "r12")     \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlatb", "r9", "r0", "r4") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r9", "r1", "r6")      \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r9", "r2", "r12") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r10", "r1", "r4")     \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r10", "r2", "r5") TVM_EXT_DSP_STRIP_MULTIPLY("smlabt", "r10", "r3", "r12")   \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlatb", "lr", "r1", "r4") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "lr", "r2", "r6")      \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "lr", "r3", "r12") TVM_EXT_DSP_STRIP_NEXT

#define TVM_EXT_DSP_STRIP_7_1                                                                                         \
    "ldmia r7, {r0, r1, r2, r3, r4}\n\t"                                                                              \
    "ldmia r11!, {r5, r6, r12}\n\t" TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r8", "r0", "r5")                             \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r8", "r1", "r6") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r8", "r2", "r12")      \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlatb", "r9", "r0", "r5") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r10", "r1", "r5")     \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r10", "r2", "r6") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r10", "r3", "r12")    \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlatb", "lr", "r1", "r5") "ldmia r11!, {r5, r6, r12}\n\t"                            \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r9", "r1", "r5") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r9", "r2", "r6")       \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r9", "r3", "r12") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "lr", "r2", "r5")      \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "lr", "r3", "r6") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "lr", "r4", "r12")      \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlabt", "r8", "r3", "r12")                                                           \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlabt", "r10", "r4", "r12") TVM_EXT_DSP_STRIP_NEXT

#define TVM_EXT_DSP_STRIP_5_2                                                                                         \
    "ldmia r7, {r0, r1, r2, r3, r4}\n\t"                                                                              \
    "ldmia r11!, {r5, r6, r12}\n\t" TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r8", "r0", "r5")                             \
    "ldr r0, [r7, #20]\n\t" TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r8", "r1", "r6")                                     \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r8", "r2", "r12") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r9", "r1", "r5")      \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r9", "r2", "r6") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r9", "r3", "r12")      \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r10", "r2", "r5") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r10", "r3", "r6")     \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r10", "r4", "r12") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "lr", "r3", "r5")     \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "lr", "r4", "r6") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "lr", "r0", "r12")      \
    TVM_EXT_DSP_STRIP_NEXT

#define TVM_EXT_DSP_STRIP_7_2                                                                                         \
    "ldmia r7, {r0, r1, r2, r3}\n\t"                                                                                  \
    "ldmia r11!, {r4, r5, r6, r12}\n\t" TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r8", "r0", "r4")                         \
    "ldr r0, [r7, #16]\n\t" TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r8", "r1", "r5")                                     \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r8", "r2", "r6") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r8", "r3", "r12")      \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r9", "r1", "r4") "ldr r1, [r7, #20]\n\t"                                     \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r9", "r2", "r5") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r9", "r3", "r6")       \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r9", "r0", "r12") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r10", "r2", "r4")     \
    "ldr r2, [r7, #24]\n\t" TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r10", "r3", "r5")                                    \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r10", "r0", "r6") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "r10", "r1", "r12")    \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "lr", "r3", "r4") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "lr", "r0", "r5")       \
    TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "lr", "r1", "r6") TVM_EXT_DSP_STRIP_MULTIPLY("smlad", "lr", "r2", "r12")      \
    TVM_EXT_DSP_STRIP_NEXT

#define TVM_EXT_DSP_STRIP_ROWS_5(ROW) ROW ROW ROW ROW ROW
#define TVM_EXT_DSP_STRIP_ROWS_7(ROW) ROW ROW ROW ROW ROW ROW ROW

#define TVM_EXT_DSP_STRIP(NAME, ROWS, BLOCK_BYTES, SATURATE, SHIFT)                                                   \
    TVM_EXT_DSP_SHARED void NAME(const tvm_ext_dsp_strip *strip)                                                      \
    {                                                                                                                 \
        register const tvm_ext_dsp_strip *r0 __asm__("r0") = strip;                                                   \
        __asm__ volatile("push {r7, r11}\n\t"                                                                         \
                         "sub sp, sp, #56\n\t"                                                                        \
                         "ldmia r0!, {r1, r2, r3, r4, r5, r6, r8}\n\t"                                                \
                         "stm sp, {r1, r2, r3, r4, r5, r6, r8}\n\t"                                                   \
                         "add r9, sp, #28\n\t"                                                                        \
                         "ldm r0, {r1, r2, r3, r4, r5, r6, r8}\n\t"                                                   \
                         "stm r9, {r1, r2, r3, r4, r5, r6, r8}\n"                                                     \
                         "1:\n\t"                                                                                     \
                         "ldrd r7, r11, [sp, #24]\n\t"                                                                \
                         "ldr r8, [sp, #32]\n\t"                                                                      \
                         "mov r9, r8\n\t"                                                                             \
                         "mov r10, r8\n\t"                                                                            \
                         "mov lr, r8\n\t" ROWS                                                                        \
                         "ldrd r3, r4, [sp, #12]\n\t"                                                                 \
                         "ldm sp, {r0, r1, r2}\n\t"                                                                   \
                         "smmla r8, r8, r3, r4\n\t"                                                                   \
                         "smmla r9, r9, r3, r4\n\t"                                                                   \
                         "smmla r10, r10, r3, r4\n\t"                                                                 \
                         "smmla lr, lr, r3, r4\n\t" SATURATE " r8, #8, r8, asr #" SHIFT "\n\t" SATURATE               \
                         " r9, #8, r9, asr #" SHIFT "\n\t" SATURATE " r10, #8, r10, asr #" SHIFT "\n\t" SATURATE      \
                         " lr, #8, lr, asr #" SHIFT "\n\t"                                                            \
                         "ldr r7, [sp, #24]\n\t"                                                                      \
                         "strb r8, [r0]\n\t"                                                                          \
                         "strb r9, [r0, r1]\n\t"                                                                      \
                         "add r0, r0, r1, lsl #1\n\t"                                                                 \
                         "ldr r3, [sp, #36]\n\t"                                                                      \
                         "strb lr, [r0, r2]\n\t"                                                                      \
                         "strb r10, [r0]\n\t"                                                                         \
                         "add r0, r0, r1, lsl #1\n\t"                                                                 \
                         "add r7, r7, #" BLOCK_BYTES "\n\t"                                                           \
                         "str r0, [sp]\n\t"                                                                           \
                         "str r7, [sp, #24]\n\t"                                                                      \
                         "cmp r7, r3\n\t"                                                                             \
                         "bne 1b\n\t"                                                                                 \
                         "ldrd r4, r5, [sp, #40]\n\t"                                                                 \
                         "ldrd r6, r8, [sp, #48]\n\t"                                                                 \
                         "add r0, r0, r4\n\t"                                                                         \
                         "add r7, r7, r5\n\t"                                                                         \
                         "add r3, r3, r6\n\t"                                                                         \
                         "str r0, [sp]\n\t"                                                                           \
                         "str r7, [sp, #24]\n\t"                                                                      \
                         "str r3, [sp, #36]\n\t"                                                                      \
                         "subs r8, r8, #1\n\t"                                                                        \
                         "str r8, [sp, #52]\n\t"                                                                      \
                         "bne 1b\n\t"                                                                                 \
                         "add sp, sp, #56\n\t"                                                                        \
                         "pop {r7, r11}\n\t"                                                                          \
                         : "+r"(r0)                                                                                   \
                         :                                                                                            \
                         : "r1", "r2", "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r12", "lr", "cc", "memory");       \
    }
#define TVM_EXT_DSP_STRIP_OF(TAPS, STRIDE, BLOCK_BYTES, TYPE, SATURATE, SHIFT)                                        \
    TVM_EXT_DSP_STRIP(tvm_ext_dsp_strip_##TAPS##_##STRIDE##_##TYPE##_##SHIFT,                                         \
                      TVM_EXT_DSP_STRIP_ROWS_##TAPS(TVM_EXT_DSP_STRIP_##TAPS##_##STRIDE), BLOCK_BYTES, SATURATE,      \
                      #SHIFT)

#else

/* Computes in plain C what the assembly computes. */
static inline void tvm_ext_dsp_strip_rows(const tvm_ext_dsp_strip *strip, int32_t taps, int32_t stride, int32_t shift,
                                          bool is_unsigned)
{
    const int32_t words = stride == 1 ? taps - 1 : (taps + 1) / 2; /* words of a row of taps */
    const int32_t odd = stride == 1 ? (taps / 2) - 1 : 0;          /* words less one before those of odd columns */
    uint8_t *output = strip->output;
    const uint32_t *plane = strip->plane;
    const uint32_t *end = strip->end;
    for (int32_t h = 0; h < strip->rows; ++h) {
        for (; plane != end; plane += 2 * stride) {
            for (int32_t i = 0; i < 4; ++i) {
                const int32_t q = i < 2 ? i : 5 - i; /* the fourth column is computed before the third one */
                int32_t sum = strip->start;
                for (int32_t r = 0; r < taps; ++r) {
                    const uint32_t *const x = &plane[(r * strip->plane_bytes / 4) + (q * stride / 2)];
                    const uint32_t *const w = &strip->weights[r * words];
                    if (stride == 1 && q % 2 == 1) {
                        sum = tvm_ext_dsp_high_low(x[0], w[0], sum);
                        for (int32_t s = 1; s <= taps / 2; ++s) {
                            sum = tvm_ext_dsp_smlad(x[s], w[odd + s], sum);
                        }
                    } else {
                        for (int32_t s = 0; s < taps / 2; ++s) {
                            sum = tvm_ext_dsp_smlad(x[s], w[s], sum);
                        }
                        sum = stride == 1 ? tvm_ext_dsp_low_high(x[taps / 2], w[words - 1], sum)
                                          : tvm_ext_dsp_smlad(x[taps / 2], w[words - 1], sum);
                    }
                }
                const int32_t value = tvm_ext_dsp_high_product(sum, strip->multiplier, strip->rounding) >> shift;
                const int32_t place = q < 3 ? q * strip->pitch : (2 * strip->pitch) + strip->last;
                output[place] = (uint8_t)(is_unsigned ? tvm_ext_saturate_u8(value) : tvm_ext_saturate_s8(value));
            }
            output += 4 * strip->pitch;
        }
        output += strip->output_step;
        plane += strip->plane_step / 4;
        end += strip->row_bytes / 4;
    }
}

#define TVM_EXT_DSP_IS_UNSIGNED_s8 false
#define TVM_EXT_DSP_IS_UNSIGNED_u8 true
#define TVM_EXT_DSP_STRIP_OF(TAPS, STRIDE, BLOCK_BYTES, TYPE, SATURATE, SHIFT)                                        \
    static inline void tvm_ext_dsp_strip_##TAPS##_##STRIDE##_##TYPE##_##SHIFT(const tvm_ext_dsp_strip *strip)         \
    {                                                                                                                 \
        tvm_ext_dsp_strip_rows(strip, TAPS, STRIDE, SHIFT, TVM_EXT_DSP_IS_UNSIGNED_##TYPE);                           \
    }

#endif

#define TVM_EXT_DSP_STRIPS(TYPE, SATURATE, SHIFT)                                                                     \
    TVM_EXT_DSP_STRIP_OF(5, 1, "8", TYPE, SATURATE, SHIFT)                                                            \
    TVM_EXT_DSP_STRIP_OF(5, 2, "16", TYPE, SATURATE, SHIFT)                                                           \
    TVM_EXT_DSP_STRIP_OF(7, 1, "8", TYPE, SATURATE, SHIFT)                                                            \
    TVM_EXT_DSP_STRIP_OF(7, 2, "16", TYPE, SATURATE, SHIFT)

/* Assembly is longer than the string that ISO C promises to take; clang counts it, GCC does not. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"

TVM_EXT_DSP_STRIPS(s8, "ssat", 4)
TVM_EXT_DSP_STRIPS(s8, "ssat", 8)
TVM_EXT_DSP_STRIPS(s8, "ssat", 10)
TVM_EXT_DSP_STRIPS(u8, "usat", 4)
TVM_EXT_DSP_STRIPS(u8, "usat", 8)

#pragma GCC diagnostic pop

#endif
