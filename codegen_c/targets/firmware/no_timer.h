/* The timer of a program that cannot read one: all times are 0, which measure.h reports as unknown. */
#ifndef TVM_EXT_TIMER_H
#define TVM_EXT_TIMER_H

#include <stdint.h>

static inline void timer_restart(void)
{
}

static inline uint32_t timer_now(void)
{
    return 0u;
}

static inline uint64_t timer_elapsed(uint32_t begin, uint32_t end, uint32_t *wrapped)
{
    *wrapped = 0u;
    return (uint64_t)(end - begin);
}

#endif
