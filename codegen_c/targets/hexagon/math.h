/* The functions and macros of math.h that packages use. library.c defines sqrtf, tvm_ext_image_math.c those by
 * polynomials. */
#ifndef TVM_EXT_MATH_H
#define TVM_EXT_MATH_H

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

#define isfinite(x) __builtin_isfinite(x)
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

#endif
