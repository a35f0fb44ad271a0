/* Vectors of 4 weights that are stored in 16 bits each: two instructions with Helium, plain C everywhere else. */
#ifndef TVM_EXT_NARROW_F32X4_H
#define TVM_EXT_NARROW_F32X4_H

#include "tvm_ext_f32x4.h"
#include "tvm_ext_narrow.h"

#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)

/* Even elements as floats. GNU as, 2.40 at least, numbers all registers but q0 wrongly in this instruction. */
TVM_EXT_INLINE tvm_ext_f32x4 tvm_ext_even_halves_f32x4(uint32x4_t halves)
{
    register uint32x4_t q0 __asm__("q0") = halves;
    __asm__("vcvtb.f32.f16 q0, q0" : "+w"(q0));
    return vreinterpretq_f32_u32(q0);
}

#endif

/* A vector. */
TVM_EXT_INLINE tvm_ext_f32x4 tvm_ext_narrow_f32x4(const uint16_t *weights, tvm_ext_weights type)
{
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
    const uint32x4_t bits = vldrhq_u32(weights);
    if (type == TVM_EXT_BFLOAT16) {
        return vreinterpretq_f32_u32(vshlq_n_u32(bits, 16));
    }
    return tvm_ext_even_halves_f32x4(bits);
#else
    float lanes[4];
    for (int32_t i = 0; i < 4; ++i) {
        lanes[i] = tvm_ext_widen(weights[i], type);
    }
    return tvm_ext_f32x4_load(lanes);
#endif
}

/* Two vectors side by side. */
TVM_EXT_INLINE void tvm_ext_narrow_f32x4_two(tvm_ext_f32x4 *two, const uint16_t *weights, tvm_ext_weights type)
{
    two[0] = tvm_ext_narrow_f32x4(weights, type);
    two[1] = tvm_ext_narrow_f32x4(&weights[4], type);
}

#endif
