/* Constants and functions of math.h that packages use, for compilers without a C library. The header of a C library is
   used if there is one. The target's start-up code defines roundings and the root, tvm_ext_image_math.c the functions
   by polynomials. */
#pragma GCC system_header
#ifndef TVM_EXT_OWN_MATH_H
#define TVM_EXT_OWN_MATH_H

#if __has_include_next(<math.h>)
#include_next <math.h>
#else

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

#define isfinite(x) __builtin_isfinite(x)
#define isinf(x) __builtin_isinf(x)
#define isnan(x) __builtin_isnan(x)
#define signbit(x) __builtin_signbit(x)
#define fabsf(x) __builtin_fabsf(x)
#define copysignf(x, y) __builtin_copysignf(x, y)
#define fmaxf(x, y) __builtin_fmaxf(x, y)
#define fminf(x, y) __builtin_fminf(x, y)

float sqrtf(float x);
float rintf(float x);
float floorf(float x);
float ceilf(float x);
float roundf(float x);
float expf(float x);
float tanhf(float x);
float logf(float x);
float erff(float x);

/* A target may lack some of these: a build whose model calls a missing function is refused when firmware is linked. */
float acosf(float x);
float acoshf(float x);
float asinf(float x);
float asinhf(float x);
float atan2f(float y, float x);
float atanf(float x);
float atanhf(float x);
float cosf(float x);
float coshf(float x);
float exp2f(float x);
float fmaf(float x, float y, float z);
float fmodf(float x, float y);
float hypotf(float x, float y);
float ldexpf(float x, int power);
float log10f(float x);
float log1pf(float x);
float log2f(float x);
float nextafterf(float x, float y);
float powf(float x, float y);
float sinf(float x);
float sinhf(float x);
float tanf(float x);
float truncf(float x);
#endif

#endif
