/* Conversion of timer ticks to executed instructions, exact to the instruction, under QEMU's -icount shift=S. The
 * caller
   of QEMU chooses S.

   An instruction takes 2^S ns, a tick BOARD_TICK_NUMERATOR / BOARD_TICK_DENOMINATOR ns. If an instruction takes more
   than two ticks, each difference of two timer values belongs to exactly one number of instructions. S is determined by
   measuring a loop of known length. */
#ifndef TVM_EXT_MEASURE_H
#define TVM_EXT_MEASURE_H

#include <stdint.h>

#include "board.h"
#if !defined(BOARD_TICKS_ARE_INSTRUCTIONS)
#include "measure_known.h"
#endif

#define MEASURE_MAX_SHIFT 10u
#define MEASURE_UNKNOWN UINT64_MAX
#define STACK_PAINT 0xA5C3F00Du

typedef struct {
    uint64_t ticks;
    uint32_t wrapped;     /* ticks are only known modulo 2^32 */
    uint32_t stack_bytes; /* high-water mark below the caller's stack pointer */
    int32_t status;
} measurement;

#if defined(BOARD_TICKS_ARE_INSTRUCTIONS)
/* Returns the ticks as instructions, or MEASURE_UNKNOWN if the program has no timer. */
static inline uint64_t measure_instructions(measurement subject, measurement empty, measurement loop)
{
    (void)empty;
    (void)loop;
    return subject.ticks == 0u || subject.wrapped != 0u ? MEASURE_UNKNOWN : subject.ticks;
}
#else
/* Returns the instructions that correspond to the ticks at a given shift, rounded to nearest. */
static inline uint64_t measure_instructions_at(uint64_t ticks, uint32_t shift)
{
    const uint64_t divisor = (uint64_t)BOARD_TICK_DENOMINATOR << shift;
    return (ticks * BOARD_TICK_NUMERATOR + divisor / 2u) / divisor;
}

/* Returns the instructions executed from the subject's first to its last one, inclusive, or MEASURE_UNKNOWN if QEMU's
   clock does not resolve them. empty, loop: measurements of the functions of measure_known.h. */
static inline uint64_t measure_instructions(measurement subject, measurement empty, measurement loop)
{
    for (uint32_t shift = 0u; shift <= MEASURE_MAX_SHIFT; shift++) {
        const uint64_t around_empty = measure_instructions_at(empty.ticks, shift);
        const uint64_t around_loop = measure_instructions_at(loop.ticks, shift);
        const uint64_t known = MEASURE_LOOP_INSTRUCTIONS - MEASURE_EMPTY_INSTRUCTIONS;
        const uint64_t denominator = (uint64_t)BOARD_TICK_DENOMINATOR << shift;
        if (denominator > 2u * BOARD_TICK_NUMERATOR && around_loop - around_empty == known && subject.wrapped == 0u) {
            return measure_instructions_at(subject.ticks, shift) - around_empty + MEASURE_EMPTY_INSTRUCTIONS;
        }
    }
    return MEASURE_UNKNOWN;
}
#endif

#endif
