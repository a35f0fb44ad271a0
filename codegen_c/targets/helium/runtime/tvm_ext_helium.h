/* Vectors of 16, 8 and 4 integers for generated kernels: Helium if the compiler has it, plain C with the same lanes
 * everywhere else. Lanes are counted from 0; "even" and "odd" refer to their numbers. */
#ifndef TVM_EXT_HELIUM_H
#define TVM_EXT_HELIUM_H

#include "tvm_ext_requantize.h"

/* Without optimization compilers run out of registers for sums. */
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__) && defined(__OPTIMIZE__)

#define TVM_EXT_HAS_HELIUM 1

#include <arm_mve.h>

typedef int8x16_t tvm_ext_i8x16;
typedef int16x8_t tvm_ext_i16x8;
typedef int32x4_t tvm_ext_i32x4;

static inline tvm_ext_i8x16 tvm_ext_i8x16_load(const void *source)
{
    return vldrbq_s8((const int8_t *)source);
}

/* Loads the first `count` bytes, with zeros after them. */
static inline tvm_ext_i8x16 tvm_ext_i8x16_load_first(const void *source, int32_t count)
{
    return vldrbq_z_s8((const int8_t *)source, vctp8q((uint32_t)count));
}

static inline void tvm_ext_i8x16_store(void *target, tvm_ext_i8x16 a)
{
    vstrbq_s8((int8_t *)target, a);
}

/* GCC 12 treats predicated stores as stores of all lanes, and drops earlier stores of the other lanes: this declares
 * these bytes as read. */
#define TVM_EXT_HELIUM_KEEP(target, bytes) __asm__ volatile("" : "+m"(*(uint8_t(*)[bytes])(target)))

static inline void tvm_ext_i8x16_store_first(void *target, tvm_ext_i8x16 a, int32_t count)
{
    TVM_EXT_HELIUM_KEEP(target, 16);
    vstrbq_p_s8((int8_t *)target, a, vctp8q((uint32_t)count));
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_splat(int8_t value)
{
    return vdupq_n_s8(value);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_xor(tvm_ext_i8x16 a, tvm_ext_i8x16 b)
{
    return veorq_s8(a, b);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_max(tvm_ext_i8x16 a, tvm_ext_i8x16 b)
{
    return vmaxq_s8(a, b);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_min(tvm_ext_i8x16 a, tvm_ext_i8x16 b)
{
    return vminq_s8(a, b);
}

/* Returns the low bytes of all lanes, alternately of `even` and of `odd`. */
static inline tvm_ext_i8x16 tvm_ext_i8x16_of(tvm_ext_i16x8 even, tvm_ext_i16x8 odd)
{
    return vmovntq_s16(vreinterpretq_s8_s16(even), odd);
}

/* Returns all lanes saturated to int8_t, alternately of `even` and of `odd`. */
static inline tvm_ext_i8x16 tvm_ext_i8x16_limited(tvm_ext_i16x8 even, tvm_ext_i16x8 odd)
{
    int8x16_t result;
    __asm__("vqmovnb.s16 %q0, %q1\n\tvqmovnt.s16 %q0, %q2" : "=&w"(result) : "w"(even), "w"(odd));
    return result;
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_splat(int16_t value)
{
    return vdupq_n_s16(value);
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_even(tvm_ext_i8x16 a)
{
    return vmovlbq_s8(a);
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_odd(tvm_ext_i8x16 a)
{
    return vmovltq_s8(a);
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_add(tvm_ext_i16x8 a, tvm_ext_i16x8 b)
{
    return vaddq_s16(a, b);
}

/* Returns a + b, saturated to 16 bits. */
static inline tvm_ext_i16x8 tvm_ext_i16x8_add_n(tvm_ext_i16x8 a, int16_t b)
{
    return vqaddq_n_s16(a, b);
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_clamp(tvm_ext_i16x8 a, int16_t low, int16_t high)
{
    return vminq_s16(vmaxq_s16(a, vdupq_n_s16(low)), vdupq_n_s16(high));
}

/* Returns a in the even lanes, b in the odd ones, saturated to 16 bits. */
static inline tvm_ext_i16x8 tvm_ext_i16x8_narrow(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    int16x8_t result;
    __asm__("vqmovnb.s32 %q0, %q1\n\tvqmovnt.s32 %q0, %q2" : "=&w"(result) : "w"(a), "w"(b));
    return result;
}

/* Returns a, saturated to int8_t, in the low byte of each lane; the high byte is undefined. */
static inline tvm_ext_i16x8 tvm_ext_i16x8_limited(tvm_ext_i16x8 a)
{
    int16x8_t result;
    __asm__("vqmovnb.s16 %q0, %q1" : "=w"(result) : "w"(a));
    return result;
}

/* Stores the low bytes of the first `count` even lanes; count: 1 to 4. */
static inline void tvm_ext_i16x8_store_even(void *target, tvm_ext_i16x8 a, int32_t count)
{
    if (count >= 4) {
        vstrbq_s32((int8_t *)target, vreinterpretq_s32_s16(a));
    } else {
        TVM_EXT_HELIUM_KEEP(target, 4);
        vstrbq_p_s32((int8_t *)target, vreinterpretq_s32_s16(a), vctp32q((uint32_t)count));
    }
}

/* Stores the low bytes of the first `count` odd lanes. */
static inline void tvm_ext_i16x8_store_odd(void *target, tvm_ext_i16x8 a, int32_t count)
{
    const uint32x4_t low = vshrq_n_u32(vreinterpretq_u32_s16(a), 16);
    tvm_ext_i16x8_store_even(target, vreinterpretq_s16_u32(low), count);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_load(const int32_t *source)
{
    return vldrwq_s32(source);
}

static inline void tvm_ext_i32x4_store(int32_t *target, tvm_ext_i32x4 a)
{
    vstrwq_s32(target, a);
}

/* Stores the first `count` lanes. */
static inline void tvm_ext_i32x4_store_some(int32_t *target, tvm_ext_i32x4 a, int32_t count)
{
    TVM_EXT_HELIUM_KEEP(target, 16);
    vstrwq_p_s32(target, a, vctp32q((uint32_t)count));
}

/* Stores lane 0 of all four vectors, then lane 1 of all, and so on. */
static inline void tvm_ext_i32x4_store_in_turn(int32_t *target, tvm_ext_i32x4 a, tvm_ext_i32x4 b, tvm_ext_i32x4 c,
                                               tvm_ext_i32x4 d)
{
    const int32x4x4_t all = {{a, b, c, d}};
    vst4q_s32(target, all);
}

/* Loads up to four bytes, widened, with zeros after them. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_load_i8(const int8_t *source, int32_t count)
{
    return count >= 4 ? vldrbq_s32(source) : vldrbq_z_s32(source, vctp32q((uint32_t)count));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_load_u8(const uint8_t *source, int32_t count)
{
    const uint32x4_t a = count >= 4 ? vldrbq_u32(source) : vldrbq_z_u32(source, vctp32q((uint32_t)count));
    return vreinterpretq_s32_u32(a);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_splat(int32_t value)
{
    return vdupq_n_s32(value);
}

/* Return the even lanes, or the odd lanes, as 32-bit numbers. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_even(tvm_ext_i16x8 a)
{
    return vmovlbq_s16(a);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_odd(tvm_ext_i16x8 a)
{
    return vmovltq_s16(a);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_add(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    return vaddq_s32(a, b);
}

/* Returns a + b with the same b in all lanes. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_add_n(tvm_ext_i32x4 a, int32_t b)
{
    return vaddq_n_s32(a, b);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    return vmulq_s32(a, b);
}

/* Returns a * b + c with the same c in all lanes. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply_add_n(tvm_ext_i32x4 a, tvm_ext_i32x4 b, int32_t c)
{
    return vmlasq_n_s32(a, b, c);
}

/* Returns a + b * c with the same c in all lanes. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_mla(tvm_ext_i32x4 a, tvm_ext_i32x4 b, int32_t c)
{
    return vmlaq_n_s32(a, b, c);
}

/* Returns a * 2^shift rounded down; the result must fit. shift: -31 to 31. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_shift(tvm_ext_i32x4 a, int32_t shift)
{
    return vshlq_r_s32(a, shift);
}

/* Returns the elements of a table at the indices `places`. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_gather(const int32_t *table, tvm_ext_i32x4 places)
{
    return vldrwq_gather_shifted_offset_s32(table, vreinterpretq_u32_s32(places));
}

/* Returns a * 2^shift, rounded once, halves up; shift: -31 to -1. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_round_shift(tvm_ext_i32x4 a, tvm_ext_i32x4 shift)
{
    return vrshlq_s32(a, shift);
}

/* Returns (a + low / 2^32) * 2^shift, rounded once, halves to even; shift: -31 to -1. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_round_shift_even(tvm_ext_i32x4 a, tvm_ext_i32x4 low, tvm_ext_i32x4 shift)
{
    /* A number is an integer if `low` has 32 leading zeros. Predicates would show this, too, but GCC 12 miscompiles
     * some of their uses. */
    const int32x4_t is_whole = vshrq_n_s32(vclzq_s32(low), 5);
    return vrshlq_s32(vsubq_s32(a, vbicq_s32(is_whole, vshlq_s32(a, shift))), shift);
}

/* Returns a * 2^shift, rounded once, halves up, with the same shift in all lanes; shift: -32 to -1. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_round_shift_n(tvm_ext_i32x4 a, int32_t shift)
{
    return vrshlq_n_s32(a, shift);
}

/* Returns the high words of the doubled products, rounded down; not both factors may be the smallest number. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply_doubled_down_n(tvm_ext_i32x4 a, int32_t b)
{
    return vqdmulhq_n_s32(a, b);
}

/* Return the high words of the doubled products, halves up; not both factors may be the smallest number. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply_doubled(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    return vqrdmulhq_s32(a, b);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply_doubled_n(tvm_ext_i32x4 a, int32_t b)
{
    return vqrdmulhq_n_s32(a, b);
}

/* Returns a * 2^shift, rounded once, halves away from zero; shift: -31 to 0. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_shift_away(tvm_ext_i32x4 a, tvm_ext_i32x4 shift)
{
    /* The correction is -1 if both numbers are negative, so that halves are rounded down. */
    const int32x4_t correction = vshrq_n_s32(vandq_s32(a, shift), 31);
    return vrshlq_s32(vaddq_s32(a, correction), shift);
}

/* Returns the high words of the products. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply_high(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    return vmulhq_s32(a, b);
}

#else

#include "tvm_ext_helium_plain.h"

#endif

#endif
