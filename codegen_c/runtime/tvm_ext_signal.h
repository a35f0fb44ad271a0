/* Signals from one processor to another, through shared memory. The code is short, so that you can replace it if
   your device has better methods: keep the type and the two functions.

   A channel connects two processors in one direction. The source counts the signals that it has sent, the target
   those that it has awaited; nothing ever resets the counts, and both wrap around together. Both are 0 before either
   processor starts. Everything that the source wrote before a signal is visible to the target after it. */
#ifndef TVM_EXT_SIGNAL_H
#define TVM_EXT_SIGNAL_H

#include <stdint.h>

#include "tvm_ext_kernels.h"

#ifdef __cplusplus
#include <atomic>
#define TVM_EXT_SIGNAL_COUNT std::atomic<uint32_t>
using std::atomic_load_explicit;
using std::atomic_store_explicit;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
#else
#include <stdatomic.h>
#define TVM_EXT_SIGNAL_COUNT _Atomic uint32_t
#endif

/* Bytes of a cache line, if processors have caches: then each count has its own line. */
#ifndef TVM_EXT_SIGNAL_LINE_BYTES
#define TVM_EXT_SIGNAL_LINE_BYTES 4
#endif

/* Waking and waiting. By default Arm's events; elsewhere the target polls. If threads stand in for processors, there
   are no registers that wake a processor. */
#if defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M'
#define TVM_EXT_SIGNAL_EVENT() __asm__ volatile("dsb\n\tsev" : : : "memory")
#define TVM_EXT_SIGNAL_NO_EVENT() __asm__ volatile("wfe" : : : "memory")
#elif defined(__unix__) || defined(__APPLE__)
#include <sched.h>
#define TVM_EXT_SIGNAL_EVENT() ((void)0)
#define TVM_EXT_SIGNAL_NO_EVENT() ((void)sched_yield())
#define TVM_EXT_SIGNAL_REGISTER(address, value) ((void)(address), (void)(value))
#else
#define TVM_EXT_SIGNAL_EVENT() ((void)0)
#define TVM_EXT_SIGNAL_NO_EVENT() ((void)0)
#endif
#ifndef TVM_EXT_SIGNAL_REGISTER
#define TVM_EXT_SIGNAL_REGISTER(address, value) (*(volatile uint32_t *)(address) = (value))
#endif

/* Runs after the count of a sent signal. */
#ifndef TVM_EXT_SIGNAL_WAKE
#define TVM_EXT_SIGNAL_WAKE(channel) TVM_EXT_SIGNAL_EVENT()
#endif

/* Runs while there is no signal; it may return at any time. An interrupt ends Arm's wait for an event, too. */
#ifndef TVM_EXT_SIGNAL_IDLE
#define TVM_EXT_SIGNAL_IDLE(channel) TVM_EXT_SIGNAL_NO_EVENT()
#endif

/* For processors whose caches are not coherent: write back before a signal is sent, invalidate after one was
   received. The counts themselves must then lie in uncached memory. */
#ifndef TVM_EXT_SIGNAL_WRITE_BACK
#define TVM_EXT_SIGNAL_WRITE_BACK() ((void)0)
#endif
#ifndef TVM_EXT_SIGNAL_FORGET
#define TVM_EXT_SIGNAL_FORGET() ((void)0)
#endif

/* For tests: runs before each signal is sent, and before each wait. */
#ifndef TVM_EXT_SIGNAL_DELAY
#define TVM_EXT_SIGNAL_DELAY() ((void)0)
#endif

#if defined(__clang__)
#define TVM_EXT_SIGNAL_FUNCTION __attribute__((noinline, unused)) static
#elif defined(__GNUC__)
#define TVM_EXT_SIGNAL_FUNCTION __attribute__((noinline, noclone, unused)) static
#else
#define TVM_EXT_SIGNAL_FUNCTION static
#endif

typedef struct {
    _Alignas(TVM_EXT_SIGNAL_LINE_BYTES) TVM_EXT_SIGNAL_COUNT sent; /* written by the source only */
    _Alignas(TVM_EXT_SIGNAL_LINE_BYTES) uint32_t awaited;          /* used by the target only */
} tvm_ext_channel;

/* Sends a signal: everything that this processor wrote before is visible to the target. */
TVM_EXT_SIGNAL_FUNCTION void tvm_ext_notify(tvm_ext_channel *channel)
{
    TVM_EXT_SIGNAL_DELAY();
    TVM_EXT_SIGNAL_WRITE_BACK();
    const uint32_t sent = atomic_load_explicit(&channel->sent, memory_order_relaxed) + 1u;
    atomic_store_explicit(&channel->sent, sent, memory_order_release);
    TVM_EXT_SIGNAL_WAKE(channel);
}

/* Returns when the next signal of the channel has been sent. */
TVM_EXT_SIGNAL_FUNCTION void tvm_ext_await(tvm_ext_channel *channel)
{
    TVM_EXT_SIGNAL_DELAY();
    const uint32_t awaited = channel->awaited + 1u;
    while (((atomic_load_explicit(&channel->sent, memory_order_acquire) - awaited) & 0x80000000u) != 0u) {
        TVM_EXT_SIGNAL_IDLE(channel);
    }
    channel->awaited = awaited;
    TVM_EXT_SIGNAL_FORGET();
}

/* Returns 1 if a signal of the channel has been sent and not been awaited yet, else 0. */
TVM_EXT_SIGNAL_FUNCTION int32_t tvm_ext_has_signal(const tvm_ext_channel *channel)
{
    const uint32_t awaited = channel->awaited + 1u;
    const uint32_t ahead = atomic_load_explicit(&channel->sent, memory_order_acquire) - awaited;
    return (ahead & 0x80000000u) == 0u ? 1 : 0;
}

/* Writes to the register of a mailbox or interrupt, which wakes the target of a sent signal. */
TVM_EXT_SIGNAL_FUNCTION void tvm_ext_ring(uintptr_t set_register)
{
    TVM_EXT_SIGNAL_REGISTER(set_register, 1u);
}

/* Clears the register after a signal was received. Another signal may have come meanwhile: the count shows it. */
TVM_EXT_SIGNAL_FUNCTION void tvm_ext_answer(uintptr_t clear_register)
{
    TVM_EXT_SIGNAL_REGISTER(clear_register, 1u);
}

#endif
