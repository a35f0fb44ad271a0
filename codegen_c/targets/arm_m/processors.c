/* Processors beside the first: vector tables and reset. Each calls its function of the model in an endless loop. */
#include "processors.h"

#include <stdint.h>

#include "start.h"

void fault_handler(void);

/* Assembly, because the compiler may use float and vector registers in any C function. Faults are reported on the
   first processor's stack: the handler does not return. */
#define DEFINE(number, name, serve)                                                                                    \
    extern const uint32_t stack_top_##name[];                                                                          \
    void reset_##name(void);                                                                                           \
    void run_##name(void);                                                                                             \
    __attribute__((naked)) void reset_##name(void)                                                                     \
    {                                                                                                                  \
        __asm__ volatile("ldr r0, =0xE000ED88\n" /* CPACR: full access to the FPU and MVE */                           \
                         "ldr r1, [r0]\n"                                                                              \
                         "orr r1, r1, #0x00F00000\n"                                                                   \
                         "str r1, [r0]\n"                                                                              \
                         "dsb\n"                                                                                       \
                         "isb\n"                                                                                       \
                         "ldr r0, =stack_limit_" #name "\n"                                                            \
                         "msr msplim, r0\n"                                                                            \
                         "b run_" #name "\n");                                                                         \
    }                                                                                                                  \
    __attribute__((used)) void run_##name(void)                                                                        \
    {                                                                                                                  \
        for (;;) {                                                                                                     \
            serve();                                                                                                   \
        }                                                                                                              \
    }                                                                                                                  \
    __attribute__((section(".vectors_" #name), used)) static const struct {                                            \
        const uint32_t *stack_top;                                                                                     \
        void (*handlers[15])(void);                                                                                    \
    } vectors_##name = {                                                                                               \
        stack_top_##name,                                                                                              \
        {reset_##name, fault_handler, fault_handler, fault_handler, fault_handler, fault_handler, fault_handler,       \
         fault_handler, fault_handler, fault_handler, fault_handler, fault_handler, fault_handler, fault_handler,      \
         fault_handler},                                                                                               \
    };

#define START(number, name, serve) start_processor(number##u, &vectors_##name);

PROCESSORS(DEFINE)

void start_processors(void)
{
    PROCESSORS(START)
}
