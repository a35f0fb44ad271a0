/* Vectors of 4 floats that are halves in memory: two instructions with Helium, plain C everywhere else.
 *
 * Helium has products of halves, but cannot accumulate them with more bits: kernels widen, compute in float32, and
 * round once. */
#ifndef TVM_EXT_HALVES_F32X4_H
#define TVM_EXT_HALVES_F32X4_H

#include "tvm_ext_f32x4.h"
#include "tvm_ext_half.h"
#include "tvm_ext_narrow_f32x4.h"

#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)

#define TVM_EXT_ROUND_LOWER(to, from) TVM_EXT_CONVERSION(0xee3f0e01, to, from) /* vcvtb.f16.f32 */

/* Nearest halves in the lower halves of words; the upper halves are undefined. */
TVM_EXT_INLINE uint32x4_t tvm_ext_rounded_f32x4(tvm_ext_f32x4 value)
{
    __asm__(TVM_EXT_REGISTERS TVM_EXT_ROUND_LOWER(both, both) : [both] "+w"(value));
    return vreinterpretq_u32_f32(value);
}

#endif

/* Loads 4 halves as floats. */
TVM_EXT_INLINE tvm_ext_f32x4 tvm_ext_f32x4_of_halves(const uint16_t *source)
{
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
    return tvm_ext_lower_halves_f32x4(vldrhq_u32(source));
#else
    float lanes[4];
    for (int32_t i = 0; i < 4; ++i) {
        lanes[i] = tvm_ext_of_half(source[i]);
    }
    return tvm_ext_f32x4_load(lanes);
#endif
}

/* Writes 4 floats as the nearest halves. */
TVM_EXT_INLINE void tvm_ext_f32x4_to_halves(tvm_ext_any_uint16 *target, tvm_ext_f32x4 value)
{
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
    vstrhq_u32(target, tvm_ext_rounded_f32x4(value));
#else
    float lanes[4];
    tvm_ext_f32x4_store(lanes, value);
    for (int32_t i = 0; i < 4; ++i) {
        target[i] = tvm_ext_half(lanes[i]);
    }
#endif
}

/* Rounds floats to the nearest halves. */
TVM_EXT_INLINE tvm_ext_f32x4 tvm_ext_f32x4_half(tvm_ext_f32x4 value)
{
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
    return tvm_ext_lower_halves_f32x4(tvm_ext_rounded_f32x4(value));
#else
    uint16_t halves[4];
    tvm_ext_f32x4_to_halves(halves, value);
    return tvm_ext_f32x4_of_halves(halves);
#endif
}

/* Converts `count` halves to floats, which may overwrite halves that have been read. */
TVM_EXT_INLINE void tvm_ext_widen_halves(tvm_ext_any_float *target, const uint16_t *source, int32_t count)
{
    const int32_t whole = count - (count % 4);
    for (int32_t i = 0; i < whole; i += 4) {
        tvm_ext_f32x4_store(&target[i], tvm_ext_f32x4_of_halves(&source[i]));
    }
    for (int32_t i = whole; i < count; ++i) {
        target[i] = tvm_ext_of_half(source[i]);
    }
}

/* Converts `count` floats to the nearest halves, which may overwrite floats that have been read. */
TVM_EXT_INLINE void tvm_ext_round_halves(tvm_ext_any_uint16 *target, const float *source, int32_t count)
{
    const int32_t whole = count - (count % 4);
    for (int32_t i = 0; i < whole; i += 4) {
        tvm_ext_f32x4_to_halves(&target[i], tvm_ext_f32x4_load(&source[i]));
    }
    for (int32_t i = whole; i < count; ++i) {
        target[i] = tvm_ext_half(source[i]);
    }
}

#endif
