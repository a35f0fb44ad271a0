/* Arithmetic of floats without an FPU, correctly rounded to nearest, halves to even. Debian's libgcc for this core
   lacks it, because the ROM of the ESP8266 has it. Floats are computed as doubles: a double has more than twice the
   bits of a float, so rounding twice gives what rounding once gives. */
#include <stdbool.h>
#include <stdint.h>

#include "math.h"

float __addsf3(float a, float b);
float __subsf3(float a, float b);
float __mulsf3(float a, float b);
float __divsf3(float a, float b);
double __adddf3(double a, double b);
double __subdf3(double a, double b);
double __muldf3(double a, double b);
double __divdf3(double a, double b);
double __extendsfdf2(float a);
float __truncdfsf2(double a);
double __floatsidf(int32_t a);
double __floatunsidf(uint32_t a);
float __floatsisf(int32_t a);
float __floatunsisf(uint32_t a);
int32_t __fixdfsi(double a);
uint32_t __fixunsdfsi(double a);
int32_t __fixsfsi(float a);
uint32_t __fixunssfsi(float a);

#define SIGN (UINT64_C(1) << 63)
#define INFINITE (UINT64_C(0x7FF) << 52)
#define NOT_A_NUMBER (UINT64_C(0xFFF) << 51)
#define LEADING (UINT64_C(1) << 62) /* of a significand between operations */

/* |x| = significand * 2^(exponent - 1085); the significand is 0, or its highest bit is LEADING. */
typedef struct {
    uint64_t sign;
    int32_t exponent;
    uint64_t significand;
    bool is_infinite;
    bool is_nan;
} parts;

static uint64_t bits_of(double x)
{
    const union {
        double value;
        uint64_t bits;
    } both = {x};
    return both.bits;
}

static double double_of(uint64_t bits)
{
    const union {
        uint64_t bits;
        double value;
    } both = {bits};
    return both.value;
}

static uint32_t float_bits(float x)
{
    const union {
        float value;
        uint32_t bits;
    } both = {x};
    return both.bits;
}

static float float_of(uint32_t bits)
{
    const union {
        uint32_t bits;
        float value;
    } both = {bits};
    return both.value;
}

/* Shifts right, and keeps in the lowest bit whether any bit was lost. */
static uint64_t shifted(uint64_t x, uint32_t places)
{
    if (places == 0u) {
        return x;
    }
    if (places > 63u) {
        return x != 0u ? 1u : 0u;
    }
    return (x >> places) | ((x << (64u - places)) != 0u ? 1u : 0u);
}

static parts normalized(parts x)
{
    if (x.significand > LEADING * 2u - 1u) {
        x.significand = shifted(x.significand, 1u);
        x.exponent++;
    }
    while (x.significand != 0u && x.significand < LEADING) {
        x.significand <<= 1;
        x.exponent--;
    }
    return x;
}

static parts unpacked(double value)
{
    const uint64_t bits = bits_of(value);
    const int32_t exponent = (int32_t)((bits >> 52) & 0x7FFu);
    const uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1u);
    const parts x = {
        .sign = bits & SIGN,
        .exponent = exponent == 0 ? 1 : exponent,
        .significand = (fraction | (exponent == 0 ? 0u : UINT64_C(1) << 52)) << 10,
        .is_infinite = exponent == 0x7FF && fraction == 0u,
        .is_nan = exponent == 0x7FF && fraction != 0u,
    };
    return normalized(x);
}

/* Returns the significand rounded to a format, with its biased exponent above its fraction. */
static uint64_t rounded(parts x, int32_t bias_change, uint32_t fraction_bits, int32_t largest)
{
    const uint32_t places = 62u - fraction_bits;
    int32_t exponent = x.exponent - bias_change;
    if (x.significand == 0u) {
        return 0u;
    }
    if (exponent >= largest) {
        return (uint64_t)largest << fraction_bits;
    }
    if (exponent <= 0) {
        x.significand = shifted(x.significand, (uint32_t)(1 - exponent));
        exponent = 1;
    }
    const uint64_t lost = x.significand & ((UINT64_C(1) << places) - 1u);
    const uint64_t half = UINT64_C(1) << (places - 1u);
    uint64_t kept = x.significand >> places;
    kept += lost > half || (lost == half && (kept & 1u) != 0u) ? 1u : 0u;
    /* The highest bit of a normal number adds the last 1 to the exponent, as a carry of the rounding does. */
    return ((uint64_t)(exponent - 1) << fraction_bits) + kept;
}

static double packed(parts x)
{
    if (x.is_nan) {
        return double_of(NOT_A_NUMBER);
    }
    return double_of(x.sign | (x.is_infinite ? INFINITE : rounded(x, 0, 52u, 0x7FF)));
}

static float packed_float(parts x)
{
    const uint32_t sign = (uint32_t)(x.sign >> 32);
    if (x.is_nan) {
        return float_of(UINT32_C(0x7FC00000));
    }
    return float_of(sign | (x.is_infinite ? UINT32_C(0x7F800000) : (uint32_t)rounded(x, 1023 - 127, 23u, 0xFF)));
}

static const parts nan_parts = {.is_nan = true};

static parts sum(parts a, parts b)
{
    if (a.is_nan || b.is_nan || (a.is_infinite && b.is_infinite && a.sign != b.sign)) {
        return nan_parts;
    }
    if (a.is_infinite || b.is_infinite) {
        return a.is_infinite ? a : b;
    }
    if (a.significand == 0u || b.significand == 0u) {
        parts other = a.significand == 0u ? b : a;
        other.sign = a.significand == 0u && b.significand == 0u ? a.sign & b.sign : other.sign;
        return other;
    }
    if (a.exponent < b.exponent || (a.exponent == b.exponent && a.significand < b.significand)) {
        const parts larger = b;
        b = a;
        a = larger;
    }
    b.significand = shifted(b.significand, (uint32_t)(a.exponent - b.exponent));
    if (a.sign == b.sign) {
        a.significand += b.significand;
    } else {
        a.significand -= b.significand;
        a.sign = a.significand == 0u ? 0u : a.sign;
    }
    return normalized(a);
}

static parts product(parts a, parts b)
{
    parts x = {.sign = a.sign ^ b.sign, .exponent = a.exponent + b.exponent - 1022};
    const bool has_zero = a.significand == 0u || b.significand == 0u;
    if (a.is_nan || b.is_nan || ((a.is_infinite || b.is_infinite) && has_zero)) {
        return nan_parts;
    }
    x.is_infinite = a.is_infinite || b.is_infinite;
    if (has_zero || x.is_infinite) {
        return x;
    }
    /* The upper 64 bits of a * 2b, of four products of halves. */
    const uint64_t b_twice = b.significand << 1;
    const uint64_t a_high = a.significand >> 32;
    const uint64_t a_low = a.significand & UINT32_MAX;
    const uint64_t b_high = b_twice >> 32;
    const uint64_t b_low = b_twice & UINT32_MAX;
    const uint64_t low = a_low * b_low;
    const uint64_t cross = a_high * b_low + (low >> 32);
    const uint64_t other = a_low * b_high + (cross & UINT32_MAX);
    const bool lost = ((low & UINT32_MAX) | (other & UINT32_MAX)) != 0u;
    x.significand = (a_high * b_high + (cross >> 32) + (other >> 32)) | (lost ? 1u : 0u);
    return normalized(x);
}

static parts quotient(parts a, parts b)
{
    parts x = {.sign = a.sign ^ b.sign, .exponent = a.exponent - b.exponent + 1023};
    const bool both_zero = a.significand == 0u && b.significand == 0u && !a.is_infinite && !b.is_infinite;
    if (a.is_nan || b.is_nan || both_zero || (a.is_infinite && b.is_infinite)) {
        return nan_parts;
    }
    x.is_infinite = a.is_infinite || (b.significand == 0u && !b.is_infinite);
    if (x.is_infinite || a.significand == 0u || b.is_infinite) {
        return x;
    }
    uint64_t rest = a.significand;
    for (uint32_t bit = 0u; bit < 63u; bit++) {
        x.significand <<= 1;
        if (rest >= b.significand) {
            rest -= b.significand;
            x.significand |= 1u;
        }
        rest <<= 1;
    }
    x.significand |= rest != 0u ? 1u : 0u;
    return normalized(x);
}

double __adddf3(double a, double b)
{
    return packed(sum(unpacked(a), unpacked(b)));
}

double __subdf3(double a, double b)
{
    return packed(sum(unpacked(a), unpacked(double_of(bits_of(b) ^ SIGN))));
}

double __muldf3(double a, double b)
{
    return packed(product(unpacked(a), unpacked(b)));
}

double __divdf3(double a, double b)
{
    return packed(quotient(unpacked(a), unpacked(b)));
}

double __extendsfdf2(float a)
{
    const uint32_t bits = float_bits(a);
    const int32_t exponent = (int32_t)((bits >> 23) & 0xFFu);
    const uint64_t fraction = bits & 0x7FFFFFu;
    const parts x = {
        .sign = (uint64_t)(bits >> 31) << 63,
        .exponent = (exponent == 0 ? 1 : exponent) + 1023 - 127,
        .significand = (fraction | (exponent == 0 ? 0u : UINT64_C(1) << 23)) << 39,
        .is_infinite = exponent == 0xFF && fraction == 0u,
        .is_nan = exponent == 0xFF && fraction != 0u,
    };
    return packed(normalized(x));
}

float __truncdfsf2(double a)
{
    return packed_float(unpacked(a));
}

float __addsf3(float a, float b)
{
    return __truncdfsf2(__adddf3(__extendsfdf2(a), __extendsfdf2(b)));
}

float __subsf3(float a, float b)
{
    return __truncdfsf2(__subdf3(__extendsfdf2(a), __extendsfdf2(b)));
}

float __mulsf3(float a, float b)
{
    return __truncdfsf2(__muldf3(__extendsfdf2(a), __extendsfdf2(b)));
}

float __divsf3(float a, float b)
{
    return __truncdfsf2(__divdf3(__extendsfdf2(a), __extendsfdf2(b)));
}

double __floatunsidf(uint32_t a)
{
    const parts x = {.exponent = 1085, .significand = a};
    return packed(normalized(x));
}

double __floatsidf(int32_t a)
{
    const double size = __floatunsidf(a < 0 ? 0u - (uint32_t)a : (uint32_t)a);
    return a < 0 ? double_of(bits_of(size) | SIGN) : size;
}

float __floatunsisf(uint32_t a)
{
    return __truncdfsf2(__floatunsidf(a));
}

float __floatsisf(int32_t a)
{
    return __truncdfsf2(__floatsidf(a));
}

/* Returns the magnitude without its fraction, at most `most`. */
static uint32_t whole(parts x, uint32_t most)
{
    if (x.is_infinite || x.exponent >= 1023 + 32) {
        return most;
    }
    const uint64_t size = x.exponent < 1023 ? 0u : x.significand >> (1085 - x.exponent);
    return size > most ? most : (uint32_t)size;
}

uint32_t __fixunsdfsi(double a)
{
    const parts x = unpacked(a);
    return x.is_nan || x.sign != 0u ? 0u : whole(x, UINT32_MAX);
}

int32_t __fixdfsi(double a)
{
    const parts x = unpacked(a);
    const uint32_t size = x.is_nan ? 0u : whole(x, x.sign != 0u ? UINT32_C(0x80000000) : UINT32_C(0x7FFFFFFF));
    return (int32_t)(x.sign != 0u ? 0u - size : size);
}

uint32_t __fixunssfsi(float a)
{
    return __fixunsdfsi(__extendsfdf2(a));
}

int32_t __fixsfsi(float a)
{
    return __fixdfsi(__extendsfdf2(a));
}

/* Returns the magnitude's bits without a fraction, and the fraction: 0, 1 below a half, 2 a half, 3 above it. */
static uint32_t cut(uint32_t size, uint32_t *fraction)
{
    const uint32_t exponent = size >> 23;
    *fraction = 0u;
    if (exponent >= 127u + 23u) {
        return size;
    }
    if (exponent < 127u) {
        *fraction = size == 0u ? 0u : exponent < 126u ? 1u : (size & 0x7FFFFFu) == 0u ? 2u : 3u;
        return 0u;
    }
    const uint32_t mask = (UINT32_C(1) << (127u + 23u - exponent)) - 1u;
    const uint32_t half = (mask >> 1) + 1u;
    const uint32_t lost = size & mask;
    *fraction = lost == 0u ? 0u : lost < half ? 1u : lost == half ? 2u : 3u;
    return size & ~mask;
}

/* Returns whether the magnitude of an integer is odd. */
static bool is_odd(uint32_t size)
{
    const uint32_t exponent = size >> 23;
    return exponent >= 127u && exponent <= 127u + 23u &&
           (((size & 0x7FFFFFu) | 0x800000u) >> (127u + 23u - exponent) & 1u) != 0u;
}

/* Returns x without its fraction, with a magnitude that is larger by 1 if `away`. */
static float whole_float(float x, uint32_t size, bool away)
{
    const uint32_t sign = float_bits(x) & UINT32_C(0x80000000);
    const uint32_t larger = float_bits(__addsf3(float_of(size), float_of(UINT32_C(0x3F800000))));
    return float_of(sign | (away ? larger : size));
}

float rintf(float x)
{
    uint32_t fraction;
    const uint32_t size = cut(float_bits(x) & UINT32_C(0x7FFFFFFF), &fraction);
    return whole_float(x, size, fraction == 3u || (fraction == 2u && is_odd(size)));
}

float floorf(float x)
{
    uint32_t fraction;
    const uint32_t size = cut(float_bits(x) & UINT32_C(0x7FFFFFFF), &fraction);
    return whole_float(x, size, fraction != 0u && (float_bits(x) >> 31) != 0u);
}

float ceilf(float x)
{
    uint32_t fraction;
    const uint32_t size = cut(float_bits(x) & UINT32_C(0x7FFFFFFF), &fraction);
    return whole_float(x, size, fraction != 0u && (float_bits(x) >> 31) == 0u);
}

float truncf(float x)
{
    uint32_t fraction;
    return whole_float(x, cut(float_bits(x) & UINT32_C(0x7FFFFFFF), &fraction), false);
}

float roundf(float x)
{
    uint32_t fraction;
    const uint32_t size = cut(float_bits(x) & UINT32_C(0x7FFFFFFF), &fraction);
    return whole_float(x, size, fraction >= 2u);
}

/* Bit by bit: the square root of significand * 2^k, for an even k, has half as many bits. */
float sqrtf(float x)
{
    parts one = unpacked(__extendsfdf2(x));
    if (one.is_nan || (one.sign != 0u && one.significand != 0u)) {
        return float_of(UINT32_C(0x7FC00000));
    }
    if (one.significand == 0u || one.is_infinite) {
        return x;
    }
    /* x is 2^(exponent - 1023) by a factor from 1 to 2. If that exponent is odd, the factor takes one of its twos. */
    const bool is_even = (one.exponent & 1) != 0;
    const uint64_t radicand = is_even ? one.significand : one.significand << 1;
    uint64_t root = 0u;
    uint64_t rest = radicand;
    for (uint64_t bit = UINT64_C(1) << 62; bit != 0u; bit >>= 2) {
        if (rest >= root + bit) {
            rest -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
    }
    parts result = {.exponent = (one.exponent - (is_even ? 1 : 2) - 1022) / 2 + 1022 + 1, .significand = root << 31};
    result.significand |= rest != 0u ? 1u : 0u;
    return packed_float(normalized(result));
}
