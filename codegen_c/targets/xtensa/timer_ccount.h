/* The core's cycle counter: 32 bits, counting up. Under QEMU's -icount it counts time. CCOMPARE0 tells where it wraps.
 */
#ifndef TVM_EXT_TIMER_H
#define TVM_EXT_TIMER_H

#include <stdint.h>

#define TIMER_REACHED (UINT32_C(1) << 6) /* bit of the interrupt of CCOMPARE0 */

static inline void timer_restart(void)
{
    __asm__ volatile("wsr.ccount %0\n"
                     "wsr.ccompare0 %1\n"
                     "esync\n"
                     "wsr.ccount %0\n"
                     "esync\n"
                     :
                     : "r"(0u), "r"(UINT32_MAX));
}

/* Returns the ticks since the restart, modulo 2^32. */
static inline uint32_t timer_now(void)
{
    uint32_t ticks;
    __asm__ volatile("rsr.ccount %0" : "=r"(ticks));
    return ticks;
}

/* Returns the ticks between two values of timer_now(); *wrapped is set if they are known modulo 2^32 only. */
static inline uint64_t timer_elapsed(uint32_t begin, uint32_t end, uint32_t *wrapped)
{
    uint32_t pending;
    __asm__ volatile("rsr.interrupt %0" : "=r"(pending));
    *wrapped = (pending & TIMER_REACHED) != 0u ? 1u : 0u;
    return end - begin;
}

#endif
