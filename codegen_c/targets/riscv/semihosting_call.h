/* The semihosting call of RISC-V: a breakpoint between two marker instructions. The debugger or QEMU recognizes it only
   if none of the three is compressed and all are in one page. */
#ifndef TVM_EXT_SEMIHOSTING_CALL_H
#define TVM_EXT_SEMIHOSTING_CALL_H

#include <stdint.h>

/* The debugger expects the arguments in a0 and a1. */
__attribute__((naked, noinline, aligned(16), unused)) static int32_t
semihosting_call(__attribute__((unused)) uint32_t operation, __attribute__((unused)) const void *argument)
{
    __asm__ volatile(".option push\n"
                     ".option norvc\n"
                     "slli zero, zero, 0x1f\n"
                     "ebreak\n"
                     "srai zero, zero, 7\n"
                     "ret\n"
                     ".option pop\n");
}

#endif
