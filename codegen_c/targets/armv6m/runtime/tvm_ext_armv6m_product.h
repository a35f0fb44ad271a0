/* Products of pairs: a word x + y * 2^16 times a weight w is w x + w y * 2^16, two products by one instruction.
 *
 * Sums of such words contain both sums, if each stays within 16 bits: the generator has chosen runs of taps for
 * which this holds for all elements. They begin with 2^15 in either half, so that no half is negative. Weights are,
 * for each run, -1 minus their number, then the weights themselves; -1 ends a channel. */
#ifndef TVM_EXT_ARMV6M_PRODUCT_H
#define TVM_EXT_ARMV6M_PRODUCT_H

#include "tvm_ext_armv6m.h"

#define TVM_EXT_ARMV6M_PAIRS 4 /* words of a tap: those of 8 pixels */
#define TVM_EXT_ARMV6M_PIXELS (2 * TVM_EXT_ARMV6M_PAIRS)

/* Computes sums of one channel of 8 pixels, each with an excess of 2^15 for each run. Returns the weights of the
   next channel. */
#if TVM_EXT_ARMV6M
TVM_EXT_ARMV6M_ASSEMBLY const int8_t *tvm_ext_armv6m_product(TVM_EXT_ARMV6M_IN uint32_t sums[TVM_EXT_ARMV6M_PIXELS],
                                                             TVM_EXT_ARMV6M_IN const uint32_t *cells,
                                                             TVM_EXT_ARMV6M_IN const int8_t *weights)
{
/* Assembly that adds a pair of halves in SUM to two sums: LOW, HIGH. */
#define TVM_EXT_ARMV6M_ADD_HALVES(SUM, LOW, HIGH) \
    "mov r4, " SUM "\n\t"                         \
    "uxth r4, r4\n\t"                             \
    "adds " LOW ", r4\n\t"                        \
    "mov r4, " SUM "\n\t"                         \
    "lsrs r4, r4, #16\n\t"                        \
    "adds " HIGH ", r4\n\t"                       \
    "mov " SUM ", lr\n\t"
    /* r5: cells, r6: weights, r7: offset to a weight, r8 to r11: pairs of sums, r12: sums. */
    __asm__(TVM_EXT_ARMV6M_SAVE "mov r12, r0\n\t"
                                "movs r5, r1\n\t"
                                "movs r6, r2\n\t"
                                "movs r1, #0\n\t"
                                "movs r2, #0\n\t"
                                "movs r3, #0\n\t"
                                "movs r4, #0\n\t"
                                "stmia r0!, {r1, r2, r3, r4}\n\t"
                                "stmia r0!, {r1, r2, r3, r4}\n\t"
                                "movs r7, #1\n\t"
                                "lsls r7, r7, #31\n\t"
                                "lsrs r4, r7, #16\n\t"
                                "adds r7, r4\n\t"
                                "mov lr, r7\n\t"
                                "mov r8, r7\n\t"
                                "mov r9, r7\n\t"
                                "mov r10, r7\n\t"
                                "mov r11, r7\n\t"
                                "movs r7, #0\n\t"
                                "b 2f\n"
                                "1:\n\t"
                                "ldmia r5!, {r0, r1, r2, r3}\n\t"
                                "ldrsb r4, [r6, r7]\n\t"
                                "muls r0, r4\n\t"
                                "add r8, r0\n\t"
                                "muls r1, r4\n\t"
                                "add r9, r1\n\t"
                                "muls r2, r4\n\t"
                                "add r10, r2\n\t"
                                "muls r3, r4\n\t"
                                "add r11, r3\n\t"
                                "adds r7, #1\n\t"
                                "bne 1b\n\t"
                                "mov r7, r12\n\t"
                                "ldmia r7!, {r0, r1, r2, r3}\n\t" /* the end of a run */
            TVM_EXT_ARMV6M_ADD_HALVES("r8", "r0", "r1") TVM_EXT_ARMV6M_ADD_HALVES(
                "r9", "r2", "r3") "subs r7, #16\n\t"
                                  "stmia r7!, {r0, r1, r2, r3}\n\t"
                                  "ldmia r7!, {r0, r1, r2, r3}\n\t" TVM_EXT_ARMV6M_ADD_HALVES("r10", "r0", "r1")
                                      TVM_EXT_ARMV6M_ADD_HALVES(
                                          "r11", "r2", "r3") "subs r7, #16\n\t"
                                                             "stmia r7!, {r0, r1, r2, r3}\n\t"
                                                             "movs r7, #0\n"
                                                             "2:\n\t"
                                                             "ldrsb r7, [r6, r7]\n\t" /* the next run, or the end */
                                                             "subs r6, r6, r7\n\t"
                                                             "adds r7, #1\n\t"
                                                             "bmi 1b\n\t"
                                                             "movs r0, r6\n\t" TVM_EXT_ARMV6M_RESTORE);
}
#else
TVM_EXT_ARMV6M_SHARED const int8_t *tvm_ext_armv6m_product(uint32_t sums[TVM_EXT_ARMV6M_PIXELS], const uint32_t *cells,
                                                           const int8_t *weights)
{
    for (int32_t i = 0; i < TVM_EXT_ARMV6M_PIXELS; ++i) {
        sums[i] = 0;
    }
    for (int32_t taps = -1 - weights[0]; taps > 0; taps = -1 - weights[0]) {
        for (int32_t j = 0; j < TVM_EXT_ARMV6M_PAIRS; ++j) {
            uint32_t pair = 0x80008000u;
            for (int32_t t = 0; t < taps; ++t) {
                const uint32_t weight = (uint32_t)weights[1 + t];
                pair += cells[(t * TVM_EXT_ARMV6M_PAIRS) + j] * weight;
            }
            sums[2 * j] += pair & 0xffffu;
            sums[(2 * j) + 1] += pair >> 16;
        }
        cells += taps * TVM_EXT_ARMV6M_PAIRS;
        weights += taps + 1;
    }
    return weights + 1;
}
#endif

#endif
