/* Functions that the compiler calls and Debian's libgcc for this core lacks, because the ROM of the ESP8266 has them:
   integers of 64 bits and divisions; and the functions of string.h. */
#include <stdint.h>
#include <string.h>

uint64_t __umulsidi3(uint32_t a, uint32_t b);
int64_t __muldi3(int64_t a, int64_t b);
uint32_t __udivsi3(uint32_t a, uint32_t b);
uint32_t __umodsi3(uint32_t a, uint32_t b);
int32_t __divsi3(int32_t a, int32_t b);
uint64_t __udivdi3(uint64_t a, uint64_t b);
uint64_t __umoddi3(uint64_t a, uint64_t b);
int64_t __divdi3(int64_t a, int64_t b);

/* The core multiplies 16 by 16 bits to 32, and 32 by 32 bits to the lower 32. */
uint64_t __umulsidi3(uint32_t a, uint32_t b)
{
    const uint32_t low = (a & 0xFFFFu) * (b & 0xFFFFu);
    const uint32_t cross = (a & 0xFFFFu) * (b >> 16);
    const uint32_t other = (a >> 16) * (b & 0xFFFFu);
    const uint32_t middle = (low >> 16) + (cross & 0xFFFFu) + (other & 0xFFFFu);
    const uint32_t high = (a >> 16) * (b >> 16) + (cross >> 16) + (other >> 16) + (middle >> 16);
    return ((uint64_t)high << 32) | (middle << 16) | (low & 0xFFFFu);
}

int64_t __muldi3(int64_t a, int64_t b)
{
    const uint32_t a_low = (uint32_t)a;
    const uint32_t b_low = (uint32_t)b;
    const uint32_t crossed = a_low * (uint32_t)((uint64_t)b >> 32) + b_low * (uint32_t)((uint64_t)a >> 32);
    return (int64_t)(__umulsidi3(a_low, b_low) + ((uint64_t)crossed << 32));
}

/* Returns the quotient, and the remainder in *rest, bit by bit from the top. A division by zero gives all ones. */
static uint32_t divided(uint32_t a, uint32_t b, uint32_t *rest)
{
    uint32_t quotient = 0u;
    uint32_t left = 0u;
    for (uint32_t bit = 32u; bit > 0u; bit--) {
        const uint32_t carry = left >> 31;
        left = (left << 1) | ((a >> (bit - 1u)) & 1u);
        quotient <<= 1;
        if (carry != 0u || left >= b) {
            left -= b;
            quotient |= 1u;
        }
    }
    *rest = left;
    return quotient;
}

static uint64_t divided_wide(uint64_t a, uint64_t b, uint64_t *rest)
{
    uint64_t quotient = 0u;
    uint64_t left = 0u;
    for (uint32_t bit = 64u; bit > 0u; bit--) {
        const uint64_t carry = left >> 63;
        left = (left << 1) | ((a >> (bit - 1u)) & 1u);
        quotient <<= 1;
        if (carry != 0u || left >= b) {
            left -= b;
            quotient |= 1u;
        }
    }
    *rest = left;
    return quotient;
}

uint32_t __udivsi3(uint32_t a, uint32_t b)
{
    uint32_t rest;
    return divided(a, b, &rest);
}

uint32_t __umodsi3(uint32_t a, uint32_t b)
{
    uint32_t rest;
    (void)divided(a, b, &rest);
    return rest;
}

int32_t __divsi3(int32_t a, int32_t b)
{
    uint32_t rest;
    const uint32_t size =
        divided(a < 0 ? 0u - (uint32_t)a : (uint32_t)a, b < 0 ? 0u - (uint32_t)b : (uint32_t)b, &rest);
    return (int32_t)((a < 0) != (b < 0) ? 0u - size : size);
}

uint64_t __udivdi3(uint64_t a, uint64_t b)
{
    uint64_t rest;
    return divided_wide(a, b, &rest);
}

uint64_t __umoddi3(uint64_t a, uint64_t b)
{
    uint64_t rest;
    (void)divided_wide(a, b, &rest);
    return rest;
}

int64_t __divdi3(int64_t a, int64_t b)
{
    uint64_t rest;
    const uint64_t size =
        divided_wide(a < 0 ? 0u - (uint64_t)a : (uint64_t)a, b < 0 ? 0u - (uint64_t)b : (uint64_t)b, &rest);
    return (int64_t)((a < 0) != (b < 0) ? 0u - size : size);
}

/* The compiler would replace these loops by calls of the functions themselves; an empty statement of assembly in each
   prevents it. */
void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    uint8_t *const target = to;
    const uint8_t *const source = from;
    for (size_t i = 0u; i < bytes; i++) {
        target[i] = source[i];
        __asm__ volatile("" ::: "memory");
    }
    return to;
}

void *memmove(void *to, const void *from, size_t bytes)
{
    uint8_t *const target = to;
    const uint8_t *const source = from;
    if ((uintptr_t)to <= (uintptr_t)from) {
        return memcpy(to, from, bytes);
    }
    for (size_t i = bytes; i > 0u; i--) {
        target[i - 1u] = source[i - 1u];
        __asm__ volatile("" ::: "memory");
    }
    return to;
}

void *memset(void *to, int value, size_t bytes)
{
    uint8_t *const target = to;
    for (size_t i = 0u; i < bytes; i++) {
        target[i] = (uint8_t)value;
        __asm__ volatile("" ::: "memory");
    }
    return to;
}

int memcmp(const void *one, const void *other, size_t bytes)
{
    const uint8_t *const first = one;
    const uint8_t *const second = other;
    for (size_t i = 0u; i < bytes; i++) {
        if (first[i] != second[i]) {
            return first[i] < second[i] ? -1 : 1;
        }
        __asm__ volatile("" ::: "memory");
    }
    return 0;
}

size_t strlen(const char *text)
{
    size_t length = 0u;
    while (text[length] != '\0') {
        length++;
        __asm__ volatile("" ::: "memory");
    }
    return length;
}

char *strchr(const char *text, int letter)
{
    union {
        const char *in;
        char *out;
    } at = {text};
    while (*at.in != '\0' && *at.in != (char)letter) {
        at.in++;
        __asm__ volatile("" ::: "memory");
    }
    return *at.in == (char)letter ? at.out : NULL;
}

int strncmp(const char *one, const char *other, size_t most)
{
    for (size_t i = 0u; i < most; i++) {
        if (one[i] != other[i] || one[i] == '\0') {
            return (int)(unsigned char)one[i] - (int)(unsigned char)other[i];
        }
        __asm__ volatile("" ::: "memory");
    }
    return 0;
}

int strcmp(const char *one, const char *other)
{
    return strncmp(one, other, SIZE_MAX);
}
