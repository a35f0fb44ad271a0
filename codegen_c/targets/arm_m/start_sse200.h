/* Arm's SSE-200 holds its second processor at reset; this function starts it, with a vector table of its own. */
#ifndef TVM_EXT_START_H
#define TVM_EXT_START_H

#include <stdint.h>

#define SSE200_INITSVTOR1 (*(volatile uint32_t *)0x50021114u)
#define SSE200_CPUWAIT (*(volatile uint32_t *)0x50021118u)

/* `vectors` must be aligned to at least 128 bytes. */
static inline void start_processor(uint32_t number, const void *vectors)
{
    SSE200_INITSVTOR1 = (uint32_t)(uintptr_t)vectors;
    __asm__ volatile("dsb" : : : "memory");
    SSE200_CPUWAIT &= ~(1u << number);
}

#endif
