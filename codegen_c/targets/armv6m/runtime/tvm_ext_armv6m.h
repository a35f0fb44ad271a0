/* Instructions of Armv6-M, and their equivalents in plain C for other processors. */
#ifndef TVM_EXT_ARMV6M_H
#define TVM_EXT_ARMV6M_H

#include <stdint.h>

#include "tvm_ext_kernels.h"

/* C11 leaves the right shift of negative numbers to the compiler; this code needs it to keep the sign. */
_Static_assert((-3 >> 1) == -2, "right shifts of negative numbers must keep the sign");

#if defined(__thumb__) && !defined(__thumb2__) && defined(__GNUC__) && !defined(__ARM_BIG_ENDIAN)
#define TVM_EXT_ARMV6M 1
#else
#define TVM_EXT_ARMV6M 0
#endif

/* Linkage of functions with one copy for all layers; and of functions that consist of assembly only, which find
   their parameters as the ABI defines. */
#if TVM_EXT_ARMV6M
#define TVM_EXT_ARMV6M_SHARED static __attribute__((noinline, unused))
#define TVM_EXT_ARMV6M_ASSEMBLY static __attribute__((noinline, unused, naked))
#define TVM_EXT_ARMV6M_IN __attribute__((unused)) /* a parameter that only assembly reads */
#else
#define TVM_EXT_ARMV6M_SHARED static inline
#endif

#define TVM_EXT_ARMV6M_WIDTH 4 /* channels that kernels without products of pairs compute together */

/* Assembly that stores the sums in r8 to r11 at r12. */
#define TVM_EXT_ARMV6M_STORE_SUMS \
    "mov r0, r12\n\t"             \
    "mov r1, r8\n\t"              \
    "mov r2, r9\n\t"              \
    "mov r3, r10\n\t"             \
    "mov r4, r11\n\t"             \
    "stmia r0!, {r1, r2, r3, r4}\n\t"

/* Assembly that saves the registers a function must not change, 36 bytes on the stack, and restores them. */
#define TVM_EXT_ARMV6M_SAVE        \
    ".syntax unified\n\t"          \
    "push {r4, r5, r6, r7, lr}\n\t" \
    "mov r4, r8\n\t"               \
    "mov r5, r9\n\t"               \
    "mov r6, r10\n\t"              \
    "mov r7, r11\n\t"              \
    "push {r4, r5, r6, r7}\n\t"
#define TVM_EXT_ARMV6M_RESTORE    \
    "pop {r4, r5, r6, r7}\n\t"    \
    "mov r8, r4\n\t"              \
    "mov r9, r5\n\t"              \
    "mov r10, r6\n\t"             \
    "mov r11, r7\n\t"             \
    "pop {r4, r5, r6, r7, pc}\n\t"

#endif
