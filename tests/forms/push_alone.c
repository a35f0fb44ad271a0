/* The queue alone: refusals, rows that no run asks for, counts that wrap around. Answers the line that fails. */
#include "tvm_ext_push.h"

#define CHECK(condition) \
    if (!(condition)) { \
        return __LINE__; \
    }

static uint8_t bytes[4 * 2];
static const tvm_ext_push_rows held = {bytes, 4, 6, 2};

int main(void)
{
    static tvm_ext_push_queue queue;
    uint8_t rows[12][2], got[4][2];
    for (uint32_t i = 0; i < 12; ++i) {
        rows[i][0] = (uint8_t)i;
        rows[i][1] = (uint8_t)(100 + i);
    }
    for (uint32_t begin = 0; begin < 2; ++begin) { /* from the start, and where both counts wrap around */
        tvm_ext_push_reset(&queue);
        if (begin) {
            queue.pushed = queue.taken = queue.first = 0xFFFFFFFEu;
        }
        CHECK(tvm_ext_push(&queue, &held, rows, 5, -5) == -5);
        CHECK(tvm_ext_push(&queue, &held, rows, 4, -5) == 0);
        CHECK(tvm_ext_push(&queue, &held, &rows[4], 1, -5) == -5);
        tvm_ext_pull(&queue, &held, got, 1, 3); /* drops row 0 */
        CHECK(got[0][0] == 1 && got[1][1] == 102);
        CHECK(tvm_ext_push(&queue, &held, &rows[4], 2, -5) == 1); /* the input is complete */
        CHECK(tvm_ext_push(&queue, &held, &rows[6], 1, -5) == 0);
        CHECK(tvm_ext_push(&queue, &held, &rows[7], 1, -5) == -5);
        tvm_ext_pull(&queue, &held, got, 0, 1); /* the next input: drops rows 3 to 5 */
        CHECK(got[0][0] == 6 && got[0][1] == 106);
    }
    return 0;
}
