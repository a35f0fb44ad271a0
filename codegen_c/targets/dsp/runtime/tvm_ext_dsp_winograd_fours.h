/* Products of Winograd's tiles with the DSP extension, in integers: two tiles by four output channels at a time, for
 * cores that start one instruction in a cycle.
 *
 * Eight sums leave four registers for operands. Loads that follow each other take one cycle each on a Cortex-M4, after
 * two for the first: 8 products of pairs and 6 loads take 16 cycles for 16 multiply-adds.
 *
 * Sums run on over the four positions of a row of a tile and are stored after each of them, modulo 2^32. Positions come
 * in the order 2, 0, 1, 3, with the weights of position 3 negated, so that the two outputs of a row of A^T M A, M0 + M1
 * + M2 and M1 - M2 - M3, need two subtractions: they are S2 and S3 - S1 - S0.
 *
 * Order of the inputs: for each position, pairs of input channels with the two tiles adjacent. Weights: for each
 * position, pairs of A, B, C and D. Sums of each position: channels A to D of the first tile, then of the second. */
#ifndef TVM_EXT_DSP_WINOGRAD_FOURS_H
#define TVM_EXT_DSP_WINOGRAD_FOURS_H

#include <stdint.h>

#include "tvm_ext_dsp.h"
#include "tvm_ext_dsp_product.h"
#include "tvm_ext_dsp_winograd_product.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_DSP_FOURS_TILES 2
#define TVM_EXT_DSP_FOURS_CHANNELS 4

#if TVM_EXT_DSP

/* The assembly is longer than the strings that ISO C guarantees; clang warns of this, GCC does not. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"

/* Registers: r1 inputs, r2 weights; r0 and r3 inputs of the two tiles, r4 and r5 weights; sums A to D of the first tile
 * r6 to r9, of the second one r10 to r12 and lr. I: the pair of input channels. */
#define TVM_EXT_DSP_FOURS_PRODUCTS(A0, A1, B0, B1)                                                                    \
    TVM_EXT_DSP_SMLAD(A0, "r0", "r4") TVM_EXT_DSP_SMLAD(A1, "r3", "r4") TVM_EXT_DSP_SMLAD(B0, "r0", "r5")              \
    TVM_EXT_DSP_SMLAD(B1, "r3", "r5")
#define TVM_EXT_DSP_FOURS_UNIT(I)                                                                                     \
    "ldr.n r0, [r1, #8 * " #I "]\n\t"                                                                                 \
    "ldr.n r3, [r1, #8 * " #I " + 4]\n\t"                                                                             \
    "ldr.n r4, [r2, #16 * " #I "]\n\t"                                                                                \
    "ldr.n r5, [r2, #16 * " #I " + 4]\n\t" TVM_EXT_DSP_FOURS_PRODUCTS("r6", "r10", "r7", "r11")                       \
    "ldr.n r4, [r2, #16 * " #I " + 8]\n\t"                                                                            \
    "ldr.n r5, [r2, #16 * " #I " + 12]\n\t" TVM_EXT_DSP_FOURS_PRODUCTS("r8", "r12", "r9", "lr")
#define TVM_EXT_DSP_FOURS_UNITS                                                                                       \
    TVM_EXT_DSP_FOURS_UNIT(0) TVM_EXT_DSP_FOURS_UNIT(1) TVM_EXT_DSP_FOURS_UNIT(2) TVM_EXT_DSP_FOURS_UNIT(3)           \
    TVM_EXT_DSP_FOURS_UNIT(4) TVM_EXT_DSP_FOURS_UNIT(5) TVM_EXT_DSP_FOURS_UNIT(6) TVM_EXT_DSP_FOURS_UNIT(7)

/* Sums all positions of two tiles by four channels. pairs: of input channels, a multiple of eight. end: of the weights.
 * On the stack: the next sums, the end of the weights of the row, then those of the position, the bytes of a position's
 * weights, and the end of all weights. */
TVM_EXT_DSP_WINOGRAD_FUNCTION(tvm_ext_dsp_winograd_2x4, "push {r7, r11}\n\t"
                                                        "lsl r5, r12, #4\n\t"
                                                        "add r3, r2, r5, lsl #2\n\t"
                                                        "add r4, r2, r5\n\t"
                                                        "push {r0, r3, r4, r5, r6}\n"
                                                        "1:\n\t"
                                                        "movs r6, #0\n\t"
                                                        "movs r7, #0\n\t"
                                                        "mov.w r8, #0\n\t"
                                                        "mov.w r9, #0\n\t"
                                                        "mov.w r10, #0\n\t"
                                                        "mov.w r11, #0\n\t"
                                                        "mov.w r12, #0\n\t"
                                                        "mov.w lr, #0\n\t"
                                                        ".balign 4\n"
                                                        "2:\n\t" TVM_EXT_DSP_FOURS_UNITS "ldr r0, [sp, #8]\n\t"
                                                        "ldr r3, [sp]\n\t"
                                                        "ldr r4, [sp, #12]\n\t"
                                                        "ldr r5, [sp, #4]\n\t"
                                                        "adds r1, #64\n\t"
                                                        "adds r2, #128\n\t"
                                                        "cmp r2, r0\n\t"
                                                        "bne 2b\n\t"
                                                        "stmia r3!, {r6, r7, r8, r9, r10, r11, r12, lr}\n\t"
                                                        "add r0, r0, r4\n\t"
                                                        "str r0, [sp, #8]\n\t"
                                                        "str r3, [sp]\n\t"
                                                        "cmp r2, r5\n\t"
                                                        "bne 2b\n\t"
                                                        "ldr r0, [sp, #16]\n\t"
                                                        "add r5, r5, r4, lsl #2\n\t"
                                                        "str r5, [sp, #4]\n\t"
                                                        "cmp r2, r0\n\t"
                                                        "bne 1b\n\t"
                                                        "add sp, sp, #20\n\t"
                                                        "pop {r7, r11}\n\t")

#pragma GCC diagnostic pop

/* Loads the running sums of row I of a tile, from sums %8 on: the third into S2, the last, which becomes the second
 * output, into S3, and the first two into S0 and S1. */
#define TVM_EXT_DSP_FOURS_ROW(I, S2, S3, S0, S1)                                                                      \
    "ldr " S2 ", [%8, #" I "*128+64]\n\t"                                                                             \
    "ldr " S3 ", [%8, #" I "*128+96]\n\t"                                                                             \
    "ldr " S0 ", [%8, #" I "*128]\n\t"                                                                                \
    "ldr " S1 ", [%8, #" I "*128+32]\n\t"

/* Computes outputs (0, 0), (0, 1), (1, 0) and (1, 1) of a tile, A^T M A, from the first of its sums on. Assembly,
 * because compilers move all loads up and run out of registers. */
TVM_EXT_INLINE void tvm_ext_dsp_winograd_outputs_of_fours(uint32_t outputs[4], const uint32_t *sums, uint32_t bias)
{
    uint32_t y0, y1, y2, y3, m0, m1, m2, m3;
    __asm__ volatile(
        TVM_EXT_DSP_FOURS_ROW("1", "%0", "%1", "%4",
                              "%5") "add %0, %0, %9\n\t"
                                    "sub %1, %1, %4\n\t"
                                    "sub %1, %1, %5\n\t"
                                    "add %1, %1, %9\n\t" TVM_EXT_DSP_FOURS_ROW(
                                        "2", "%4", "%5", "%6",
                                        "%7") "sub %5, %5, %6\n\t"
                                              "sub %5, %5, %7\n\t"
                                              "sub %2, %0, %4\n\t"
                                              "add %0, %0, %4\n\t"
                                              "sub %3, %1, %5\n\t"
                                              "add %1, %1, %5\n\t" TVM_EXT_DSP_FOURS_ROW(
                                                  "0", "%4", "%5", "%6",
                                                  "%7") "add %0, %0, %4\n\t"
                                                        "add %1, %1, %5\n\t"
                                                        "sub %1, %1, %6\n\t"
                                                        "sub %1, %1, %7\n\t" TVM_EXT_DSP_FOURS_ROW(
                                                            "3", "%4", "%5", "%6", "%7") "sub %2, %2, %4\n\t"
                                                                                         "sub %3, %3, %5\n\t"
                                                                                         "add %3, %3, %6\n\t"
                                                                                         "add %3, %3, %7\n\t"
        : "=&r"(y0), "=&r"(y1), "=&r"(y2), "=&r"(y3), "=&r"(m0), "=&r"(m1), "=&r"(m2), "=&r"(m3)
        : "r"(sums), "r"(bias)
        : "memory");
    outputs[0] = y0;
    outputs[1] = y1;
    outputs[2] = y2;
    outputs[3] = y3;
}

#else

/* Does the same in plain C. */
static inline void tvm_ext_dsp_winograd_2x4(uint32_t *sums, const uint32_t *inputs, const uint32_t *weights,
                                            int32_t pairs, const uint32_t *end)
{
    const uint32_t *before = sums;
    while (weights < end) {
        for (int32_t j = 0; j < 4; ++j) {
            for (int32_t i = 0; i < TVM_EXT_DSP_FOURS_TILES * TVM_EXT_DSP_FOURS_CHANNELS; ++i) {
                int32_t sum = j == 0 ? 0 : (int32_t)before[i];
                for (int32_t c = 0; c < pairs; ++c) {
                    sum = tvm_ext_dsp_smlad(
                        inputs[(c * TVM_EXT_DSP_FOURS_TILES) + (i / TVM_EXT_DSP_FOURS_CHANNELS)],
                        weights[(c * TVM_EXT_DSP_FOURS_CHANNELS) + (i % TVM_EXT_DSP_FOURS_CHANNELS)], sum);
                }
                sums[i] = (uint32_t)sum;
            }
            before = sums;
            inputs = &inputs[pairs * TVM_EXT_DSP_FOURS_TILES];
            weights = &weights[pairs * TVM_EXT_DSP_FOURS_CHANNELS];
            sums = &sums[TVM_EXT_DSP_FOURS_TILES * TVM_EXT_DSP_FOURS_CHANNELS];
        }
    }
}

static inline void tvm_ext_dsp_winograd_outputs_of_fours(uint32_t outputs[4], const uint32_t *sums, uint32_t bias)
{
    uint32_t left[4];
    uint32_t right[4];
    for (int32_t i = 0; i < 4; ++i) {
        const uint32_t *const m = &sums[i * 4 * TVM_EXT_DSP_FOURS_TILES * TVM_EXT_DSP_FOURS_CHANNELS];
        const uint32_t added = i == 1 ? bias : 0u;
        left[i] = m[16] + added;
        right[i] = m[24] - m[0] - m[8] + added;
    }
    outputs[0] = left[0] + left[1] + left[2];
    outputs[1] = right[0] + right[1] + right[2];
    outputs[2] = left[1] - left[2] - left[3];
    outputs[3] = right[1] - right[2] - right[3];
}

#endif

#endif
