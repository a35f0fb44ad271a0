/* Functions of math.h for images. Those of a C library set errno and read tables at fixed addresses, which
   relocatable code cannot do; these keep all numbers in their instructions. Errors are at most 3 units in the last
   place.

   Polynomials were interpolated at Chebyshev points, in double precision. */
#include <math.h>
#include <stdint.h>
#include <string.h>

static float from_bits(uint32_t bits)
{
    float value;
    (void)memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    (void)memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* 2^power, for powers of normal numbers. */
static float power_of_two(int32_t power)
{
    return from_bits((uint32_t)(power + 127) << 23);
}

/* x = power * ln 2 + rest, |rest| <= ln 2 / 2; e^rest by a polynomial; two factors, for denormal results. */
float expf(float x)
{
    if (x != x) {
        return x;
    }
    if (x > 88.8f) {
        return INFINITY;
    }
    if (x < -104.0f) {
        return 0.0f;
    }
    const int32_t power = (int32_t)(x * 1.44269504f + (x < 0.0f ? -0.5f : 0.5f));
    const float n = (float)power;
    const float rest = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.98919806e-4f;
    p = p * rest + 1.39345415e-3f;
    p = p * rest + 8.33331048e-3f;
    p = p * rest + 4.16664556e-2f;
    p = p * rest + 1.66666672e-1f;
    p = p * rest + 0.5f;
    const float e = 1.0f + (rest + rest * rest * p);
    return e * power_of_two(power / 2) * power_of_two(power - power / 2);
}

/* An odd polynomial for small x, 1 - 2 / (e^2x + 1) for others. */
float tanhf(float x)
{
    const float size = fabsf(x);
    if (size < 0.625f) {
        const float z = x * x;
        float p = 2.29274482e-3f;
        p = p * z - 8.34394526e-3f;
        p = p * z + 2.17689183e-2f;
        p = p * z - 5.39592579e-2f;
        p = p * z + 1.33333042e-1f;
        p = p * z - 3.33333343e-1f;
        return copysignf(x + x * z * p, x);
    }
    const float near_one = size > 10.0f ? 1.0f : 1.0f - 2.0f / (expf(2.0f * size) + 1.0f);
    return x != x ? x : copysignf(near_one, x);
}

/* x = 2^power * m, m between sqrt(1/2) and sqrt(2); log m by s = (m - 1) / (m + 1). */
float logf(float x)
{
    if (x != x || x == INFINITY) {
        return x;
    }
    if (x <= 0.0f) {
        return x == 0.0f ? -INFINITY : NAN;
    }
    const int is_denormal = x < 1.17549435e-38f;
    const uint32_t bits = bits_of(is_denormal ? x * 8388608.0f : x) - 0x3f3504f3u;
    const int32_t power = (int32_t)(bits >> 23) - ((bits >> 31) != 0u ? 512 : 0) - (is_denormal ? 23 : 0);
    const float f = from_bits((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    const float s = f / (2.0f + f);
    const float z = s * s;
    float p = 2.33533382e-1f;
    p = p * z + 2.85499752e-1f;
    p = p * z + 4.00001287e-1f;
    p = p * z + 6.66666687e-1f;
    const float half = 0.5f * f * f;
    const float n = (float)power;
    return n * 0.693359375f + (f - (half - (s * (half + z * p) - n * 2.12194440e-4f)));
}

/* An odd polynomial up to 1; up to 4, 1 - e^(-x * x) * p(1 / x). */
float erff(float x)
{
    const float size = fabsf(x);
    const float z = x * x;
    if (size < 1.0f) {
        float p = -9.66704374e-6f;
        p = p * z + 1.12659589e-4f;
        p = p * z - 8.48408032e-4f;
        p = p * z + 5.22103161e-3f;
        p = p * z - 2.68654302e-2f;
        p = p * z + 1.12837821e-1f;
        p = p * z - 3.76126379e-1f;
        p = p * z + 1.12837923f;
        return x * p;
    }
    if (!(size < 4.0f)) {
        return x != x ? x : copysignf(1.0f, x);
    }
    const float t = 1.0f / size;
    float p = 2.50325426e-2f;
    p = p * t - 1.47898450e-1f;
    p = p * t + 3.60861868e-1f;
    p = p * t - 4.29833740e-1f;
    p = p * t + 1.45477355e-1f;
    p = p * t + 2.82589793e-1f;
    p = p * t - 3.94859582e-1f;
    p = p * t + 2.48475205e-2f;
    p = p * t + 5.61214626e-1f;
    p = p * t + 1.51655680e-4f;
    return copysignf(1.0f - expf(-z) * p, x);
}
