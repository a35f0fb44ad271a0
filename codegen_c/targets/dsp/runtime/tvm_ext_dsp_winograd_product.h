/* Products of Winograd's tiles with the DSP extension, in integers: three tiles by two output channels at a time.
 *
 * For each position of a transformed tile, transformed inputs times transformed weights are summed over the input
 * channels, modulo 2^32.
 *
 * Order of the inputs of three tiles: for each position, pairs of input channels with the three tiles adjacent. Weights
 * of two channels: for each position, adjacent pairs of A and B. Sums of each position: three tiles of channel A, then
 * three of channel B. */
#ifndef TVM_EXT_DSP_WINOGRAD_PRODUCT_H
#define TVM_EXT_DSP_WINOGRAD_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#include "tvm_ext_dsp.h"
#include "tvm_ext_dsp_product.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_DSP_TILES 3
#define TVM_EXT_DSP_PLACES 16

#if TVM_EXT_DSP

#define TVM_EXT_DSP_WINOGRAD_FUNCTION(NAME, TEXT)                                                                     \
    TVM_EXT_DSP_SHARED void NAME(uint32_t *sums, const uint32_t *inputs, const uint32_t *weights, int32_t pairs,      \
                                 const uint32_t *end)                                                                 \
    {                                                                                                                 \
        register uint32_t *r0 __asm__("r0") = sums;                                                                   \
        register const uint32_t *r1 __asm__("r1") = inputs;                                                           \
        register const uint32_t *r2 __asm__("r2") = weights;                                                          \
        register int32_t r12 __asm__("r12") = pairs;                                                                  \
        register const uint32_t *r6 __asm__("r6") = end;                                                              \
        __asm__ volatile(TEXT                                                                                         \
                         : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r12), "+r"(r6)                                          \
                         :                                                                                            \
                         : "r3", "r4", "r5", "r8", "r9", "r10", "lr", "cc", "memory");                                \
    }

/* Registers: r1 inputs, r2 weights, r12 end of a position's weights, r4 to r6 three tiles, r0 and r3 two channels, r7
 * to r11 and lr accumulators. On the stack: the address at which the loop is entered for the pairs that are left over
 * from groups of eight, the next sums, the bytes of a position's weights, and the end of all weights. r7 and r11 may be
 * frame pointers, so they are saved here and not declared to the compiler. */
#define TVM_EXT_DSP_WINOGRAD_LOADS "ldmia r1!, {r4, r5, r6}\n\tldmia r2!, {r0, r3}\n\t"
#define TVM_EXT_DSP_WINOGRAD_UNIT                                                                                     \
    TVM_EXT_DSP_WINOGRAD_LOADS TVM_EXT_DSP_SMLAD_3("r7", "r8", "r9", "r0") TVM_EXT_DSP_SMLAD_3("r10", "r11", "lr", "r3")

#define TVM_EXT_DSP_WINOGRAD_UNIT_BYTES "28"
#define TVM_EXT_DSP_WINOGRAD_4_UNITS                                                                                  \
    TVM_EXT_DSP_WINOGRAD_UNIT TVM_EXT_DSP_WINOGRAD_UNIT TVM_EXT_DSP_WINOGRAD_UNIT TVM_EXT_DSP_WINOGRAD_UNIT
#define TVM_EXT_DSP_WINOGRAD_UNITS                                                                                    \
    "2:\n\t" TVM_EXT_DSP_WINOGRAD_4_UNITS TVM_EXT_DSP_WINOGRAD_4_UNITS                                                \
    TVM_EXT_DSP_SIZED("2b", "8", TVM_EXT_DSP_WINOGRAD_UNIT_BYTES)

/* Sums all positions of three tiles by two channels. pairs: of input channels, at least 2. end: of the weights. */
TVM_EXT_DSP_WINOGRAD_FUNCTION(tvm_ext_dsp_winograd_3x2, "push {r7, r11}\n\t"
                                                        "lsl r5, r12, #3\n\t"
                                                        "rsb r4, r12, #1\n\t"
                                                        "and r4, r4, #7\n\t"
                                                        "movs r7, #" TVM_EXT_DSP_WINOGRAD_UNIT_BYTES "\n\t"
                                                        "adr.w r8, 2f + 1\n\t"
                                                        "mla r3, r4, r7, r8\n\t"
                                                        "add r12, r2, r5\n\t"
                                                        "mov r4, r0\n\t"
                                                        "push {r3, r4, r5, r6}\n"
                                                        "1:\n\t" TVM_EXT_DSP_WINOGRAD_LOADS "smuad r7, r4, r0\n\t"
                                                        "smuad r8, r5, r0\n\t"
                                                        "smuad r9, r6, r0\n\t"
                                                        "smuad r10, r4, r3\n\t"
                                                        "smuad r11, r5, r3\n\t"
                                                        "smuad lr, r6, r3\n\t"
                                                        "ldr pc, [sp]\n\t"
                                                        ".balign 4\n" TVM_EXT_DSP_WINOGRAD_UNITS "cmp r2, r12\n\t"
                                                        "bne 2b\n\t"
                                                        "ldrd r0, r3, [sp, #4]\n\t"
                                                        "ldr r4, [sp, #12]\n\t"
                                                        "stmia r0!, {r7, r8, r9, r10, r11, lr}\n\t"
                                                        "str r0, [sp, #4]\n\t"
                                                        "add r12, r12, r3\n\t"
                                                        "cmp r2, r4\n\t"
                                                        "bne 1b\n\t"
                                                        "add sp, sp, #16\n\t"
                                                        "pop {r7, r11}\n\t")

/* For cores that start two instructions in a cycle: six products of a pair of channels take six cycles. The first
 * weight and the first two inputs of the next pair are read ahead into r0, r4 and r5, also after the last pair: then
 * they are not used. r1 and r2 are less what the first iteration leaves out. I: pair of the iteration. */
#define TVM_EXT_DSP_WINOGRAD_DUAL_UNIT(I)                                                                             \
    "ldr.w r6, [r1, #12 * " #I " + 8]\n\t" TVM_EXT_DSP_SMLAD("r7", "r4", "r0")                                        \
    "ldr.w r3, [r2, #8 * " #I " + 4]\n\t" TVM_EXT_DSP_SMLAD("r8", "r5", "r0") TVM_EXT_DSP_SMLAD("r9", "r6", "r0")     \
    "ldr.w r0, [r2, #8 * " #I " + 8]\n\t" TVM_EXT_DSP_SMLAD("r10", "r4", "r3")                                        \
    "ldr.w r4, [r1, #12 * " #I " + 12]\n\t" TVM_EXT_DSP_SMLAD("r11", "r5", "r3")                                      \
    "ldr.w r5, [r1, #12 * " #I " + 16]\n\t" TVM_EXT_DSP_SMLAD("lr", "r6", "r3")
#define TVM_EXT_DSP_WINOGRAD_DUAL_UNIT_BYTES "44"
#define TVM_EXT_DSP_WINOGRAD_DUAL_UNITS                                                                               \
    "2:\n\t" TVM_EXT_DSP_WINOGRAD_DUAL_UNIT(0) TVM_EXT_DSP_WINOGRAD_DUAL_UNIT(1) TVM_EXT_DSP_WINOGRAD_DUAL_UNIT(2)     \
        TVM_EXT_DSP_WINOGRAD_DUAL_UNIT(3) TVM_EXT_DSP_WINOGRAD_DUAL_UNIT(4) TVM_EXT_DSP_WINOGRAD_DUAL_UNIT(5)         \
            TVM_EXT_DSP_WINOGRAD_DUAL_UNIT(6) TVM_EXT_DSP_WINOGRAD_DUAL_UNIT(7)                                       \
                TVM_EXT_DSP_SIZED("2b", "8", TVM_EXT_DSP_WINOGRAD_DUAL_UNIT_BYTES)

/* On the stack: the next sums, the entry into the loop, the bytes of inputs and of weights that the first iteration
 * leaves out, the bytes of a position's weights, and the end of all weights. */
TVM_EXT_DSP_WINOGRAD_FUNCTION(tvm_ext_dsp_winograd_3x2_dual,
                              "push {r7, r11}\n\t"
                              "lsl r5, r12, #3\n\t"
                              "push {r5, r6}\n\t"
                              "rsb r4, r12, #0\n\t"
                              "and r4, r4, #7\n\t"
                              "movs r7, #" TVM_EXT_DSP_WINOGRAD_DUAL_UNIT_BYTES "\n\t"
                              "adr.w r8, 2f + 1\n\t"
                              "mla r3, r4, r7, r8\n\t"
                              "add r12, r2, r5\n\t"
                              "lsl r5, r4, #3\n\t"
                              "add r4, r5, r4, lsl #2\n\t"
                              "push {r4, r5}\n\t"
                              "push {r0, r3}\n\t"
                              "ldr r0, [r2]\n\t"
                              "ldrd r4, r5, [r1]\n"
                              "1:\n\t"
                              "ldrd r3, r6, [sp, #8]\n\t"
                              "mov.w r7, #0\n\t"
                              "mov.w r8, #0\n\t"
                              "mov.w r9, #0\n\t"
                              "mov.w r10, #0\n\t"
                              "mov.w r11, #0\n\t"
                              "mov.w lr, #0\n\t"
                              "subs r1, r1, r3\n\t"
                              "subs r2, r2, r6\n\t"
                              "ldr pc, [sp, #4]\n\t"
                              ".balign 4\n" TVM_EXT_DSP_WINOGRAD_DUAL_UNITS "adds r2, #64\n\t"
                              "adds r1, #96\n\t"
                              "cmp r2, r12\n\t"
                              "bne 2b\n\t"
                              "ldr r3, [sp]\n\t"
                              "ldr r6, [sp, #20]\n\t"
                              "stmia r3!, {r7, r8, r9, r10, r11, lr}\n\t"
                              "cmp r2, r6\n\t"
                              "ldr r6, [sp, #16]\n\t"
                              "str r3, [sp]\n\t"
                              "add r12, r12, r6\n\t"
                              "bne 1b\n\t"
                              "add sp, sp, #24\n\t"
                              "pop {r7, r11}\n\t")

/* Combines a column of positions, from sums %8 on, into the row sums: A of the upper outputs, D of the lower ones. */
#define TVM_EXT_DSP_WINOGRAD_COLUMN(J, A, D, BIAS)                                                                    \
    "ldr " A ", [%8, #" J "*24]\n\t"                                                                                  \
    "ldr %5, [%8, #" J "*24+96]\n\t"                                                                                  \
    "ldr %6, [%8, #" J "*24+192]\n\t"                                                                                 \
    "ldr " D ", [%8, #" J "*24+288]\n\t" BIAS                                                                         \
    "add " A ", " A ", %5\n\t"                                                                                        \
    "sub %5, %5, %6\n\t"                                                                                              \
    "add " A ", " A ", %6\n\t"                                                                                        \
    "sub " D ", %5, " D "\n\t"
#define TVM_EXT_DSP_WINOGRAD_COLUMN_0                                                                                 \
    TVM_EXT_DSP_WINOGRAD_COLUMN("0", "%4", "%7", "")                                                                  \
    "add %0, %4, %1\n\t"                                                                                              \
    "add %2, %7, %3\n\t"
#define TVM_EXT_DSP_WINOGRAD_COLUMN_1 TVM_EXT_DSP_WINOGRAD_COLUMN("1", "%1", "%3", "add %5, %5, %9\n\t")
#define TVM_EXT_DSP_WINOGRAD_COLUMN_2                                                                                 \
    TVM_EXT_DSP_WINOGRAD_COLUMN("2", "%4", "%7", "")                                                                  \
    "add %0, %0, %4\n\t"                                                                                              \
    "sub %1, %1, %4\n\t"                                                                                              \
    "add %2, %2, %7\n\t"                                                                                              \
    "sub %3, %3, %7\n\t"
#define TVM_EXT_DSP_WINOGRAD_COLUMN_3                                                                                 \
    TVM_EXT_DSP_WINOGRAD_COLUMN("3", "%4", "%7", "")                                                                  \
    "sub %1, %1, %4\n\t"                                                                                              \
    "sub %3, %3, %7\n\t"

/* Computes outputs (0, 0), (0, 1), (1, 0) and (1, 1) of a tile, A^T M A, from the first of its sums on. Assembly,
 * because compilers move all loads up and run out of registers. */
TVM_EXT_INLINE void tvm_ext_dsp_winograd_outputs(uint32_t outputs[4], const uint32_t *sums, uint32_t bias)
{
    uint32_t y0, y1, y2, y3, m0, m1, m2, m3;
    __asm__ volatile(TVM_EXT_DSP_WINOGRAD_COLUMN_1 TVM_EXT_DSP_WINOGRAD_COLUMN_0 TVM_EXT_DSP_WINOGRAD_COLUMN_2
                         TVM_EXT_DSP_WINOGRAD_COLUMN_3
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
static inline void tvm_ext_dsp_winograd_3x2(uint32_t *sums, const uint32_t *inputs, const uint32_t *weights,
                                            int32_t pairs, const uint32_t *end)
{
    for (; weights < end; weights = &weights[2 * pairs]) {
        for (int32_t i = 0; i < TVM_EXT_DSP_TILES * 2; ++i) {
            int32_t sum = 0;
            for (int32_t c = 0; c < pairs; ++c) {
                sum = tvm_ext_dsp_smlad(inputs[(c * TVM_EXT_DSP_TILES) + (i % TVM_EXT_DSP_TILES)],
                                        weights[(c * 2) + (i / TVM_EXT_DSP_TILES)], sum);
            }
            sums[i] = (uint32_t)sum;
        }
        inputs = &inputs[pairs * TVM_EXT_DSP_TILES];
        sums = &sums[TVM_EXT_DSP_TILES * 2];
    }
}

static inline void tvm_ext_dsp_winograd_3x2_dual(uint32_t *sums, const uint32_t *inputs, const uint32_t *weights,
                                                 int32_t pairs, const uint32_t *end)
{
    tvm_ext_dsp_winograd_3x2(sums, inputs, weights, pairs, end);
}

static inline void tvm_ext_dsp_winograd_outputs(uint32_t outputs[4], const uint32_t *sums, uint32_t bias)
{
    uint32_t top[4], bottom[4];
    for (int32_t j = 0; j < 4; ++j) {
        const uint32_t *const m = &sums[j * TVM_EXT_DSP_TILES * 2];
        const uint32_t second = m[24] + (j == 1 ? bias : 0u);
        top[j] = m[0] + second + m[48];
        bottom[j] = second - m[48] - m[72];
    }
    outputs[0] = top[0] + top[1] + top[2];
    outputs[1] = top[1] - top[2] - top[3];
    outputs[2] = bottom[0] + bottom[1] + bottom[2];
    outputs[3] = bottom[1] - bottom[2] - bottom[3];
}

#endif

/* Sums all positions of three tiles by two channels. is_dual_issue: true if the core starts two instructions in a
 * cycle; 8 bytes after the inputs and 4 bytes after the weights are then read too. */
TVM_EXT_INLINE void tvm_ext_dsp_winograd_sums(bool is_dual_issue, uint32_t *sums, const uint32_t *inputs,
                                              const uint32_t *weights, int32_t pairs, const uint32_t *end)
{
    if (is_dual_issue) {
        tvm_ext_dsp_winograd_3x2_dual(sums, inputs, weights, pairs, end);
    } else {
        tvm_ext_dsp_winograd_3x2(sums, inputs, weights, pairs, end);
    }
}

#endif
