/* The breakpoint between two marks by which RISC-V calls the debugger, or QEMU: none of the three compressed, all in
   one page. */
#ifndef TVM_EXT_SEMIHOSTING_CALL_H
#define TVM_EXT_SEMIHOSTING_CALL_H

#include <stdint.h>

/* Arguments come in a0 and a1, where the debugger looks for them. */
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
