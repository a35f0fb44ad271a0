/* Depthwise convolution on Armv6-M in assembly: all channels of one output pixel, four at a time.
 *
 * One load takes elements of four channels, and one their weights, so that addresses and the number of channels must be
 * multiples of four. Weights are [channels / 4][taps][4]. Taps are read as in tvm_ext_armv6m_depthwise.h. */
#ifndef TVM_EXT_ARMV6M_DEPTHWISE_FOURS_H
#define TVM_EXT_ARMV6M_DEPTHWISE_FOURS_H

#include "tvm_ext_armv6m_fours.h"

#if TVM_EXT_ARMV6M

/* Adds a product of an element in r4 and a weight in r5, each moved to the low end of a register by X and W, to SUM, or
 * begins it: ADD is add or mov. */
#define TVM_EXT_ARMV6M_BYTE(X, W, ADD, SUM) \
    X W "muls r6, r7\n\t" ADD " " SUM ", r6\n\t"

/* Does so for the four channels of one tap. r0: list of taps, r2: weights, r3: index of the channel, r8 to r11: sums.
 */
#define TVM_EXT_ARMV6M_FOUR_TAP(SHIFT, EXTEND, ADD)                                                             \
    "ldmia r0!, {r4}\n\t"                                                                                       \
    "ldr r4, [r4, r3]\n\t"                                                                                      \
    "ldmia r2!, {r5}\n\t" TVM_EXT_ARMV6M_BYTE(SHIFT " r6, r4, #24\n\t", "asrs r7, r5, #24\n\t", ADD, "r11")     \
        TVM_EXT_ARMV6M_BYTE("lsls r6, r4, #8\n\t" SHIFT " r6, r6, #24\n\t",                                     \
                            "lsls r7, r5, #8\n\tasrs r7, r7, #24\n\t", ADD, "r10")                              \
            TVM_EXT_ARMV6M_BYTE("lsls r6, r4, #16\n\t" SHIFT " r6, r6, #24\n\t",                                \
                                "lsls r7, r5, #16\n\tasrs r7, r7, #24\n\t", ADD, "r9")                          \
                TVM_EXT_ARMV6M_BYTE(EXTEND " r6, r4\n\t", "sxtb r7, r5\n\t", ADD, "r8")

/* The first tap begins the sums; r1 counts the others. Two statements, because a string must not have more than 4095
 * characters. */
#define TVM_EXT_ARMV6M_DEFINE_DEPTHWISE_FOURS(SUFFIX, SHIFT, EXTEND, MORE)                                      \
    TVM_EXT_ARMV6M_ASSEMBLY void tvm_ext_armv6m_depthwise_fours_##SUFFIX(                                       \
        TVM_EXT_ARMV6M_IN const tvm_ext_armv6m_fours *pixel)                                                    \
    {                                                                                                           \
        __asm__(TVM_EXT_ARMV6M_SAVE TVM_EXT_ARMV6M_COPY_FOURS                                                   \
                "movs r3, #0\n"                                                                                 \
                "5:\n\t"                                                                                        \
                "ldr r0, [sp, #0]\n\t"                                                                          \
                "ldr r2, [sp, #4]\n\t" TVM_EXT_ARMV6M_FOUR_TAP(SHIFT, EXTEND, "mov")                            \
                "ldr r1, [sp, #24]\n\t"                                                                         \
                "cmp r1, #0\n\t"                                                                                \
                "beq 7f\n"                                                                                      \
                "6:\n\t" TVM_EXT_ARMV6M_FOUR_TAP(SHIFT, EXTEND, "add")                                          \
                "subs r1, #1\n\t"                                                                               \
                "bne 6b\n"                                                                                      \
                "7:\n\t"                                                                                        \
                "ldr r1, [sp, #28]\n\t"                                                                         \
                "cmp r1, #0\n\t"                                                                                \
                "beq 9f\n"                                                                                      \
                "8:\n\t" TVM_EXT_ARMV6M_FOUR_TAP(SHIFT, EXTEND, "add")                                          \
                TVM_EXT_ARMV6M_FOUR_TAP(SHIFT, EXTEND, "add") TVM_EXT_ARMV6M_FOUR_TAP(SHIFT, EXTEND, "add")     \
                TVM_EXT_ARMV6M_FOUR_TAP(SHIFT, EXTEND, "add")                                                   \
                "subs r1, #1\n\t"                                                                               \
                "bne 8b\n"                                                                                      \
                );  \
        __asm__("9:\n\t"                                                                                        \
                "str r2, [sp, #4]\n\t"                                                                          \
                "ldr r1, [sp, #8]\n\t"                                                                          \
                "adds r1, r1, r3\n\t"                                                                           \
                "ldr r2, [sp, #12]\n\t"                                                                         \
                "mov r12, r3\n\t"                                                                               \
                "ldr r3, [sp, #20]\n\t" TVM_EXT_ARMV6M_FOUR_ELEMENTS(MORE)                                      \
                "str r2, [sp, #12]\n\t"                                                                         \
                "mov r3, r12\n\t"                                                                               \
                "adds r3, #4\n\t"                                                                               \
                "ldr r4, [sp, #16]\n\t"                                                                         \
                "cmp r3, r4\n\t"                                                                                \
                "bhs 41f\n\t"                                                                                   \
                "b 5b\n"                                                                                        \
                "41:\n\t"                                                                                       \
                "add sp, #36\n\t" TVM_EXT_ARMV6M_RESTORE);                                                      \
    }
TVM_EXT_ARMV6M_DEFINE_DEPTHWISE_FOURS(s8_once, "asrs", "sxtb", TVM_EXT_ARMV6M_FOUR_NO_MORE)
TVM_EXT_ARMV6M_DEFINE_DEPTHWISE_FOURS(s8_twice, "asrs", "sxtb", TVM_EXT_ARMV6M_FOUR_MORE)
TVM_EXT_ARMV6M_DEFINE_DEPTHWISE_FOURS(u8_once, "lsrs", "uxtb", TVM_EXT_ARMV6M_FOUR_NO_MORE)
TVM_EXT_ARMV6M_DEFINE_DEPTHWISE_FOURS(u8_twice, "lsrs", "uxtb", TVM_EXT_ARMV6M_FOUR_MORE)

#endif

#endif
