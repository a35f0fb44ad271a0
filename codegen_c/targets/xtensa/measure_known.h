/* Two functions of known length. They calibrate the overhead of a measured call and the time of an instruction. */
#ifndef TVM_EXT_MEASURE_KNOWN_H
#define TVM_EXT_MEASURE_KNOWN_H

#include <stdint.h>

#define MEASURE_EMPTY_INSTRUCTIONS 2u
#define MEASURE_LOOP_INSTRUCTIONS 2003u

/* Both return 0 and change only a2, so they can replace a run function with any parameters. They are assembly outside
   of C functions, because this compiler knows no naked functions. */
void measure_empty(void);
void measure_loop(void);

__asm__(".section .text.measure_known, \"ax\"\n"
        ".align 4\n"
        "measure_empty:\n"
        "    movi a2, 0\n"
        "    ret\n"
        ".align 4\n"
        "measure_loop:\n"
        "    movi a2, 1000\n"
        "1:  addi a2, a2, -1\n"
        "    bnez a2, 1b\n"
        "    movi a2, 0\n"
        "    ret\n"
        ".text\n");

#endif
