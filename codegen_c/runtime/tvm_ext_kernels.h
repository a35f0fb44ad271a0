/* Definitions that all generated kernels share. Plain C11; no code here allocates, locks, or prints. */
#ifndef TVM_EXT_KERNELS_H
#define TVM_EXT_KERNELS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Keywords of C11 that C++ spells differently, for C++ files that include these headers. C libraries such as newlib
   define some of them, too. */
#ifdef __cplusplus
#ifndef _Alignas
#define _Alignas(bytes) alignas(bytes)
#endif
#ifndef _Static_assert
#define _Static_assert static_assert
#endif
#ifndef restrict
#define restrict __restrict
#endif
#endif

/* Types that may access any object, as characters may. Tensors of different types share bytes by plan. A function that
   reads such bytes as one type and writes them as another writes through one of these types, so that a compiler with
   type-based alias analysis keeps the order. A compiler without the attribute needs that analysis switched off. */
#if defined(__GNUC__)
#define TVM_EXT_MAY_ALIAS __attribute__((__may_alias__))
#else
#define TVM_EXT_MAY_ALIAS
#endif
typedef bool TVM_EXT_MAY_ALIAS tvm_ext_any_bool;
typedef int16_t TVM_EXT_MAY_ALIAS tvm_ext_any_int16;
typedef uint16_t TVM_EXT_MAY_ALIAS tvm_ext_any_uint16;
typedef int32_t TVM_EXT_MAY_ALIAS tvm_ext_any_int32;
typedef uint32_t TVM_EXT_MAY_ALIAS tvm_ext_any_uint32;
typedef int64_t TVM_EXT_MAY_ALIAS tvm_ext_any_int64;
typedef uint64_t TVM_EXT_MAY_ALIAS tvm_ext_any_uint64;
typedef float TVM_EXT_MAY_ALIAS tvm_ext_any_float;
typedef double TVM_EXT_MAY_ALIAS tvm_ext_any_double;

/* Steps are not inlined into each other, because one step may read or overwrite bytes as another type than the step
   that wrote them. They are also not cloned with constant addresses: GCC may then write addresses as differences to a
   base of 0, and drop calls as if they wrote nothing. */
#if defined(__clang__)
#define TVM_EXT_APART __attribute__((noinline))
#elif defined(__GNUC__)
#define TVM_EXT_APART __attribute__((noinline, noclone))
#else
#define TVM_EXT_APART
#endif
#define TVM_EXT_STEP static TVM_EXT_APART

#define TVM_EXT_MIN(a, b) ((a) < (b) ? (a) : (b))
#define TVM_EXT_MAX(a, b) ((a) > (b) ? (a) : (b))

/* a * b + c: a fused multiply-add if the hardware has one, otherwise two operations. The compiler has no choice. */
#if defined(__ARM_FEATURE_FMA) || defined(__FMA__) || defined(__riscv_flen)
#define TVM_EXT_FMA(a, b, c) fmaf((a), (b), (c))
#else
#define TVM_EXT_FMA(a, b, c) ((a) * (b) + (c))
#endif

/* Move bytes to an address at least 16 bytes lower. Both addresses and the number are multiples of four. */
static inline void tvm_ext_move_up(void *target, const void *source, uint32_t num_bytes)
{
    uint8_t *to = (uint8_t *)target;
    const uint8_t *from = (const uint8_t *)source;
    for (; num_bytes >= 16u; num_bytes -= 16u) {
#if defined(__GNUC__)
        (void)memcpy(__builtin_assume_aligned(to, 4), __builtin_assume_aligned(from, 4), 16);
#else
        (void)memcpy(to, from, 16);
#endif
        to += 16;
        from += 16;
    }
    (void)memcpy(to, from, num_bytes);
}

#endif
