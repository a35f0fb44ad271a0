/* System calls of Linux on AArch64, for programs that QEMU runs as a process. */
#ifndef TVM_EXT_SEMIHOSTING_CALL_H
#define TVM_EXT_SEMIHOSTING_CALL_H

#include <stdint.h>

/* The number is in x8, the arguments are in x0 to x3. */
static inline intptr_t linux_call(intptr_t number, intptr_t a, intptr_t b, intptr_t c, intptr_t d)
{
    register intptr_t x8 __asm__("x8") = number;
    register intptr_t x0 __asm__("x0") = a;
    register intptr_t x1 __asm__("x1") = b;
    register intptr_t x2 __asm__("x2") = c;
    register intptr_t x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}

#define LINUX_RUN_ON_STACK "mov sp, %0\n\tbl run_on_own_stack"

#include "linux_calls.h"

#endif
