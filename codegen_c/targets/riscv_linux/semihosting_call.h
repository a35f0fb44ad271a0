/* System calls of Linux on RISC-V, for programs that QEMU runs as a process. */
#ifndef TVM_EXT_SEMIHOSTING_CALL_H
#define TVM_EXT_SEMIHOSTING_CALL_H

#include <stdint.h>

/* The number is in a7, the arguments are in a0 to a3. */
static inline intptr_t linux_call(intptr_t number, intptr_t a, intptr_t b, intptr_t c, intptr_t d)
{
    register intptr_t a7 __asm__("a7") = number;
    register intptr_t a0 __asm__("a0") = a;
    register intptr_t a1 __asm__("a1") = b;
    register intptr_t a2 __asm__("a2") = c;
    register intptr_t a3 __asm__("a3") = d;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2), "r"(a3) : "memory");
    return a0;
}

#define LINUX_RUN_ON_STACK "mv sp, %0\n\tcall run_on_own_stack"

#include "linux_calls.h"

#endif
