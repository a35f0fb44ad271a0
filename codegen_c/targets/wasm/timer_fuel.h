/* The runtime's counter of executed instructions, which wasmtime calls fuel. In a runtime without one it stays 0. */
#ifndef TVM_EXT_TIMER_H
#define TVM_EXT_TIMER_H

#include <stdint.h>

__attribute__((import_module("tvm_ext"), import_name("instructions"))) extern uint64_t timer_instructions(void);

/* The counter at the restart, and when it was read last. */
static uint64_t timer_started;
static uint64_t timer_read;

static inline void timer_restart(void)
{
    timer_started = timer_instructions();
}

/* Returns the low 32 bits of the counter. */
static inline uint32_t timer_now(void)
{
    timer_read = timer_instructions();
    return (uint32_t)timer_read;
}

/* Returns the instructions between two values of timer_now(): the first after the restart, and the last. */
static inline uint64_t timer_elapsed(uint32_t begin, uint32_t end, uint32_t *wrapped)
{
    (void)end;
    *wrapped = 0u;
    return timer_read - timer_started - (uint32_t)(begin - (uint32_t)timer_started);
}

#endif
