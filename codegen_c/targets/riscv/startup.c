/* Reset and traps, in machine mode. Memory bounds and tables come from link.ld. */
#include <stdint.h>
#include <string.h>

#include "semihosting.h"

typedef struct {
    const uint8_t *load;
    uint8_t *begin;
    const uint8_t *end;
} copy_range;

typedef struct {
    uint8_t *begin;
    const uint8_t *end;
} zero_range;

extern const copy_range copy_table_begin[];
extern const copy_range copy_table_end[];
extern const zero_range zero_table_begin[];
extern const zero_range zero_table_end[];
extern const uint32_t stack_top[];
extern const uint32_t stack_limit[];

int main(void);
void reset_handler(void);
void trap_handler(void);
void start(void);
void report_trap(const uint32_t *stack_pointer);

/* First in memory. Assembly, because there is no stack yet. */
__attribute__((naked, section(".vectors"), used)) void reset_handler(void)
{
    __asm__ volatile("la sp, stack_top\n"
                     "la t0, trap_handler\n"
                     "csrw mtvec, t0\n"
#if defined(__riscv_flen)
                     "li t0, 0x2000\n" /* mstatus.FS: the FPU is on */
                     "csrs mstatus, t0\n"
#endif
                     "j start\n");
}

__attribute__((used)) void start(void)
{
    for (const copy_range *range = copy_table_begin; range < copy_table_end; range++) {
        (void)memcpy(range->begin, range->load, (size_t)(range->end - range->begin));
    }
    for (const zero_range *range = zero_table_begin; range < zero_table_end; range++) {
        (void)memset(range->begin, 0, (size_t)(range->end - range->begin));
    }
    semihosting_exit((uint32_t)main());
}

/* A fresh stack first: an overflow of it is one of the causes. Nothing returns from here. */
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
