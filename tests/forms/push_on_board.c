/* The interrupt handler of a timer pushes rows, the run pulls them: the same bytes as a run that asks for its rows. */
#include "kws_push.h"
#include "case.h"
#include "semihosting.h"

#define WORD(address) (*(volatile uint32_t *)(address))

static const CASE_TYPE samples[CASE_INPUTS * CASE_ROWS * CASE_ROW_SIZE] = {
#include "samples.h"
};
static CASE_OUT_TYPE results[CASE_INPUTS * CASE_OUT_ROWS * CASE_OUT_ROW_SIZE];
static CASE_OUT_TYPE expected[CASE_INPUTS * CASE_OUT_ROWS * CASE_OUT_ROW_SIZE];
static _Alignas(256) uint32_t vectors[64];
static volatile uint32_t at, completed, refused;
static int32_t input;

static int32_t read_rows(void *context, CASE_TYPE *rows, int32_t row_begin, int32_t row_end)
{
    (void)context;
    (void)memcpy(rows, &samples[(input * CASE_ROWS + row_begin) * CASE_ROW_SIZE],
                 (size_t)(row_end - row_begin) * CASE_ROW_SIZE * sizeof *rows);
    return 0;
}

static int32_t write_rows(void *context, const CASE_OUT_TYPE *rows, int32_t row_begin, int32_t row_end)
{
    CASE_OUT_TYPE *const to = context;
    (void)memcpy(&to[(input * CASE_OUT_ROWS + row_begin) * CASE_OUT_ROW_SIZE], rows,
                 (size_t)(row_end - row_begin) * CASE_OUT_ROW_SIZE * sizeof *rows);
    return 0;
}

static void handler(void)
{
    if (at == CASE_INPUTS * CASE_ROWS) {
        return;
    }
    const int32_t said = kws_push_rows(&samples[at * CASE_ROW_SIZE], 1u);
    if (said == kws_push_full) {
        refused++;
        return;
    }
    completed += said == kws_push_complete ? 1u : 0u;
    at++;
}

static int run_all(const kws_io *io)
{
    for (input = 0; input < CASE_INPUTS; ++input) {
        if (kws_run(io) != 0) {
            return 1;
        }
    }
    return 0;
}

int main(void)
{
    const kws_io pulled = {expected, read_rows, write_rows};
    const kws_io pushed = {results, kws_read_pushed, write_rows};
    vectors[15] = (uint32_t)(uintptr_t)handler;
    WORD(0xE000ED08u) = (uint32_t)(uintptr_t)vectors; /* VTOR */
    int failed = run_all(&pulled);
    WORD(0xE000E014u) = 2000u; /* SysTick, this many cycles between two interrupts */
    WORD(0xE000E018u) = 0u;
    WORD(0xE000E010u) = 7u;
    failed |= run_all(&pushed);
    failed |= memcmp(results, expected, sizeof results) != 0 || completed != CASE_INPUTS;
    semihosting_print(failed ? "FAIL\n" : "PASS\n");
    return failed;
}
