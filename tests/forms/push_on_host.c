/* A thread pushes rows in uneven numbers while the run pulls them: the outputs of all inputs, to out.bin. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "kws_push.h"
#include "case.h"

static CASE_TYPE samples[CASE_INPUTS * CASE_ROWS * CASE_ROW_SIZE];
static FILE *out;
static int32_t completed;

static int32_t write_rows(void *context, const CASE_OUT_TYPE *rows, int32_t row_begin, int32_t row_end)
{
    (void)context;
    return fwrite(rows, sizeof *rows * CASE_OUT_ROW_SIZE, (size_t)(row_end - row_begin), out) == 0;
}

static void *produce(void *unused)
{
    uint32_t at = 0, chunk = 1;
    while (at < CASE_INPUTS * CASE_ROWS) {
        const uint32_t left = CASE_INPUTS * CASE_ROWS - at;
        const uint32_t count = chunk < left ? chunk : left;
        const int32_t said = kws_push_rows(&samples[at * CASE_ROW_SIZE], count);
        if (said == kws_push_full) {
            sched_yield();
            continue;
        }
        completed += said == kws_push_complete;
        at += count;
        chunk = chunk % CASE_CAPACITY + 1;
    }
    return unused;
}

int main(void)
{
    const kws_io io = {NULL, kws_read_pushed, write_rows};
    FILE *in = fopen("in.bin", "rb");
    out = fopen("out.bin", "wb");
    pthread_t thread;
    if (!in || !out || fread(samples, sizeof samples, 1, in) != 1 || pthread_create(&thread, NULL, produce, NULL)) {
        return 2;
    }
    for (int i = 0; i < CASE_INPUTS; ++i) {
        if (kws_run(&io)) {
            return 3;
        }
    }
    return pthread_join(thread, NULL) || fclose(out) || completed != CASE_INPUTS;
}
