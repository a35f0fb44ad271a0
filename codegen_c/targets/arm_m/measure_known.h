/* Two functions of known length, from which the overhead of measuring a call and the time of an instruction follow. */
#ifndef TVM_EXT_MEASURE_KNOWN_H
#define TVM_EXT_MEASURE_KNOWN_H

#include <stdint.h>

#define MEASURE_EMPTY_INSTRUCTIONS 2u
#define MEASURE_LOOP_INSTRUCTIONS 2003u

/* Both return 0 and change r0 and the flags only, so they can replace a run function with any parameters. */
__attribute__((naked, unused)) static void measure_empty(void)
{
    __asm__ volatile(".syntax unified\n"
                     "movs r0, #0\n"
                     "bx lr\n");
}

__attribute__((naked, unused)) static void measure_loop(void)
{
    __asm__ volatile(".syntax unified\n"
                     "ldr r0, =1000\n"
                     "1: subs r0, r0, #1\n"
                     "bne 1b\n"
                     "movs r0, #0\n"
                     "bx lr\n");
}

#endif
