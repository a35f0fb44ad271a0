/* Requantization of the sums of four channels in assembly, as in tvm_ext_armv6m_requantize.h in 32 bits. */
#ifndef TVM_EXT_ARMV6M_FOURS_H
#define TVM_EXT_ARMV6M_FOURS_H

#include "tvm_ext_armv6m.h"

#if TVM_EXT_ARMV6M

/* Computes element I of SUM and stores it at r1. r2: factors, r3: fraction bits, lr: as many ones. A distance out of
 * range jumps ahead to TVM_EXT_ARMV6M_FOUR_LIMIT. */
#define TVM_EXT_ARMV6M_FOUR_ELEMENT(I, SUM, MORE) \
    "ldmia r2!, {r4, r5, r6, r7}\n\t"             \
    "mov r0, " SUM "\n\t"                         \
    "subs r0, r0, r4\n\t"                         \
    "cmp r0, r5\n\t"                              \
    "bhi 1" I "f\n"                               \
    "2" I ":\n\t"                                 \
    "movs r4, r6\n\t"                             \
    "lsrs r4, r3\n\t"                             \
    "mov r5, lr\n\t"  \
    "ands r6, r5\n\t"  \
    "muls r4, r0\n\t"                             \
    "muls r6, r0\n\t"                             \
    "lsrs r6, r3\n\t"                             \
    "adds r4, r4, r6\n\t"                         \
    "adds r4, r4, r7\n\t" MORE(I) "lsrs r4, r4, #24\n\t" \
    "strb r4, [r1, #" I "]\n\t"

/* Limits a distance to the span in r5, or to 0 if it is negative. */
#define TVM_EXT_ARMV6M_FOUR_LIMIT(I) \
    "1" I ":\n\t"                    \
    "lsls r4, r0, #1\n\t"            \
    "movs r0, #0\n\t"                \
    "bcs 2" I "b\n\t"                \
    "movs r0, r5\n\t"                \
    "b 2" I "b\n"

/* Reads the second constant and adds it at distances from which it holds. */
#define TVM_EXT_ARMV6M_FOUR_MORE(I) \
    "ldmia r2!, {r5, r6}\n\t"       \
    "cmp r0, r5\n\t"                \
    "blo 3" I "f\n\t"               \
    "adds r4, r4, r6\n"             \
    "3" I ":\n\t"
#define TVM_EXT_ARMV6M_FOUR_NO_MORE(I) ""

/* Stores the elements of the sums in r8 to r11 at r1. It changes r0 and r4 to r7, and advances r2. */
#define TVM_EXT_ARMV6M_FOUR_ELEMENTS(MORE)                                                          \
    TVM_EXT_ARMV6M_FOUR_ELEMENT("0", "r8", MORE) TVM_EXT_ARMV6M_FOUR_ELEMENT("1", "r9", MORE)       \
        TVM_EXT_ARMV6M_FOUR_ELEMENT("2", "r10", MORE) TVM_EXT_ARMV6M_FOUR_ELEMENT("3", "r11", MORE) \
    "b 40f\n" TVM_EXT_ARMV6M_FOUR_LIMIT("0") TVM_EXT_ARMV6M_FOUR_LIMIT("1")                         \
        TVM_EXT_ARMV6M_FOUR_LIMIT("2") TVM_EXT_ARMV6M_FOUR_LIMIT("3") "40:\n\t"

/* Operands in the order in which the assembly of depthwise convolutions and dense layers reads them. The elements are
 * those of a pixel, given by the addresses of its taps, or adjacent elements of a row. */
typedef struct {
    const void *elements;
    const int8_t *weights;
    uint8_t *output;
    const int32_t *factors;
    int32_t channels; /* a multiple of four */
    int32_t fraction_bits;
    int32_t ones; /* elements, or taps after the first one, that are read one by one; the others by fours */
    int32_t groups;
    uint32_t excess; /* excess of the sums of the first three of four channels */
} tvm_ext_armv6m_fours;

/* Assembly that copies r0's structure to 36 bytes of the stack, in the same order, and forms the ones of lr. */
#define TVM_EXT_ARMV6M_COPY_FOURS     \
    "sub sp, #36\n\t"                 \
    "mov r1, sp\n\t"                  \
    "ldmia r0!, {r2, r3, r4, r5}\n\t" \
    "stmia r1!, {r2, r3, r4, r5}\n\t" \
    "ldmia r0!, {r2, r3, r4, r5, r6}\n\t" \
    "stmia r1!, {r2, r3, r4, r5, r6}\n\t" \
    "movs r4, #1\n\t"               \
    "lsls r4, r3\n\t"               \
    "subs r4, #1\n\t"               \
    "mov lr, r4\n\t"

#endif

#endif
