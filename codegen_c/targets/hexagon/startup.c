/* Entry of a program that QEMU runs as a process. Its stack lies in the program, so that its use can be measured. */
#include <stdint.h>

#include "board.h"
#include "semihosting.h"

#define STACK_WORDS (BOARD_STACK_BYTES / 4u)

int main(void);
void reset_handler(void);
void start(char *const *arguments);
void run_on_own_stack(void);

char *const *process_arguments;
uint32_t stack_limit[STACK_WORDS] __attribute__((aligned(128)));

/* The system leaves the number of arguments where the stack pointer points, then the arguments. */
__attribute__((naked, used)) void reset_handler(void)
{
    __asm__ volatile("{ r0 = add(r29, #4)\n"
                     "  jump start }\n");
}

__attribute__((used, noreturn)) void run_on_own_stack(void)
{
    semihosting_exit((uint32_t)main());
}

__attribute__((used)) void start(char *const *arguments)
{
    process_arguments = arguments;
    __asm__ volatile("r29 = %0\n\tcall run_on_own_stack" : : "r"(&stack_limit[STACK_WORDS]) : "memory");
}
