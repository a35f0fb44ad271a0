/* Reset and exception vectors. The bounds of the stack come from link.ld. */
#include <stdint.h>

#include "program_start.h"
#include "semihosting.h"

extern const uint32_t stack_top[];
extern const uint32_t stack_limit[];

void start(void);
void report_exception(const uint32_t *stack_pointer);

/* The core starts at the first byte. The exceptions have fixed distances from VECBASE, which is set to the same
   address. Assembly, because literals must not lie before the first instruction, and because there is no stack yet. */
__asm__(".section .vectors, \"ax\"\n"
        ".global reset_handler\n"
        "reset_handler:\n"
        "    j reset\n"
        "    .org 0x10\n"
        "debug_vector: j exception\n"
        "    .org 0x20\n"
        "nmi_vector: j exception\n"
        "    .org 0x30\n"
        "kernel_vector: j exception\n"
        "    .org 0x50\n"
        "user_vector: j exception\n"
        "    .org 0x70\n"
        "double_vector: j exception\n"
        "    .align 4\n"
        "    .literal_position\n"
        "    .align 4\n"
        "reset:\n"
        "    movi a2, reset_handler\n"
        "    wsr.vecbase a2\n"
        "    movi a2, 0\n" /* PS: no pending exception, level 0; the user's register names stay valid */
        "    wsr.ps a2\n"
        "    rsync\n"
        "    movi a1, stack_top\n"
        "    movi a2, start\n"
        "    jx a2\n"
        "    .align 4\n"
        /* Reset the stack first, because its overflow may have caused the exception. Nothing returns from here. */
        "exception:\n"
        "    mov a2, a1\n"
        "    movi a3, 0\n"
        "    wsr.ps a3\n"
        "    rsync\n"
        "    movi a1, stack_top\n"
        "    movi a3, report_exception\n"
        "    jx a3\n"
        "    .text\n");

__attribute__((used)) void start(void)
{
    run_program();
}

static uint32_t exception_register(uint32_t number)
{
    uint32_t value;
    switch (number) {
    case 0u:
        __asm__ volatile("rsr.exccause %0" : "=r"(value));
        return value;
    case 1u:
        __asm__ volatile("rsr.epc1 %0" : "=r"(value));
        return value;
    default:
        __asm__ volatile("rsr.excvaddr %0" : "=r"(value));
        return value;
    }
}

__attribute__((used)) void report_exception(const uint32_t *stack_pointer)
{
    static const char *const names[] = {"exccause=", " epc1=", " excvaddr="};
    semihosting_print("FAULT ");
    for (uint32_t number = 0u; number < 3u; number++) {
        semihosting_print(names[number]);
        semihosting_print_hex(exception_register(number));
    }
    if (stack_pointer < stack_limit || stack_pointer > stack_top) {
        semihosting_print(" (stack pointer outside of the stack)");
    }
    semihosting_print("\n");
    semihosting_exit(1u);
}
