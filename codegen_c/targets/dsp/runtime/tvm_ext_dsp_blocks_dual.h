/* The functions of tvm_ext_dsp_blocks.h for cores that start two instructions in a cycle, such as the Cortex-M7.
 *
 * Of two instructions, one is a product and the other one loads or widens: twelve products of a unit take twelve
 * cycles. A product reads what was loaded three cycles before. So cells and weights are read ahead: 8 bytes after the
 * last cells are read too, and are not used. */
#ifndef TVM_EXT_DSP_BLOCKS_DUAL_H
#define TVM_EXT_DSP_BLOCKS_DUAL_H

#include <stdbool.h>
#include <stdint.h>

#include "tvm_ext_dsp_blocks.h"

#if TVM_EXT_DSP

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"

/* Registers: r1 cells, r2 weights, less what the first iteration leaves out; r4 to r6 cells, r12 and r3 words of
 * weights, r0 widened ones, in plain units r0 those of A and r3 those of B; r7 to r11 and lr sums. Where a unit begins,
 * the first word is in r12, in plain units widened in r0 too, and the first two cells are in r4 and r5.
 * CELL, WORD: offsets. Instructions of fixed width, because the first iteration jumps to one of the units. */
#define TVM_EXT_DSP_DUAL_PLAIN(CELL, WORD)                                                                            \
    "sxtb16 r3, r12, ror #8\n\t" TVM_EXT_DSP_SMLAD("r7", "r4", "r0")                                                  \
    "ldr.w r6, [r1, #" CELL " + 8]\n\t" TVM_EXT_DSP_SMLAD("r10", "r4", "r3")                                          \
    "ldr.w r12, [r2, #" WORD " + 4]\n\t" TVM_EXT_DSP_SMLAD("r8", "r5", "r0")                                          \
    "ldr.w r4, [r1, #" CELL " + 12]\n\t" TVM_EXT_DSP_SMLAD("r11", "r5", "r3")                                         \
    "ldr.w r5, [r1, #" CELL " + 16]\n\t" TVM_EXT_DSP_SMLAD("r9", "r6", "r0")                                          \
    "sxtb16 r0, r12\n\t" TVM_EXT_DSP_SMLAD("lr", "r6", "r3")
#define TVM_EXT_DSP_DUAL_JOINED(CELL, WORD, W, NEXT)                                                                  \
    "sxtb16 r0, " W "\n\t" TVM_EXT_DSP_SMLAD("r10", "r4", W)                                                          \
    "ldr.w r6, [r1, #" CELL " + 8]\n\t" TVM_EXT_DSP_SMLAD("r7", "r4", "r0")                                           \
    "ldr.w " NEXT ", [r2, #" WORD " + 4]\n\t" TVM_EXT_DSP_SMLAD("r11", "r5", W)                                       \
    "ldr.w r4, [r1, #" CELL " + 12]\n\t" TVM_EXT_DSP_SMLAD("r8", "r5", "r0")                                          \
    "ldr.w r5, [r1, #" CELL " + 16]\n\t" TVM_EXT_DSP_SMLAD("lr", "r6", W) TVM_EXT_DSP_SMLAD("r9", "r6", "r0")
#define TVM_EXT_DSP_DUAL_PLAIN_UNIT(I)                                                                                \
    TVM_EXT_DSP_DUAL_PLAIN("24 * " #I, "8 * " #I) TVM_EXT_DSP_DUAL_PLAIN("24 * " #I " + 12", "8 * " #I " + 4")
#define TVM_EXT_DSP_DUAL_JOINED_UNIT(I)                                                                               \
    TVM_EXT_DSP_DUAL_JOINED("24 * " #I, "8 * " #I, "r12", "r3")                                                       \
    TVM_EXT_DSP_DUAL_JOINED("24 * " #I " + 12", "8 * " #I " + 4", "r3", "r12")

/* On the stack: addresses of elements, rounding, the entry into the loop, cells, the same less what the first iteration
 * leaves out, the bytes of weights that it leaves out, the end of the cells, the end of all weights.
 * BEGIN: widens the first word of weights, if the units do not. */
#define TVM_EXT_DSP_DUAL_TEXT(BEGIN, UNIT, UNIT_BYTES, OTHER_BYTES, FINISH)                                           \
    "push {r7, r11}\n\t"                                                                                              \
    "ldmia r0, {r8, r9, r10}\n\t"                                                                                     \
    "lsl r5, r3, #3\n\t"                                                                                              \
    "add r6, r5, #" OTHER_BYTES "\n\t"                                                                                \
    "mla r7, r12, r6, r2\n\t"                                                                                         \
    "add r5, r5, r5, lsl #1\n\t"                                                                                      \
    "add r5, r5, r1\n\t"                                                                                              \
    "push {r5, r7}\n\t"                                                                                               \
    "rsb r6, r3, #0\n\t"                                                                                              \
    "and r6, r6, #7\n\t"                                                                                              \
    "movs r0, #" UNIT_BYTES "\n\t"                                                                                    \
    "adr r12, 2f\n\t"                                                                                                 \
    "mla r0, r6, r0, r12\n\t"                                                                                         \
    "orr r0, r0, #1\n\t"                                                                                              \
    "lsl r12, r6, #3\n\t"                                                                                             \
    "add r6, r12, r12, lsl #1\n\t"                                                                                    \
    "sub r6, r1, r6\n\t"                                                                                              \
    "push {r0, r1, r6, r12}\n\t"                                                                                      \
    "push {r4}\n\t"                                                                                                   \
    "push {r8, r9, r10}\n"                                                                                            \
    "1:\n\t"                                                                                                          \
    "ldrd r7, r10, [r2], #8\n\t"                                                                                      \
    "ldr r0, [sp, #20]\n\t"                                                                                           \
    "ldr r12, [r2]\n\t"                                                                                               \
    "mov r8, r7\n\t"                                                                                                  \
    "ldrd r4, r5, [r0]\n\t"                                                                                           \
    "mov r9, r7\n\t"                                                                                                  \
    "ldrd r1, r3, [sp, #24]\n\t"                                                                                      \
    "mov r11, r10\n\t" BEGIN                                                                                          \
    "mov lr, r10\n\t"                                                                                                 \
    "sub r2, r2, r3\n\t"                                                                                              \
    "ldr pc, [sp, #16]\n\t"                                                                                           \
    ".balign 4\n"                                                                                                     \
    "2:\n\t" UNIT(0) UNIT(1) UNIT(2) UNIT(3) UNIT(4) UNIT(5) UNIT(6) UNIT(7)                                          \
    TVM_EXT_DSP_SIZED("2b", "8", UNIT_BYTES) "adds r1, #192\n\t"                                                      \
    "ldr r3, [sp, #32]\n\t"                                                                                           \
    "adds r2, #64\n\t"                                                                                                \
    "cmp r1, r3\n\t"                                                                                                  \
    "bne 2b\n\t" FINISH                                                                                               \
    "ldr r0, [sp, #36]\n\t"                                                                                           \
    "stm sp, {r4, r5, r6}\n\t"                                                                                        \
    "cmp r2, r0\n\t"                                                                                                  \
    "bne 1b\n\t"                                                                                                      \
    "add sp, sp, #40\n\t"                                                                                             \
    "pop {r7, r11}\n\t"
#define TVM_EXT_DSP_BLOCKS_DUAL_PLAIN(SUFFIX, OTHER_BYTES, FINISH)                                                    \
    TVM_EXT_DSP_BLOCKS_FUNCTION(                                                                                      \
        tvm_ext_dsp_blocks_dual_##SUFFIX,                                                                             \
        TVM_EXT_DSP_DUAL_TEXT("sxtb16 r0, r12\n\t", TVM_EXT_DSP_DUAL_PLAIN_UNIT, "96", OTHER_BYTES, FINISH))
#define TVM_EXT_DSP_BLOCKS_DUAL_JOINED(SUFFIX, OTHER_BYTES, FINISH)                                                   \
    TVM_EXT_DSP_BLOCKS_FUNCTION(                                                                                      \
        tvm_ext_dsp_blocks_dual_joined_##SUFFIX,                                                                      \
        TVM_EXT_DSP_DUAL_TEXT("", TVM_EXT_DSP_DUAL_JOINED_UNIT, "88", OTHER_BYTES, FINISH))

TVM_EXT_DSP_BLOCKS_EACH(TVM_EXT_DSP_BLOCKS_DUAL_PLAIN, TVM_EXT_DSP_BLOCKS_DUAL_JOINED)

#pragma GCC diagnostic pop

#else

TVM_EXT_DSP_BLOCKS_EACH(tvm_ext_dsp_blocks_dual)

#endif

#endif
