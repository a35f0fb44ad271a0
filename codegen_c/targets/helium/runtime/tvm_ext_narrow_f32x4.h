/* Vectors of 4 weights that are stored in 16 bits each: two instructions with Helium, plain C everywhere else. */
#ifndef TVM_EXT_NARROW_F32X4_H
#define TVM_EXT_NARROW_F32X4_H

#include "tvm_ext_f32x4.h"
#include "tvm_ext_narrow.h"

#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)

/* GNU as, 2.40 at least, numbers all registers but q0 wrongly in conversions between halves and floats. So these are
 * numbers here, made from the names that the compiler gives its registers. */
#define TVM_EXT_REGISTERS                                                                                              \
    ".set .Lq0, 0; .set .Lq1, 1; .set .Lq2, 2; .set .Lq3, 3; .set .Lq4, 4; .set .Lq5, 5; .set .Lq6, 6; .set .Lq7, 7\n\t"
#define TVM_EXT_CONVERSION(code, to, from) ".inst.w " #code " + (.L%q[" #to "] << 13) + (.L%q[" #from "] << 1)\n\t"
#define TVM_EXT_WIDEN_LOWER(to, from) TVM_EXT_CONVERSION(0xfe3f0e01, to, from) /* vcvtb.f32.f16 */
#define TVM_EXT_WIDEN_UPPER(to, from) TVM_EXT_CONVERSION(0xfe3f1e01, to, from) /* vcvtt.f32.f16 */

/* Returns the lower halves of 4 words as floats. */
TVM_EXT_INLINE tvm_ext_f32x4 tvm_ext_lower_halves_f32x4(uint32x4_t halves)
{
    tvm_ext_f32x4 floats;
    __asm__(TVM_EXT_REGISTERS TVM_EXT_WIDEN_LOWER(to, from) : [to] "=w"(floats) : [from] "w"(halves));
    return floats;
}

/* Returns the upper halves of 4 words as floats. */
TVM_EXT_INLINE tvm_ext_f32x4 tvm_ext_upper_halves_f32x4(uint32x4_t halves)
{
    tvm_ext_f32x4 floats;
    __asm__(TVM_EXT_REGISTERS TVM_EXT_WIDEN_UPPER(to, from) : [to] "=w"(floats) : [from] "w"(halves));
    return floats;
}

#endif

/* Loads a vector. */
TVM_EXT_INLINE tvm_ext_f32x4 tvm_ext_narrow_f32x4(const uint16_t *weights, tvm_ext_weights type)
{
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
    const uint32x4_t bits = vldrhq_u32(weights);
    if (type == TVM_EXT_BFLOAT16) {
        return vreinterpretq_f32_u32(vshlq_n_u32(bits, 16));
    }
    return tvm_ext_lower_halves_f32x4(bits);
#else
    float lanes[4];
    for (int32_t i = 0; i < 4; ++i) {
        lanes[i] = tvm_ext_widen(weights[i], type);
    }
    return tvm_ext_f32x4_load(lanes);
#endif
}

/* Loads two adjacent vectors. */
TVM_EXT_INLINE void tvm_ext_narrow_f32x4_two(tvm_ext_f32x4 *two, const uint16_t *weights, tvm_ext_weights type)
{
    two[0] = tvm_ext_narrow_f32x4(weights, type);
    two[1] = tvm_ext_narrow_f32x4(&weights[4], type);
}

#endif
