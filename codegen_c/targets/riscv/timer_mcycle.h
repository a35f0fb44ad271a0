/* The core's cycle counter: 64 bits, counting up. Under QEMU's -icount it counts nanoseconds. */
#ifndef TVM_EXT_TIMER_H
#define TVM_EXT_TIMER_H

#include <stdint.h>

static inline void timer_restart(void)
{
    __asm__ volatile("csrw mcycle, zero\n"
                     "csrw mcycleh, zero\n"
                     "csrw mcycle, zero\n");
}

/* Returns the low 32 bits of the ticks since the restart. */
static inline uint32_t timer_now(void)
{
    uint32_t low;
    __asm__ volatile("csrr %0, mcycle" : "=r"(low));
    return low;
}

/* Returns the ticks between two values of timer_now(), the first read right after the restart. It never wraps. */
static inline uint64_t timer_elapsed(uint32_t begin, uint32_t end, uint32_t *wrapped)
{
    uint32_t high;
    uint32_t low;
    uint32_t again;
    do {
        __asm__ volatile("csrr %0, mcycleh\n"
                         "csrr %1, mcycle\n"
                         "csrr %2, mcycleh\n"
                         : "=r"(high), "=r"(low), "=r"(again));
    } while (high != again);
    *wrapped = 0u;
    /* The low word may have wrapped since `end` was read. */
    high -= low < end ? 1u : 0u;
    return (((uint64_t)high << 32) | end) - begin;
}

#endif
