/* Start of a program with the C library of Linux, for targets without a startup.c of their own. The stack lies in the
 * program, so that its use can be measured. Each semihosting_call.h defines LINUX_RUN_ON_STACK: assembly that sets the
 * stack pointer to %0 and calls run_on_own_stack. */
#include <stdint.h>

#include "board.h"
#include "semihosting.h"

#define STACK_WORDS (BOARD_STACK_BYTES / 4u)

int main(void);
void run_on_own_stack(void);

char *const *process_arguments;
uint32_t stack_limit[STACK_WORDS] __attribute__((aligned(16)));

__attribute__((noreturn, used)) void run_on_own_stack(void)
{
    semihosting_exit((uint32_t)main());
}

/* The C library passes its arguments to constructors, once it is ready itself. */
__attribute__((constructor, used)) static void start(int count, char *const *arguments)
{
    (void)count;
    process_arguments = arguments;
    __asm__ volatile(LINUX_RUN_ON_STACK : : "r"(&stack_limit[STACK_WORDS]) : "memory");
}
