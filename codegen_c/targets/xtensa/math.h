/* The constants and functions of math.h that packages of integer networks use, for a compiler without a C library.
   Where there is a C library, its header is used instead. Functions such as expf are missing: firmware that needs them
   does not link. */
#pragma GCC system_header
#ifndef TVM_EXT_OWN_MATH_H
#define TVM_EXT_OWN_MATH_H

#if __has_include_next(<math.h>)
#include_next <math.h>
#else
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
#define fabsf(x) __builtin_fabsf(x)
#define copysignf(x, y) __builtin_copysignf(x, y)

float rintf(float x);
float floorf(float x);
float ceilf(float x);
float truncf(float x);
float roundf(float x);
float sqrtf(float x);
float expf(float x);
float logf(float x);
float tanhf(float x);
float erff(float x);
float fmodf(float x, float y);
#endif

#endif
