/* Queue of rows of a streamed input, pushed by one producer, such as an interrupt handler, and pulled by the run. No
   lock and no heap: only the producer writes the count of pushed rows, only the run the count of taken rows, and
   each reads the other's count. */
#ifndef TVM_EXT_PUSH_H
#define TVM_EXT_PUSH_H

#include "tvm_ext_kernels.h"
#include "tvm_ext_signal.h"

typedef struct {
    uint8_t *bytes;
    uint32_t capacity;   /* rows in the queue, a power of two: both counts wrap around */
    uint32_t input_rows; /* rows of one input */
    uint32_t row_bytes;
} tvm_ext_push_rows;

typedef struct {
    TVM_EXT_SIGNAL_COUNT pushed; /* written by the producer only */
    TVM_EXT_SIGNAL_COUNT taken;  /* written by the run only */
    uint32_t row;                /* row of the input that is being pushed; used by the producer only */
    uint32_t first;              /* count of the first row of the input that is being pulled; used by the run only */
    int32_t next;                /* row after the last one that was pulled; used by the run only */
} tvm_ext_push_queue;

/* Resets the queue while neither side runs. */
static inline void tvm_ext_push_reset(tvm_ext_push_queue *queue)
{
    atomic_store_explicit(&queue->pushed, 0u, memory_order_relaxed);
    atomic_store_explicit(&queue->taken, 0u, memory_order_relaxed);
    queue->row = 0u;
    queue->first = 0u;
    queue->next = 0;
}

/* Copies rows. Returns 0; 1 if they complete an input; `full`, without copying any, if there is no space for all.
   Never waits. */
static inline int32_t tvm_ext_push(tvm_ext_push_queue *queue, const tvm_ext_push_rows *held, const void *rows,
                                   uint32_t count, int32_t full)
{
    const uint32_t pushed = atomic_load_explicit(&queue->pushed, memory_order_relaxed);
    const uint32_t room = held->capacity - (pushed - atomic_load_explicit(&queue->taken, memory_order_acquire));
    if (count > room) {
        return full;
    }
    for (uint32_t i = 0; i < count; ++i) {
        (void)memcpy(&held->bytes[((pushed + i) & (held->capacity - 1u)) * held->row_bytes],
                     &((const uint8_t *)rows)[i * held->row_bytes], held->row_bytes);
    }
    queue->row += count;
    const bool is_complete = queue->row >= held->input_rows;
    queue->row %= held->input_rows;
    atomic_store_explicit(&queue->pushed, pushed + count, memory_order_release);
    TVM_EXT_SIGNAL_EVENT();
    return is_complete ? 1 : 0;
}

/* Copies rows [row_begin, row_end) of the input to the run's buffer, and waits for rows that have not come. Rows
   that the run does not read are dropped: earlier rows of this input, and the last rows of the previous input. */
static inline void tvm_ext_pull(tvm_ext_push_queue *queue, const tvm_ext_push_rows *held, void *rows, int32_t row_begin,
                                int32_t row_end)
{
    if (row_begin < queue->next) {
        queue->first += held->input_rows;
    }
    queue->next = row_end;
    const uint32_t begin = queue->first + (uint32_t)row_begin;
    const uint32_t end = queue->first + (uint32_t)row_end;
    for (uint32_t at = atomic_load_explicit(&queue->taken, memory_order_relaxed); at != end; ++at) {
        while (atomic_load_explicit(&queue->pushed, memory_order_acquire) == at) {
            TVM_EXT_SIGNAL_NO_EVENT();
        }
        if (end - at <= end - begin) {
            (void)memcpy(&((uint8_t *)rows)[(at - begin) * held->row_bytes],
                         &held->bytes[(at & (held->capacity - 1u)) * held->row_bytes], held->row_bytes);
        }
        atomic_store_explicit(&queue->taken, at + 1u, memory_order_release);
    }
}

#endif
