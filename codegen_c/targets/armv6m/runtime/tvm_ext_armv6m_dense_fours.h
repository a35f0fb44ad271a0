/* Dense layers on Armv6-M in assembly: one row by four output channels at a time, whose weights are adjacent.
 *
 * A word W holds the weights of four channels for one element x: the last one signed, the others plus 128. Sums of
 * x * (W >> 24), x * (W >> 16), x * (W >> 8) and x * W, modulo 2^32, need one shift each. Each contains 256 times the
 * sum ahead of it, which is subtracted once at the end, as is 128 times the sum of all elements. */
#ifndef TVM_EXT_ARMV6M_DENSE_FOURS_H
#define TVM_EXT_ARMV6M_DENSE_FOURS_H

#include "tvm_ext_armv6m_fours.h"

#if TVM_EXT_ARMV6M

/* Adds the products of the element in r4. r2: weights. */
#define TVM_EXT_ARMV6M_FOUR_WEIGHTS \
    "ldmia r2!, {r3}\n\t"           \
    "asrs r5, r3, #24\n\t"          \
    "muls r5, r4\n\t"               \
    "add r11, r5\n\t"               \
    "asrs r5, r3, #16\n\t"          \
    "muls r5, r4\n\t"               \
    "add r10, r5\n\t"               \
    "asrs r5, r3, #8\n\t"           \
    "muls r5, r4\n\t"               \
    "add r9, r5\n\t"                \
    "muls r3, r4\n\t"               \
    "add r8, r3\n\t"

/* Adds the weights of the next of the four elements in r1. */
#define TVM_EXT_ARMV6M_NEXT_WEIGHTS(EXTEND)        \
    "lsrs r1, r1, #8\n\t" EXTEND " r4, r1\n\t"     \
    TVM_EXT_ARMV6M_FOUR_WEIGHTS

#define TVM_EXT_ARMV6M_DEFINE_DENSE_FOURS(SUFFIX, LOAD, EXTEND, MORE)                                             \
    TVM_EXT_ARMV6M_ASSEMBLY void tvm_ext_armv6m_dense_fours_##SUFFIX(                                             \
        TVM_EXT_ARMV6M_IN const tvm_ext_armv6m_fours *row)                                                        \
    {                                                                                                             \
        __asm__(TVM_EXT_ARMV6M_SAVE TVM_EXT_ARMV6M_COPY_FOURS                                                     \
                "5:\n\t"                                                                                          \
                "movs r7, #0\n\t"                                                                                 \
                "mov r8, r7\n\t"                                                                                  \
                "mov r9, r7\n\t"                                                                                  \
                "mov r10, r7\n\t"                                                                                 \
                "mov r11, r7\n\t"                                                                                 \
                "ldr r0, [sp, #0]\n\t"                                                                            \
                "ldr r2, [sp, #4]\n\t"                                                                            \
                "ldr r6, [sp, #28]\n\t"                                                                           \
                "cmp r6, #0\n\t"                                                                                  \
                "beq 7f\n"                                                                                        \
                "6:\n\t"                                                                                          \
                "ldmia r0!, {r1}\n\t" EXTEND " r4, r1\n\t" TVM_EXT_ARMV6M_FOUR_WEIGHTS                            \
                TVM_EXT_ARMV6M_NEXT_WEIGHTS(EXTEND) TVM_EXT_ARMV6M_NEXT_WEIGHTS(EXTEND)                           \
                TVM_EXT_ARMV6M_NEXT_WEIGHTS(EXTEND)                                                               \
                "subs r6, #1\n\t"                                                                                 \
                "bne 6b\n"                                                                                        \
                "7:\n\t"                                                                                          \
                "ldr r6, [sp, #24]\n\t"                                                                           \
                "cmp r6, #0\n\t"                                                                                  \
                "beq 9f\n"                                                                                        \
                "8:\n\t" LOAD " r4, [r0, r7]\n\t"                                                                 \
                "adds r0, #1\n\t" TVM_EXT_ARMV6M_FOUR_WEIGHTS                                                     \
                "subs r6, #1\n\t"                                                                                 \
                "bne 8b\n"                                                                                        \
                "9:\n\t"                                                                                          \
                "str r2, [sp, #4]\n\t"                                                                            \
                "mov r7, r11\n\t"                                                                                 \
                "mov r6, r10\n\t"                                                                                 \
                "mov r5, r9\n\t"                                                                                  \
                "mov r4, r8\n\t"                                                                                  \
                "ldr r1, [sp, #32]\n\t"                                                                           \
                "lsls r0, r5, #8\n\t"                                                                             \
                "subs r4, r4, r0\n\t"                                                                             \
                "subs r4, r4, r1\n\t"                                                                             \
                "mov r8, r4\n\t"                                                                                  \
                "lsls r0, r6, #8\n\t"                                                                             \
                "subs r5, r5, r0\n\t"                                                                             \
                "subs r5, r5, r1\n\t"                                                                             \
                "mov r9, r5\n\t"                                                                                  \
                "lsls r0, r7, #8\n\t"                                                                             \
                "subs r6, r6, r0\n\t"                                                                             \
                "subs r6, r6, r1\n\t"                                                                             \
                "mov r10, r6\n\t"                                                                                 \
                "ldr r1, [sp, #8]\n\t"                                                                            \
                "ldr r2, [sp, #12]\n\t"                                                                           \
                "ldr r3, [sp, #20]\n\t" TVM_EXT_ARMV6M_FOUR_ELEMENTS(MORE)                                        \
                "str r2, [sp, #12]\n\t"                                                                           \
                "adds r1, #4\n\t"                                                                                 \
                "str r1, [sp, #8]\n\t"                                                                            \
                "ldr r4, [sp, #16]\n\t"                                                                           \
                "subs r4, #4\n\t"                                                                                 \
                "str r4, [sp, #16]\n\t"                                                                           \
                "beq 41f\n\t"                                                                                     \
                "b 5b\n"                                                                                          \
                "41:\n\t"                                                                                         \
                "add sp, #36\n\t" TVM_EXT_ARMV6M_RESTORE);                                                        \
    }
TVM_EXT_ARMV6M_DEFINE_DENSE_FOURS(s8_once, "ldrsb", "sxtb", TVM_EXT_ARMV6M_FOUR_NO_MORE)
TVM_EXT_ARMV6M_DEFINE_DENSE_FOURS(s8_twice, "ldrsb", "sxtb", TVM_EXT_ARMV6M_FOUR_MORE)
TVM_EXT_ARMV6M_DEFINE_DENSE_FOURS(u8_once, "ldrb", "uxtb", TVM_EXT_ARMV6M_FOUR_NO_MORE)
TVM_EXT_ARMV6M_DEFINE_DENSE_FOURS(u8_twice, "ldrb", "uxtb", TVM_EXT_ARMV6M_FOUR_MORE)

#endif

#endif
