/* System calls of Linux on Hexagon, for programs that QEMU runs as a process. */
#ifndef TVM_EXT_SEMIHOSTING_CALL_H
#define TVM_EXT_SEMIHOSTING_CALL_H

#include <stdint.h>

#define HEXAGON_LLSEEK 62

/* The number is in r6, the arguments are in r0 to r4. */
static inline intptr_t hexagon_trap(intptr_t number, intptr_t a, intptr_t b, intptr_t c, intptr_t d, intptr_t e)
{
    register intptr_t r6 __asm__("r6") = number;
    register intptr_t r0 __asm__("r0") = a;
    register intptr_t r1 __asm__("r1") = b;
    register intptr_t r2 __asm__("r2") = c;
    register intptr_t r3 __asm__("r3") = d;
    register intptr_t r4 __asm__("r4") = e;
    __asm__ volatile("trap0(#1)" : "+r"(r0) : "r"(r6), "r"(r1), "r"(r2), "r"(r3), "r"(r4) : "memory");
    return r0;
}

/* On a 32-bit system, lseek takes the upper and the lower word of the offset, and an address for the result.
 */
static inline intptr_t linux_call(intptr_t number, intptr_t a, intptr_t b, intptr_t c, intptr_t d)
{
    if (number == HEXAGON_LLSEEK) {
        int64_t position = 0;
        const intptr_t status = hexagon_trap(number, a, b >> 31, b, (intptr_t)&position, c);
        return status < 0 ? status : (intptr_t)position;
    }
    return hexagon_trap(number, a, b, c, d, 0);
}

#include "linux_calls.h"

#endif
