/* Single floats under the names that vectors of floats have. */
#ifndef TVM_EXT_F32X1_H
#define TVM_EXT_F32X1_H

#include "tvm_ext_kernels.h"

#define TVM_EXT_F32X1_LANES 1

typedef float tvm_ext_f32x1;

static inline tvm_ext_f32x1 tvm_ext_f32x1_load(const float *source)
{
    return *source;
}

/* a * b + c. */
static inline tvm_ext_f32x1 tvm_ext_f32x1_fma_n(float a, tvm_ext_f32x1 b, tvm_ext_f32x1 c)
{
    return TVM_EXT_FMA(a, b, c);
}

#endif
