/* Program start on a board: initialize memory as C requires, then call main. Bounds and tables come from link.ld. */
#ifndef PROGRAM_START_H
#define PROGRAM_START_H

#include <stdint.h>
#include <string.h>

#include "semihosting.h"

typedef struct {
    const uint8_t *load;
    uint8_t *begin;
    const uint8_t *end;
} copy_range;

typedef struct {
    uint8_t *begin;
    const uint8_t *end;
} zero_range;

extern const copy_range copy_table_begin[];
extern const copy_range copy_table_end[];
extern const zero_range zero_table_begin[];
extern const zero_range zero_table_end[];

int main(void);

/* Runs the program; the reset handler calls it once there is a stack. It never returns. */
static inline void run_program(void)
{
    for (const copy_range *range = copy_table_begin; range < copy_table_end; range++) {
        (void)memcpy(range->begin, range->load, (size_t)(range->end - range->begin));
    }
    for (const zero_range *range = zero_table_begin; range < zero_table_end; range++) {
        (void)memset(range->begin, 0, (size_t)(range->end - range->begin));
    }
    semihosting_exit((uint32_t)main());
}

#endif
