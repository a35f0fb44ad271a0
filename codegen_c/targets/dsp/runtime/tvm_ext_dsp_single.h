/* Elements of all output channels of one pixel or vector by the DSP extension, two or four channels at a time, from
 * products to bytes in registers. Functions of sums store an int32 of each channel, for which no multipliers are
 * stored.
 *
 * Cells of the pixel, and joined weights, are described in tvm_ext_dsp_product.h. Before and after the weights of
 * some channels are the numbers needed there, as described in tvm_ext_dsp_blocks.h: the initial sums A and A + 256 B
 * of each two channels, and multipliers of all. */
#ifndef TVM_EXT_DSP_SINGLE_H
#define TVM_EXT_DSP_SINGLE_H

#include <stdint.h>

#include "tvm_ext_dsp.h"
#include "tvm_ext_dsp_blocks.h"
#include "tvm_ext_dsp_product.h"
#include "tvm_ext_requantize.h"

#if TVM_EXT_DSP

/* The assembly is longer than the strings that ISO C guarantees; clang warns of this, GCC does not. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"

/* Registers: r1 cells, r2 weights; r0, r11, r12 and lr cells, r3 to r6 weights, r7 to r10 sums. After the products:
 * r0 and r1 rounding of A and of 256 B, r3 to r6 multipliers, r11 the address of the next element, r12 the end of
 * all weights. On the stack: rounding of A and of 256 B, address, end of all weights, cells, their end, begin of the
 * products, their continuation after an odd unit. The loop contains eight times two units; the first iteration enters
 * it at the remainder of the division by eight. r7 and r11 may be frame pointers, so they are saved here and not
 * declared to the compiler. */
#define TVM_EXT_DSP_1X2_CELL(X, W) TVM_EXT_DSP_1X4_JOINED_WORD(X, W, "r7", "r8")
#define TVM_EXT_DSP_1X2_START "ldrd r7, r8, [r2], #8\n\t"
#define TVM_EXT_DSP_1X2_ODD                                                                                           \
    "ldrd r0, r11, [r1], #8\n\t"                                                                                      \
    "ldrd r3, r4, [r2], #8\n\t" TVM_EXT_DSP_1X2_CELL("r0", "r3") TVM_EXT_DSP_1X2_CELL("r11", "r4")
#define TVM_EXT_DSP_1X2_TWO                                                                                           \
    "ldmia r1!, {r0, r11, r12, lr}\n\t"                                                                               \
    "ldmia r2!, {r3, r4, r5, r6}\n\t" TVM_EXT_DSP_1X2_CELL("r0", "r3") TVM_EXT_DSP_1X2_CELL("r11", "r4")              \
    TVM_EXT_DSP_1X2_CELL("r12", "r5") TVM_EXT_DSP_1X2_CELL("lr", "r6")
#define TVM_EXT_DSP_1X2_FINISH(FINISH) "ldrd r3, r4, [r2], #8\n\t" FINISH("r7", "r8", "r3", "r4")

#define TVM_EXT_DSP_1X4_CELL(X, W0, W1)                                                                               \
    TVM_EXT_DSP_1X4_JOINED_WORD(X, W0, "r7", "r8") TVM_EXT_DSP_1X4_JOINED_WORD(X, W1, "r9", "r10")
#define TVM_EXT_DSP_1X4_TWO_CELLS(X0, X1)                                                                             \
    "ldmia r2!, {r3, r4, r5, r6}\n\t" TVM_EXT_DSP_1X4_CELL(X0, "r3", "r4") TVM_EXT_DSP_1X4_CELL(X1, "r5", "r6")
#define TVM_EXT_DSP_1X4_START "ldmia r2!, {r7, r8, r9, r10}\n\t"
#define TVM_EXT_DSP_1X4_ODD "ldrd r0, r11, [r1], #8\n\t" TVM_EXT_DSP_1X4_TWO_CELLS("r0", "r11")
/* Loads that follow each other take one cycle each on a Cortex-M4, after two for the first. */
#define TVM_EXT_DSP_1X4_TWO                                                                                           \
    "ldr.w r11, [r1, #4]\n\t"                                                                                         \
    "ldr.w r12, [r1, #8]\n\t"                                                                                         \
    "ldr.w lr, [r1, #12]\n\t"                                                                                         \
    "ldr.w r0, [r1], #16\n\t"                                                                                         \
    "ldr.n r4, [r2, #4]\n\t"                                                                                          \
    "ldr.n r5, [r2, #8]\n\t"                                                                                          \
    "ldr.n r6, [r2, #12]\n\t"                                                                                         \
    "ldr.w r3, [r2], #16\n\t" TVM_EXT_DSP_1X4_JOINED_WORD("r0", "r4", "r9", "r10")                                    \
    TVM_EXT_DSP_1X4_JOINED_WORD("r0", "r3", "r7", "r8") TVM_EXT_DSP_1X4_CELL("r11", "r5", "r6")                       \
    TVM_EXT_DSP_1X4_TWO_CELLS("r12", "lr")
#define TVM_EXT_DSP_1X4_FINISH(FINISH)                                                                                \
    "ldmia r2!, {r3, r4, r5, r6}\n\t" FINISH("r7", "r8", "r3", "r4") FINISH("r9", "r10", "r5", "r6")

/* Computes elements of channels A and B from sums A and A + 256 B. SHIFT_B: SHIFT + 8, because sums B are multiplied by
 * 256. */
#define TVM_EXT_DSP_SINGLE_FINISH(A, B, MULTIPLIER_A, MULTIPLIER_B, SATURATE, SHIFT, SHIFT_B)                         \
    "sub " B ", " B ", " A "\n\t"                                                                                     \
    "smmla " A ", " A ", " MULTIPLIER_A ", r0\n\t"                                                                    \
    "smmla " B ", " B ", " MULTIPLIER_B ", r1\n\t" SATURATE " " A ", #8, " A ", asr #" SHIFT "\n\t" SATURATE          \
    " " B ", #8, " B ", asr #" SHIFT_B "\n\t"                                                                         \
    "strb " A ", [r11], #1\n\t"                                                                                       \
    "strb " B ", [r11], #1\n\t"
#define TVM_EXT_DSP_FINISH_s8_4(A, B, MA, MB) TVM_EXT_DSP_SINGLE_FINISH(A, B, MA, MB, "ssat", "4", "12")
#define TVM_EXT_DSP_FINISH_s8_8(A, B, MA, MB) TVM_EXT_DSP_SINGLE_FINISH(A, B, MA, MB, "ssat", "8", "16")
#define TVM_EXT_DSP_FINISH_u8_4(A, B, MA, MB) TVM_EXT_DSP_SINGLE_FINISH(A, B, MA, MB, "usat", "4", "12")
#define TVM_EXT_DSP_FINISH_u8_8(A, B, MA, MB) TVM_EXT_DSP_SINGLE_FINISH(A, B, MA, MB, "usat", "8", "16")

/* Computes elements that are rounded twice. The lowest byte of lr is the shift of the channel. A product replaces its
 * multiplier. */
#define TVM_EXT_DSP_SINGLE_ROUND(S, MULTIPLIER) "smmlar " MULTIPLIER ", " S ", " MULTIPLIER ", r1\n\t"
#define TVM_EXT_DSP_SINGLE_ROUND_SIGNED(S, MULTIPLIER)                                                                \
    TVM_EXT_DSP_SINGLE_ROUND(S, MULTIPLIER) "add " MULTIPLIER ", " MULTIPLIER ", " S ", asr #31\n\t"
#define TVM_EXT_DSP_SINGLE_TWICE(S, MULTIPLIER, ROUND)                                                                \
    "lsl r1, r0, lr\n\t" ROUND(S, MULTIPLIER) "asr " MULTIPLIER ", " MULTIPLIER ", lr\n\t"                            \
    "ssat " MULTIPLIER ", #8, " MULTIPLIER ", asr #1\n\t"                                                             \
    "strb " MULTIPLIER ", [r11], #1\n\t"
#define TVM_EXT_DSP_SINGLE_FINISH_TWICE(A, B, MULTIPLIER_A, MULTIPLIER_B, ROUND)                                      \
    "sub " B ", " B ", " A "\n\t"                                                                                     \
    "lsl " A ", " A ", #1\n\t"                                                                                        \
    "asr " B ", " B ", #7\n\t" TVM_EXT_DSP_SINGLE_TWICE(A, MULTIPLIER_A, ROUND)                                       \
    "lsr lr, lr, #8\n\t" TVM_EXT_DSP_SINGLE_TWICE(B, MULTIPLIER_B, ROUND)
#define TVM_EXT_DSP_FINISH_s8_twice(A, B, MA, MB)                                                                     \
    TVM_EXT_DSP_SINGLE_FINISH_TWICE(A, B, MA, MB, TVM_EXT_DSP_SINGLE_ROUND)
#define TVM_EXT_DSP_FINISH_s8_twice_signed(A, B, MA, MB)                                                              \
    TVM_EXT_DSP_SINGLE_FINISH_TWICE(A, B, MA, MB, TVM_EXT_DSP_SINGLE_ROUND_SIGNED)
#define TVM_EXT_DSP_1X2_FINISH_TWICE(FINISH) "ldmia r2!, {r3, r4, lr}\n\t" FINISH("r7", "r8", "r3", "r4")
#define TVM_EXT_DSP_1X4_FINISH_TWICE(FINISH)                                                                          \
    "ldmia r2!, {r3, r4, r5, r6, lr}\n\t" FINISH("r7", "r8", "r3", "r4")                                              \
    "lsr lr, lr, #8\n\t" FINISH("r9", "r10", "r5", "r6")

/* Stores the sums of four channels in place of elements. */
#define TVM_EXT_DSP_1X4_SUMS                                                                                          \
    "sub r8, r8, r7\n\t"                                                                                              \
    "sub r10, r10, r9\n\t"                                                                                            \
    "asr r8, r8, #8\n\t"                                                                                              \
    "asr r10, r10, #8\n\t"                                                                                            \
    "stm r11!, {r7, r8, r9, r10}\n\t"

/* Defines a function. WIDTH: 1X2 or 1X4. UNIT_SHIFT: a unit's weights have 2^UNIT_SHIFT bytes. TWO_BYTES: bytes of the
 * code of two units. SHIFT_BYTES: bytes of the shifts that follow the multipliers. */
#define TVM_EXT_DSP_SINGLE(NAME, WIDTH, UNIT_SHIFT, TWO_BYTES, SHIFT_BYTES, FINISH)                                   \
    TVM_EXT_DSP_SHARED void NAME(uint8_t *output, const int8_t *weights, const uint32_t *cells, int32_t units,        \
                            int32_t blocks, int32_t rounding)                                                         \
    {                                                                                                                 \
        register uint8_t *r0 __asm__("r0") = output;                                                                  \
        register const uint32_t *r1 __asm__("r1") = cells;                                                            \
        register const int8_t *r2 __asm__("r2") = weights;                                                            \
        register int32_t r3 __asm__("r3") = units;                                                                    \
        register int32_t r4 __asm__("r4") = rounding;                                                                 \
        register int32_t r12 __asm__("r12") = blocks;                                                                 \
        __asm__ volatile("push {r7, r11}\n\t"                                                                         \
                         "add r5, r3, #2\n\t"                                                                         \
                         "lsl r5, r5, #" UNIT_SHIFT "\n\t"                                                            \
                         "add r5, r5, #" SHIFT_BYTES "\n\t"                                                           \
                         "mla r10, r12, r5, r2\n\t"                                                                   \
                         "add r5, r1, r3, lsl #3\n\t"                                                                 \
                         "lsr r6, r3, #1\n\t"                                                                         \
                         "rsb r7, r6, #0\n\t"                                                                         \
                         "and r7, r7, #7\n\t"                                                                         \
                         "movs r8, #" TWO_BYTES "\n\t"                                                                \
                         "adr r12, 3f\n\t"                                                                            \
                         "mla r7, r7, r8, r12\n\t"                                                                    \
                         "adr r12, 4f\n\t"                                                                            \
                         "cmp r6, #0\n\t"                                                                             \
                         "it eq\n\t"                                                                                  \
                         "moveq r7, r12\n\t"                                                                          \
                         "mov r6, r7\n\t"                                                                             \
                         "adr r12, 2f\n\t"                                                                            \
                         "tst r3, #1\n\t"                                                                             \
                         "it ne\n\t"                                                                                  \
                         "movne r6, r12\n\t"                                                                          \
                         "orr r6, r6, #1\n\t"                                                                         \
                         "orr r7, r7, #1\n\t"                                                                         \
                         "mov r9, r0\n\t"                                                                             \
                         "lsl r8, r4, #8\n\t"                                                                         \
                         "push {r1, r5, r6, r7}\n\t"                                                                  \
                         "push {r4, r8, r9, r10}\n"                                                                   \
                         "1:\n\t" TVM_EXT_DSP_##WIDTH##_START                                                         \
                         "ldr r1, [sp, #16]\n\t"                                                                      \
                         "ldr pc, [sp, #24]\n\t"                                                                      \
                         ".balign 4\n"                                                                                \
                         "2:\n\t" TVM_EXT_DSP_##WIDTH##_ODD                                                           \
                         "ldr pc, [sp, #28]\n\t"                                                                      \
                         ".balign 4\n"                                                                                \
                         "3:\n\t" TVM_EXT_DSP_##WIDTH##_TWO TVM_EXT_DSP_##WIDTH##_TWO TVM_EXT_DSP_##WIDTH##_TWO       \
                         TVM_EXT_DSP_##WIDTH##_TWO TVM_EXT_DSP_##WIDTH##_TWO TVM_EXT_DSP_##WIDTH##_TWO                \
                         TVM_EXT_DSP_##WIDTH##_TWO TVM_EXT_DSP_##WIDTH##_TWO                                          \
                         TVM_EXT_DSP_SIZED("3b", "8", TWO_BYTES)                                                      \
                         "ldr r12, [sp, #20]\n\t"                                                                     \
                         "cmp r1, r12\n\t"                                                                            \
                         "bne 3b\n\t"                                                                                 \
                         ".balign 4\n"                                                                                \
                         "4:\n\t"                                                                                     \
                         "ldm sp, {r0, r1, r11, r12}\n\t" FINISH                                                      \
                         "str r11, [sp, #8]\n\t"                                                                      \
                         "cmp r2, r12\n\t"                                                                            \
                         "bne 1b\n\t"                                                                                 \
                         "add sp, sp, #32\n\t"                                                                        \
                         "pop {r7, r11}\n\t"                                                                          \
                         : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r3), "+r"(r4), "+r"(r12)                                \
                         :                                                                                            \
                         : "r5", "r6", "r8", "r9", "r10", "lr", "cc", "memory");                                      \
    }
#define TVM_EXT_DSP_SINGLE_OF(SUFFIX, SHIFT_BYTES, FINISH)                                                            \
    TVM_EXT_DSP_SINGLE(tvm_ext_dsp_single_1x2_##SUFFIX, 1X2, "3", "54", SHIFT_BYTES,                                  \
                       TVM_EXT_DSP_1X2_##FINISH(TVM_EXT_DSP_FINISH_##SUFFIX))                                         \
    TVM_EXT_DSP_SINGLE(tvm_ext_dsp_single_1x4_##SUFFIX, 1X4, "4", "124", SHIFT_BYTES,                                 \
                       TVM_EXT_DSP_1X4_##FINISH(TVM_EXT_DSP_FINISH_##SUFFIX))

TVM_EXT_DSP_SINGLE_OF(s8_4, "0", FINISH)
TVM_EXT_DSP_SINGLE_OF(s8_8, "0", FINISH)
TVM_EXT_DSP_SINGLE_OF(u8_4, "0", FINISH)
TVM_EXT_DSP_SINGLE_OF(u8_8, "0", FINISH)
TVM_EXT_DSP_SINGLE_OF(s8_twice, "4", FINISH_TWICE)
TVM_EXT_DSP_SINGLE_OF(s8_twice_signed, "4", FINISH_TWICE)
TVM_EXT_DSP_SINGLE(tvm_ext_dsp_single_1x4_sums, 1X4, "4", "124", "-16", TVM_EXT_DSP_1X4_SUMS)

#pragma GCC diagnostic pop

#else

#define TVM_EXT_DSP_SINGLE(NAME, CHANNELS, HOLDS_SUMS, IS_UNSIGNED, ROUNDS_TWICE, IS_SIGNED, SHIFT)                   \
    static inline void NAME(uint8_t *output, const int8_t *weights, const uint32_t *cells, int32_t units,             \
                            int32_t blocks, int32_t rounding)                                                         \
    {                                                                                                                 \
        const tvm_ext_dsp_blocks_form form = {true, HOLDS_SUMS, IS_UNSIGNED, ROUNDS_TWICE, IS_SIGNED, SHIFT};         \
        tvm_ext_dsp_blocks(&form, &output, weights, cells, units, blocks, rounding, 1, CHANNELS);                     \
    }
#define TVM_EXT_DSP_SINGLE_OF(SUFFIX, IS_UNSIGNED, ROUNDS_TWICE, IS_SIGNED, SHIFT)                                    \
    TVM_EXT_DSP_SINGLE(tvm_ext_dsp_single_1x2_##SUFFIX, 2, false, IS_UNSIGNED, ROUNDS_TWICE, IS_SIGNED, SHIFT)        \
    TVM_EXT_DSP_SINGLE(tvm_ext_dsp_single_1x4_##SUFFIX, 4, false, IS_UNSIGNED, ROUNDS_TWICE, IS_SIGNED, SHIFT)

TVM_EXT_DSP_SINGLE_OF(s8_4, false, false, false, 4)
TVM_EXT_DSP_SINGLE_OF(s8_8, false, false, false, 8)
TVM_EXT_DSP_SINGLE_OF(u8_4, true, false, false, 4)
TVM_EXT_DSP_SINGLE_OF(u8_8, true, false, false, 8)
TVM_EXT_DSP_SINGLE_OF(s8_twice, false, true, false, 0)
TVM_EXT_DSP_SINGLE_OF(s8_twice_signed, false, true, true, 0)
TVM_EXT_DSP_SINGLE(tvm_ext_dsp_single_1x4_sums, 4, true, false, false, false, 0)

#endif

#endif
