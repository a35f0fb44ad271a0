/* TIMER of Nordic's nRF51: 32 bits at 16 MHz, counts up, read by capture. Its compare event shows that it passed its
   end, but not how often. */
#ifndef TVM_EXT_TIMER_H
#define TVM_EXT_TIMER_H

#include <stdint.h>

#include "board.h"

#define TIMER_REGISTER(offset) (*(volatile uint32_t *)(BOARD_TIMER_ADDRESS + (offset)))
#define TIMER_START TIMER_REGISTER(0x000u)
#define TIMER_STOP TIMER_REGISTER(0x004u)
#define TIMER_CLEAR TIMER_REGISTER(0x00Cu)
#define TIMER_CAPTURE_0 TIMER_REGISTER(0x040u)
#define TIMER_REACHED_1 TIMER_REGISTER(0x144u)
#define TIMER_MODE TIMER_REGISTER(0x504u)
#define TIMER_BITS TIMER_REGISTER(0x508u)
#define TIMER_PRESCALER TIMER_REGISTER(0x510u)
#define TIMER_VALUE_0 TIMER_REGISTER(0x540u)
#define TIMER_VALUE_1 TIMER_REGISTER(0x544u)
#define TIMER_COUNTS_TIME 0u
#define TIMER_HAS_32_BITS 3u

static inline void timer_restart(void)
{
    TIMER_STOP = 1u;
    TIMER_MODE = TIMER_COUNTS_TIME;
    TIMER_BITS = TIMER_HAS_32_BITS;
    TIMER_PRESCALER = 0u;
    TIMER_CLEAR = 1u;
    TIMER_VALUE_1 = UINT32_MAX;
    TIMER_REACHED_1 = 0u;
    TIMER_START = 1u;
}

/* Low 32 bits of the ticks since the restart. */
static inline uint32_t timer_now(void)
{
    TIMER_CAPTURE_0 = 1u;
    return TIMER_VALUE_0;
}

/* Ticks between two values of timer_now(); *wrapped is set if they are known modulo 2^32 only. */
static inline uint64_t timer_elapsed(uint32_t begin, uint32_t end, uint32_t *wrapped)
{
    *wrapped = TIMER_REACHED_1;
    return end - begin;
}

#endif
