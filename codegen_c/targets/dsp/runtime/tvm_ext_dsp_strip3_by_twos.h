/* Depthwise convolution with windows of 3x3 taps and stride 2 with the DSP extension: two output rows by two columns of
 * one channel at a time, from a plane of tvm_ext_dsp_depthwise.h to bytes.
 *
 * Five rows of the plane are read once for two rows of outputs, three words of each for two columns. Arguments, and the
 * functions of layers, are as in tvm_ext_dsp_strip3.h. A row of taps has two words: (0, 1), and 2 with a zero. */
#ifndef TVM_EXT_DSP_STRIP3_BY_TWOS_H
#define TVM_EXT_DSP_STRIP3_BY_TWOS_H

#include "tvm_ext_dsp.h"
#include "tvm_ext_dsp_product.h"
#include "tvm_ext_dsp_strip.h"
#include "tvm_ext_dsp_strip3.h"
#include "tvm_ext_requantize.h"

#if TVM_EXT_DSP

/* Registers: r0 to r5 weights, r7 plane, r11 output; accumulators of the upper row r6 and r8, later r6 and r12, of the
 * lower one r9 and r10, later lr and r10. The stack is as in tvm_ext_dsp_strip3.h. */
#define TVM_EXT_DSP_STRIP3_BY_TWOS_ADD(S, X0, X1, W0, W1, START)                                                      \
    "smlad " S ", " X0 ", " W0 ", " START "\n\t"                                                                      \
    "smlad " S ", " X1 ", " W1 ", " S "\n\t"

#define TVM_EXT_DSP_STRIP3_BY_TWOS_ODD_0(WORDS, PITCH, ROW, BLOCKS, SATURATE, SHIFT) ""
#define TVM_EXT_DSP_STRIP3_BY_TWOS_ODD_1(WORDS, PITCH, ROW, BLOCKS, SATURATE, SHIFT)                                  \
    "ldr r9, [sp, #8]\n\t"                                                                                            \
    "ldr r12, [r7]\n\t"                                                                                               \
    "ldr lr, [r7, #4]\n\t"                                                                                            \
    "ldr r8, [r7, #(4*" WORDS ")]\n\t"                                                                                \
    "ldr r10, [r7, #(4*" WORDS "+4)]\n\t" TVM_EXT_DSP_STRIP3_BY_TWOS_ADD("r6", "r12", "lr", "r0", "r1", "r9")         \
    TVM_EXT_DSP_STRIP3_BY_TWOS_ADD("r6", "r8", "r10", "r2", "r3", "r6")                                               \
    "ldr r12, [r7, #(8*" WORDS ")]\n\t"                                                                               \
    "ldr lr, [r7, #(8*" WORDS "+4)]\n\t"                                                                              \
    "ldr r8, [r7, #(12*" WORDS ")]\n\t"                                                                               \
    "ldr r10, [r7, #(12*" WORDS "+4)]\n\t" TVM_EXT_DSP_STRIP3_BY_TWOS_ADD("r6", "r12", "lr", "r4", "r5", "r6")        \
    TVM_EXT_DSP_STRIP3_BY_TWOS_ADD("r9", "r12", "lr", "r0", "r1", "r9")                                               \
    TVM_EXT_DSP_STRIP3_BY_TWOS_ADD("r9", "r8", "r10", "r2", "r3", "r9")                                               \
    "ldr r12, [r7, #(16*" WORDS ")]\n\t"                                                                              \
    "ldr lr, [r7, #(16*" WORDS "+4)]\n\t"                                                                             \
    "ldr r8, [sp]\n\t"                                                                                                \
    "ldr r10, [sp, #4]\n\t" TVM_EXT_DSP_STRIP3_BY_TWOS_ADD("r9", "r12", "lr", "r4", "r5", "r9")                       \
    TVM_EXT_DSP_STRIP3_FINISH("r6", "r8", "r10", SATURATE, SHIFT)                                                     \
    TVM_EXT_DSP_STRIP3_FINISH("r9", "r8", "r10", SATURATE, SHIFT)                                                     \
    "strb r6, [r11, #(2*" BLOCKS "*" PITCH ")]\n\t"                                                                   \
    "strb r9, [r11, #(2*" BLOCKS "*" PITCH "+" ROW ")]\n\t"

#define TVM_EXT_DSP_STRIP3_BY_TWOS_BLOCK(NUMBER, ADVANCE, WORDS, PITCH, ROW, SATURATE, SHIFT)                         \
    "ldr r10, [sp, #8]\n\t"                                                                                           \
    "ldr lr, [r7, #4]\n\t"                                                                                            \
    "ldr r9, [r7, #8]\n\t"                                                                                            \
    "ldr r12, [r7], #8\n\t" TVM_EXT_DSP_STRIP3_BY_TWOS_ADD("r6", "lr", "r12", "r1", "r0", "r10")                      \
    TVM_EXT_DSP_STRIP3_BY_TWOS_ADD("r8", "lr", "r9", "r0", "r1", "r10")                                               \
    "ldr r12, [r7, #(4*" WORDS "-8)]\n\t"                                                                             \
    "ldr lr, [r7, #(4*" WORDS "-4)]\n\t"                                                                              \
    "ldr r9, [r7, #(4*" WORDS ")]\n\t" TVM_EXT_DSP_STRIP3_BY_TWOS_ADD("r6", "r12", "lr", "r2", "r3", "r6")            \
    TVM_EXT_DSP_STRIP3_BY_TWOS_ADD("r8", "lr", "r9", "r2", "r3", "r8")                                                \
    "ldr r12, [r7, #(8*" WORDS "-8)]\n\t"                                                                             \
    "ldr lr, [r7, #(8*" WORDS "-4)]\n\t"                                                                              \
    "ldr r9, [r7, #(8*" WORDS ")]\n\t" TVM_EXT_DSP_STRIP3_BY_TWOS_ADD("r6", "r12", "lr", "r4", "r5", "r6")            \
    TVM_EXT_DSP_STRIP3_BY_TWOS_ADD("r8", "lr", "r9", "r4", "r5", "r8")                                                \
    "smlad r9, r9, r1, r10\n\t"                                                                                       \
    "smlad r9, lr, r0, r9\n\t" TVM_EXT_DSP_STRIP3_BY_TWOS_ADD("r10", "r12", "lr", "r0", "r1", "r10")                  \
    "ldr r12, [r7, #(12*" WORDS "-8)]\n\t"                                                                            \
    "ldr lr, [r7, #(12*" WORDS "-4)]\n\t" TVM_EXT_DSP_STRIP3_BY_TWOS_ADD("r10", "r12", "lr", "r2", "r3", "r10")       \
    "smlad r9, lr, r2, r9\n\t"                                                                                        \
    "ldr r12, [r7, #(12*" WORDS ")]\n\t"                                                                              \
    "ldr lr, [r7, #(16*" WORDS "-8)]\n\t"                                                                             \
    "smlad r9, r12, r3, r9\n\t"                                                                                       \
    "smlad r10, lr, r4, r10\n\t"                                                                                      \
    "ldr r12, [r7, #(16*" WORDS "-4)]\n\t"                                                                            \
    "ldr lr, [r7, #(16*" WORDS ")]\n\t"                                                                               \
    "smlad r10, r12, r5, r10\n\t" TVM_EXT_DSP_STRIP3_BY_TWOS_ADD("r9", "r12", "lr", "r4", "r5", "r9")                 \
    "ldr r12, [sp]\n\t"                                                                                               \
    "ldr lr, [sp, #4]\n\t" ADVANCE TVM_EXT_DSP_STRIP3_FINISH("r6", "r12", "lr", SATURATE, SHIFT)                      \
    TVM_EXT_DSP_STRIP3_FINISH("r8", "r12", "lr", SATURATE, SHIFT)                                                     \
    TVM_EXT_DSP_STRIP3_FINISH("r10", "r12", "lr", SATURATE, SHIFT)                                                    \
    TVM_EXT_DSP_STRIP3_FINISH("r9", "r12", "lr", SATURATE, SHIFT)                                                     \
    TVM_EXT_DSP_STRIP3_STORE("r6", "r8", "r10", "r9", "2*" NUMBER "*" PITCH, PITCH, ROW)

#define TVM_EXT_DSP_STRIP3_BY_TWOS_TEXT(WORDS, PITCH, ROW, PAIRS, BLOCKS, EACH, ODD, SATURATE, SHIFT)                 \
    TVM_EXT_DSP_STRIP3_ENTER("8", PITCH, PAIRS, BLOCKS)                                                               \
    "1:\n\t" EACH(TVM_EXT_DSP_STRIP3_BY_TWOS_BLOCK, WORDS, PITCH, ROW, SATURATE, SHIFT)                               \
    TVM_EXT_DSP_STRIP3_REPEAT(PAIRS, BLOCKS) ODD                                                                      \
    TVM_EXT_DSP_STRIP3_NEXT_ROWS("16", "8", WORDS, PITCH, ROW, PAIRS, BLOCKS)

/* Defines the function of a layer, as TVM_EXT_DSP_DEFINE_STRIP3 does. */
#define TVM_EXT_DSP_DEFINE_STRIP3_BY_TWOS(NAME, WORDS, PITCH, ROW, PAIRS, BLOCKS, ODD, TYPE, SHIFT)                   \
    TVM_EXT_DSP_STRIP3_FUNCTION(                                                                                      \
        NAME,                                                                                                         \
        TVM_EXT_DSP_STRIP3_BY_TWOS_TEXT(#WORDS, #PITCH, #ROW, #PAIRS, #BLOCKS, TVM_EXT_DSP_STRIP3_BLOCKS_##BLOCKS,    \
                                        TVM_EXT_DSP_STRIP3_BY_TWOS_ODD_##ODD(                                         \
                                            #WORDS, #PITCH, #ROW, #BLOCKS, TVM_EXT_DSP_STRIP3_SATURATE_##TYPE, #SHIFT),\
                                        TVM_EXT_DSP_STRIP3_SATURATE_##TYPE, #SHIFT))

#else

#define TVM_EXT_DSP_DEFINE_STRIP3_BY_TWOS(NAME, WORDS, PITCH, ROW, PAIRS, BLOCKS, ODD, TYPE, SHIFT)                   \
    static inline void NAME(const tvm_ext_dsp_strip *strip)                                                           \
    {                                                                                                                 \
        tvm_ext_dsp_strip3(strip, 2, WORDS, PITCH, ROW, (2 * (PAIRS)) + (ODD), TVM_EXT_DSP_IS_UNSIGNED_##TYPE,        \
                           SHIFT);                                                                                    \
    }

#endif

#endif
