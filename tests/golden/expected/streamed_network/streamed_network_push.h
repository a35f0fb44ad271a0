/* Rows of streamed_network that are pushed, by an interrupt handler for example, instead of read by the run.
   Include this in the one file of your firmware that has the handler and calls the run; the queue is in that file.

   - One producer for each input calls the push function: one handler, or several that never interrupt each other. It
   * copies
     the rows, never waits, and takes all rows or none.
   - One run at a time pulls; give it the read function as that of its `io`. It waits for rows that have not come,
     by WFE on Arm's M-profile; elsewhere it polls.
   - A push returns 0; streamed_network_push_complete where these rows complete an input, so that the current or the
   * next run needs
     no other row; streamed_network_push_full where the queue had no space and took no row.
   - A run ends at the last row that an output depends on; the next run drops the rows after it. After a run that
     returned another status than 0, reset the queue while neither side runs. */
#ifndef STREAMED_NETWORK_PUSH_H
#define STREAMED_NETWORK_PUSH_H

#include "streamed_network.h"
#include "tvm_ext_push.h"

enum { streamed_network_push_complete = 1, streamed_network_push_full = -5 };

/* Capacity of the queue in rows of image_0: a power of two, and at least the rows of one push. */
#ifndef STREAMED_NETWORK_IMAGE_0_PUSH_CAPACITY
#define STREAMED_NETWORK_IMAGE_0_PUSH_CAPACITY 8
#endif
_Static_assert((STREAMED_NETWORK_IMAGE_0_PUSH_CAPACITY & (STREAMED_NETWORK_IMAGE_0_PUSH_CAPACITY - 1)) == 0,
    "a power of two");

static float streamed_network_pushed_image_0[STREAMED_NETWORK_IMAGE_0_PUSH_CAPACITY *
    STREAMED_NETWORK_IMAGE_0_ROW_SIZE];
static tvm_ext_push_queue streamed_network_queue_image_0;

static inline tvm_ext_push_rows streamed_network_held_image_0(void)
{
    const tvm_ext_push_rows held = {(uint8_t *)streamed_network_pushed_image_0, STREAMED_NETWORK_IMAGE_0_PUSH_CAPACITY,
                                    STREAMED_NETWORK_IMAGE_0_ROWS, sizeof(float) * STREAMED_NETWORK_IMAGE_0_ROW_SIZE};
    return held;
}

/* Pushes `count` rows of image_0: 6 rows of [6][2]. */
static inline int32_t streamed_network_push_rows(const float *rows, uint32_t count)
{
    const tvm_ext_push_rows held = streamed_network_held_image_0();
    return tvm_ext_push(&streamed_network_queue_image_0, &held, rows, count, streamed_network_push_full);
}

/* For `read_image_0` of streamed_network_io. */
static inline int32_t streamed_network_read_pushed(void *context, float *rows, int32_t row_begin,
    int32_t row_end)
{
    const tvm_ext_push_rows held = streamed_network_held_image_0();
    (void)context;
    tvm_ext_pull(&streamed_network_queue_image_0, &held, rows, row_begin, row_end);
    return 0;
}

static inline void streamed_network_push_reset(void)
{
    tvm_ext_push_reset(&streamed_network_queue_image_0);
}

#endif
