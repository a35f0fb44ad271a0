/* Two functions of known length. They calibrate the overhead of a measured call and the time of an instruction. */
#ifndef TVM_EXT_MEASURE_KNOWN_H
#define TVM_EXT_MEASURE_KNOWN_H

#include <stdint.h>

#define MEASURE_EMPTY_INSTRUCTIONS 2u
#define MEASURE_LOOP_INSTRUCTIONS 2003u

/* Both return 0 and change only a0, so they can replace a run function with any parameters. */
__attribute__((naked, unused)) static void measure_empty(void)
{
    __asm__ volatile("li a0, 0\n"
                     "ret\n");
}

__attribute__((naked, unused)) static void measure_loop(void)
{
    __asm__ volatile("li a0, 1000\n"
                     "1: addi a0, a0, -1\n"
                     "bnez a0, 1b\n"
                     "li a0, 0\n"
                     "ret\n");
}

#endif
