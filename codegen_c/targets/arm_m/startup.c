/* Vector table, reset, faults. Bounds of the stack come from link.ld. */
#include <stdint.h>

#include "program_start.h"
#include "semihosting.h"

typedef struct {
    const uint32_t *stack_top;
    void (*handlers[15])(void);
} vector_table;

extern const uint32_t stack_top[];
extern const uint32_t stack_limit[];

void reset_handler(void);
void start(void);
void fault_handler(void);
void report_fault(const uint32_t *frame, uint32_t exception);

__attribute__((section(".vectors"), used)) static const vector_table vectors = {
    stack_top,
    {reset_handler, fault_handler, fault_handler, fault_handler, fault_handler, fault_handler, fault_handler,
     fault_handler, fault_handler, fault_handler, fault_handler, fault_handler, fault_handler, fault_handler,
     fault_handler},
};

/* Assembly, because the compiler may use float and vector registers in any C function. */
__attribute__((naked)) void reset_handler(void)
{
    __asm__ volatile(
#if __ARM_ARCH_ISA_THUMB >= 2
        "ldr r0, =0xE000ED88\n" /* CPACR: full access to the FPU and MVE */
        "ldr r1, [r0]\n"
        "orr r1, r1, #0x00F00000\n"
        "str r1, [r0]\n"
        "dsb\n"
        "isb\n"
#endif
        "ldr r0, =stack_top\n"
        "mov sp, r0\n"
#if __ARM_ARCH >= 8
        "ldr r0, =stack_limit\n"
        "msr msplim, r0\n"
#endif
        "ldr r0, =start\n"
        "bx r0\n");
}

__attribute__((used)) void start(void)
{
    run_program();
}

/* A fresh stack first, because a stack overflow is one of the causes. The handler does not return. */
__attribute__((naked)) void fault_handler(void)
{
    __asm__ volatile("mrs r0, msp\n"
                     "mrs r1, ipsr\n"
                     "ldr r2, =stack_top\n"
                     "mov sp, r2\n"
                     "ldr r2, =report_fault\n"
                     "bx r2\n");
}

__attribute__((used)) void report_fault(const uint32_t *frame, uint32_t exception)
{
    static const char *const names[] = {"HardFault", "MemManage", "BusFault", "UsageFault", "SecureFault"};
    const uint32_t index = exception - 3u;
    semihosting_print("FAULT ");
    semihosting_print(index < sizeof names / sizeof names[0] ? names[index] : "unexpected exception");
    if (frame >= stack_limit && frame + 8 <= stack_top) {
        semihosting_print(" pc=");
        semihosting_print_hex(frame[6]);
    } else {
        semihosting_print(" (stack pointer outside of the stack)");
    }
#if __ARM_ARCH_ISA_THUMB >= 2
    semihosting_print(" cfsr=");
    semihosting_print_hex(*(volatile const uint32_t *)0xE000ED28u);
    semihosting_print(" bfar=");
    semihosting_print_hex(*(volatile const uint32_t *)0xE000ED38u);
#endif
    semihosting_print("\n");
    semihosting_exit(1u);
}
