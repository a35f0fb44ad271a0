/* Reset and trap handlers, in machine mode. The bounds of the stack come from link.ld. */
#include <stdint.h>

#include "program_start.h"
#include "semihosting.h"

extern const uint32_t stack_top[];
extern const uint32_t stack_limit[];

void reset_handler(void);
void start(void);
void trap_handler(void);
void report_trap(const uint32_t *stack_pointer);

/* First in memory. Assembly, because there is no stack yet. */
__attribute__((naked, section(".vectors"), used)) void reset_handler(void)
{
    __asm__ volatile("la sp, stack_top\n"
                     "la t0, trap_handler\n"
                     "csrw mtvec, t0\n"
#if defined(__riscv_flen)
                     "li t0, 0x2000\n" /* mstatus.FS: enable the FPU */
                     "csrs mstatus, t0\n"
#endif
#if defined(__riscv_vector) || defined(TVM_EXT_RVV)
                     "li t0, 0x600\n" /* mstatus.VS: enable the vector unit */
                     "csrs mstatus, t0\n"
#endif
                     "j start\n");
}

__attribute__((used)) void start(void)
{
    run_program();
}

/* Reset the stack first, because its overflow may have caused the trap. Nothing returns from here. */
__attribute__((naked, aligned(4))) void trap_handler(void)
{
    __asm__ volatile("mv a0, sp\n"
                     "la sp, stack_top\n"
                     "j report_trap\n");
}

static uint32_t trap_register(uint32_t number)
{
    uint32_t value;
    switch (number) {
    case 0u:
        __asm__ volatile("csrr %0, mcause" : "=r"(value));
        return value;
    case 1u:
        __asm__ volatile("csrr %0, mepc" : "=r"(value));
        return value;
    default:
        __asm__ volatile("csrr %0, mtval" : "=r"(value));
        return value;
    }
}

__attribute__((used)) void report_trap(const uint32_t *stack_pointer)
{
    static const char *const names[] = {"mcause=", " mepc=", " mtval="};
    semihosting_print("FAULT ");
    for (uint32_t number = 0u; number < 3u; number++) {
        semihosting_print(names[number]);
        semihosting_print_hex(trap_register(number));
    }
    if (stack_pointer < stack_limit || stack_pointer > stack_top) {
        semihosting_print(" (stack pointer outside of the stack)");
    }
    semihosting_print("\n");
    semihosting_exit(1u);
}
