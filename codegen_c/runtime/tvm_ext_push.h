/* Rows of a streamed input, pushed by one producer, an interrupt handler say, and pulled by the run. No lock and no
   heap: the producer alone counts what was pushed, the run alone what was taken, and each reads the other's count. */
#ifndef TVM_EXT_PUSH_H
#define TVM_EXT_PUSH_H

#include "tvm_ext_kernels.h"
#include "tvm_ext_signal.h"

typedef struct {
    uint8_t *bytes;
    uint32_t capacity;   /* rows that are held, a power of two: both counts wrap around */
    uint32_t input_rows; /* rows of one input */
    uint32_t row_bytes;
} tvm_ext_push_rows;

typedef struct {
    TVM_EXT_SIGNAL_COUNT pushed; /* written by the producer alone */
    TVM_EXT_SIGNAL_COUNT taken;  /* written by the run alone */
    uint32_t row;                /* of the input that is being pushed; the producer's own */
    uint32_t first;              /* count of the first row of the input that is being pulled; the run's own */
    int32_t next;                /* row behind the last one that was pulled; the run's own */
} tvm_ext_push_queue;

/* Begins anew, while neither side runs. */
static inline void tvm_ext_push_reset(tvm_ext_push_queue *queue)
{
    atomic_store_explicit(&queue->pushed, 0u, memory_order_relaxed);
    atomic_store_explicit(&queue->taken, 0u, memory_order_relaxed);
    queue->row = 0u;
    queue->first = 0u;
    queue->next = 0;
}

/* Copies rows: 0; 1 where an input is complete with them; full, and none is copied, where there is no room for all.
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

/* Copies rows [row_begin, row_end) of the input to where a run asks for them, and waits for those that have not come.
   Rows that no run asked for are dropped: of this input those before, of the one before its last ones. */
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
