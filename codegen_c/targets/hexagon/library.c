/* Functions that compilers and packages take from a C library and from a compiler's runtime library: memory, text,
 * division and roots. Hexagon has no instruction that divides. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define OWN __attribute__((used, no_builtin))

OWN void *memcpy(void *to, const void *from, size_t bytes)
{
    char *target = to;
    const char *source = from;
    if ((((uintptr_t)to | (uintptr_t)from) & 7u) == 0u) {
        for (; bytes >= 8u; bytes -= 8u) {
            *(int64_t *)(void *)target = *(const int64_t *)(const void *)source;
            target += 8;
            source += 8;
        }
    }
    for (; bytes > 0u; bytes--) {
        *target++ = *source++;
    }
    return to;
}

/* clang calls it for copies of 32 bytes or more, a multiple of 8, that are probably aligned. */
void *__hexagon_memcpy_likely_aligned_min32bytes_mult8bytes(void *to, const void *from, size_t bytes);

OWN void *__hexagon_memcpy_likely_aligned_min32bytes_mult8bytes(void *to, const void *from, size_t bytes)
{
    return memcpy(to, from, bytes);
}

OWN void *memmove(void *to, const void *from, size_t bytes)
{
    char *const target = to;
    const char *const source = from;
    if ((uintptr_t)to <= (uintptr_t)from) {
        for (size_t i = 0u; i < bytes; i++) {
            target[i] = source[i];
        }
    } else {
        for (size_t i = bytes; i > 0u; i--) {
            target[i - 1u] = source[i - 1u];
        }
    }
    return to;
}

OWN void *memset(void *to, int value, size_t bytes)
{
    for (size_t i = 0u; i < bytes; i++) {
        ((char *)to)[i] = (char)value;
    }
    return to;
}

OWN int memcmp(const void *one, const void *other, size_t bytes)
{
    const unsigned char *const first = one;
    const unsigned char *const second = other;
    for (size_t i = 0u; i < bytes; i++) {
        if (first[i] != second[i]) {
            return (int)first[i] - (int)second[i];
        }
    }
    return 0;
}

/* clang calls it where only the equality of a comparison matters. */
int bcmp(const void *one, const void *other, size_t bytes);

OWN int bcmp(const void *one, const void *other, size_t bytes)
{
    return memcmp(one, other, bytes);
}

OWN size_t strlen(const char *text)
{
    size_t length = 0u;
    while (text[length] != '\0') {
        length++;
    }
    return length;
}

OWN char *strchr(const char *text, int letter)
{
    union {
        const char *in;
        char *out;
    } found = {text};
    for (; *found.in != (char)letter; found.in++) {
        if (*found.in == '\0') {
            return NULL;
        }
    }
    return found.out;
}

OWN int strncmp(const char *one, const char *other, size_t most)
{
    for (size_t i = 0u; i < most; i++) {
        if (one[i] != other[i] || one[i] == '\0') {
            return (int)(unsigned char)one[i] - (int)(unsigned char)other[i];
        }
    }
    return 0;
}

OWN int strcmp(const char *one, const char *other)
{
    return strncmp(one, other, SIZE_MAX);
}

/* The quotient, and the rest through a pointer, bit by bit from the highest bit of the quotient on. */
static uint64_t divided(uint64_t value, uint64_t divisor, uint64_t *rest)
{
    uint64_t quotient = 0u;
    if (divisor != 0u && value >= divisor) {
        int32_t bit = __builtin_clzll(divisor) - __builtin_clzll(value);
        for (uint64_t part = divisor << bit; bit >= 0; bit--) {
            if (value >= part) {
                value -= part;
                quotient |= (uint64_t)1 << bit;
            }
            part >>= 1;
        }
    }
    *rest = value;
    return quotient;
}

static uint64_t size_of(int64_t value)
{
    return value < 0 ? 0u - (uint64_t)value : (uint64_t)value;
}

/* Names by which clang calls divisions and roots. */
uint64_t __hexagon_udivdi3(uint64_t value, uint64_t divisor);
uint64_t __hexagon_umoddi3(uint64_t value, uint64_t divisor);
int64_t __hexagon_divdi3(int64_t value, int64_t divisor);
int64_t __hexagon_moddi3(int64_t value, int64_t divisor);
uint32_t __hexagon_udivsi3(uint32_t value, uint32_t divisor);
uint32_t __hexagon_umodsi3(uint32_t value, uint32_t divisor);
int32_t __hexagon_divsi3(int32_t value, int32_t divisor);
int32_t __hexagon_modsi3(int32_t value, int32_t divisor);
float __hexagon_divsf3(float value, float divisor);
float __hexagon_sqrtf(float x);

OWN uint64_t __hexagon_udivdi3(uint64_t value, uint64_t divisor)
{
    uint64_t rest;
    return divided(value, divisor, &rest);
}

OWN uint64_t __hexagon_umoddi3(uint64_t value, uint64_t divisor)
{
    uint64_t rest;
    (void)divided(value, divisor, &rest);
    return rest;
}

OWN int64_t __hexagon_divdi3(int64_t value, int64_t divisor)
{
    const uint64_t quotient = __hexagon_udivdi3(size_of(value), size_of(divisor));
    return (int64_t)((value < 0) != (divisor < 0) ? 0u - quotient : quotient);
}

OWN int64_t __hexagon_moddi3(int64_t value, int64_t divisor)
{
    const uint64_t rest = __hexagon_umoddi3(size_of(value), size_of(divisor));
    return (int64_t)(value < 0 ? 0u - rest : rest);
}

OWN uint32_t __hexagon_udivsi3(uint32_t value, uint32_t divisor)
{
    return (uint32_t)__hexagon_udivdi3(value, divisor);
}

OWN uint32_t __hexagon_umodsi3(uint32_t value, uint32_t divisor)
{
    return (uint32_t)__hexagon_umoddi3(value, divisor);
}

OWN int32_t __hexagon_divsi3(int32_t value, int32_t divisor)
{
    return (int32_t)__hexagon_divdi3(value, divisor);
}

OWN int32_t __hexagon_modsi3(int32_t value, int32_t divisor)
{
    return (int32_t)__hexagon_moddi3(value, divisor);
}

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

#define SIGN 0x80000000u
#define HIDDEN 0x00800000u

/* Splits the size of a finite float above 0 into mantissa * 2^exponent, the mantissa from 2^23 to 2^24 - 1. */
static uint32_t split(float value, int32_t *exponent)
{
    const uint32_t bits = bits_of(value) & ~SIGN;
    if (bits >= HIDDEN) {
        *exponent = (int32_t)(bits >> 23) - 150;
        return (bits & (HIDDEN - 1u)) | HIDDEN;
    }
    const int32_t up = __builtin_clz(bits) - 8;
    *exponent = -149 - up;
    return bits << up;
}

/* Returns mantissa * 2^exponent, rounded once, halves to even. The lowest bit stands for all bits that are lost. */
static float joined(uint64_t mantissa, int32_t exponent, uint32_t sign)
{
    const int32_t width = 64 - __builtin_clzll(mantissa);
    int32_t shift = width - 24;
    if (exponent + shift < -149) {
        shift = -149 - exponent;
    }
    if (shift > 0) {
        const uint64_t half = shift > 63 ? 0u : (uint64_t)1 << (shift - 1);
        const uint64_t below = shift > 63 ? mantissa : mantissa & (half - 1u);
        const bool is_half = half != 0u && (mantissa & half) != 0u;
        mantissa = shift > 63 ? 0u : mantissa >> shift;
        mantissa += is_half && (below != 0u || (mantissa & 1u) != 0u) ? 1u : 0u;
        exponent += shift;
    } else {
        mantissa <<= -shift;
        exponent += shift;
    }
    if (mantissa == (uint64_t)2 * HIDDEN) {
        mantissa = HIDDEN;
        exponent++;
    }
    if (exponent > 104) {
        return from_bits(sign | 0x7F800000u);
    }
    const uint32_t biased = mantissa >= HIDDEN ? (uint32_t)(exponent + 150) << 23 : 0u;
    return from_bits(sign | biased | ((uint32_t)mantissa & (HIDDEN - 1u)));
}

OWN float __hexagon_divsf3(float value, float divisor)
{
    const uint32_t sign = (bits_of(value) ^ bits_of(divisor)) & SIGN;
    if (value != value || divisor != divisor || (value == 0.0f && divisor == 0.0f) ||
        (!isfinite(value) && !isfinite(divisor))) {
        return NAN;
    }
    if (!isfinite(value) || divisor == 0.0f) {
        return from_bits(sign | 0x7F800000u);
    }
    if (value == 0.0f || !isfinite(divisor)) {
        return from_bits(sign);
    }
    int32_t up;
    int32_t down;
    const uint64_t numerator = (uint64_t)split(value, &up) << 32;
    uint64_t rest;
    const uint64_t quotient = divided(numerator, split(divisor, &down), &rest);
    return joined((quotient << 1) | (rest != 0u ? 1u : 0u), up - down - 33, sign);
}

OWN float __hexagon_sqrtf(float x)
{
    if (x != x || x == 0.0f || x == INFINITY) {
        return x;
    }
    if (x < 0.0f) {
        return NAN;
    }
    int32_t exponent;
    uint64_t square = (uint64_t)split(x, &exponent) << 30;
    if (exponent % 2 != 0) {
        square <<= 1;
        exponent--;
    }
    uint64_t root = 0u;
    for (int32_t bit = 27; bit >= 0; bit--) {
        const uint64_t tried = root | ((uint64_t)1 << bit);
        root = tried * tried <= square ? tried : root;
    }
    return joined((root << 1) | (root * root != square ? 1u : 0u), (exponent - 30) / 2 - 1, 0u);
}

OWN float sqrtf(float x)
{
    return __hexagon_sqrtf(x);
}

/* A float of 2^23 or more has no bits below the unit, so adding 2^23 rounds the bits of a smaller one away. */
OWN float rintf(float x)
{
    const float size = fabsf(x);
    const volatile float moved = size + 8388608.0f;
    return size < 8388608.0f ? copysignf(moved - 8388608.0f, x) : x;
}

OWN float floorf(float x)
{
    const float near = rintf(x);
    return near > x ? near - 1.0f : near;
}

OWN float ceilf(float x)
{
    const float near = rintf(x);
    return copysignf(near < x ? near + 1.0f : near, x);
}

OWN float roundf(float x)
{
    const float below = floorf(fabsf(x));
    return copysignf(fabsf(x) - below >= 0.5f ? below + 1.0f : below, x);
}
