/* CMSDK APB timer: 32 bits, counts down. Its status flag shows that it passed zero, but not how often. */
#ifndef TVM_EXT_TIMER_H
#define TVM_EXT_TIMER_H

#include <stdint.h>

#include "board.h"

typedef struct {
    volatile uint32_t control;
    volatile uint32_t value;
    volatile uint32_t reload;
    volatile uint32_t interrupt_status;
} timer_registers;

#define TIMER ((timer_registers *)BOARD_TIMER_ADDRESS)
#define TIMER_ENABLE 0x1u
#define TIMER_INTERRUPT_ENABLE 0x8u /* needed for the flag; the interrupt itself stays masked in the NVIC */

static inline void timer_restart(void)
{
    TIMER->control = 0u;
    TIMER->reload = UINT32_MAX;
    TIMER->value = UINT32_MAX;
    TIMER->interrupt_status = 1u;
    TIMER->control = TIMER_ENABLE | TIMER_INTERRUPT_ENABLE;
}

/* Low 32 bits of the ticks since the restart. */
static inline uint32_t timer_now(void)
{
    return UINT32_MAX - TIMER->value;
}

/* Ticks between two values of timer_now(); *wrapped is set if they are known modulo 2^32 only. */
static inline uint64_t timer_elapsed(uint32_t begin, uint32_t end, uint32_t *wrapped)
{
    *wrapped = TIMER->interrupt_status & 1u;
    return end - begin;
}

#endif
