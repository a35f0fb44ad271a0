/* Arm system counter, control frame: 64 bits, counts up. */
#ifndef TVM_EXT_TIMER_H
#define TVM_EXT_TIMER_H

#include <stdint.h>

#include "board.h"

typedef struct {
    volatile uint32_t control;
    volatile uint32_t status;
    volatile uint32_t value_low;
    volatile uint32_t value_high;
} timer_registers;

#define TIMER ((timer_registers *)BOARD_TIMER_ADDRESS)
#define TIMER_ENABLE 0x1u

static inline void timer_restart(void)
{
    TIMER->control = 0u;
    TIMER->value_low = 0u;
    TIMER->value_high = 0u;
    TIMER->control = TIMER_ENABLE;
}

/* Low 32 bits of the ticks since the restart. */
static inline uint32_t timer_now(void)
{
    return TIMER->value_low;
}

/* Ticks between two values of timer_now(), the first of them read right after the restart; never wrapped. */
static inline uint64_t timer_elapsed(uint32_t begin, uint32_t end, uint32_t *wrapped)
{
    uint32_t high = TIMER->value_high;
    uint32_t low = TIMER->value_low;
    while (high != TIMER->value_high) {
        high = TIMER->value_high;
        low = TIMER->value_low;
    }
    *wrapped = 0u;
    /* The low word may have passed zero after `end` was read. */
    high -= low < end ? 1u : 0u;
    return (((uint64_t)high << 32) | end) - begin;
}

#endif
