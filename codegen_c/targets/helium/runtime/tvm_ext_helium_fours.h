/* Products of the windows of four adjacent pixels with all output channels, with Helium: two channels at a time.
 *
 * Weights and factors are packed in blocks of four channels: weights, initial accumulators, multipliers and, unless all
 * channels share one, shifts of channels 0 and 2, then those of 1 and 3, with 16 bytes of each channel in turn, then
 * the zero point and the number of remaining channels. */
#ifndef TVM_EXT_HELIUM_FOURS_H
#define TVM_EXT_HELIUM_FOURS_H

#include "tvm_ext_helium.h"
#include "tvm_ext_layer.h"

#include <stdbool.h>
#include <stdint.h>

#define TVM_EXT_HELIUM_FOUR_PIXELS 4

/* Windows of `runs` rows with `taps` columns, each `steps` vectors of 16 bytes. */
typedef struct {
    int32_t runs; /* rows */
    int32_t taps;
    int32_t stride; /* columns from one pixel to the next */
    int32_t steps;
    int32_t column_bytes; /* bytes from one column to the next */
    int32_t pitch;        /* bytes from one pixel of the output to the next */
    int32_t shift;        /* shift in the conversion to elements, unless each channel has its own */
    bool rounds_twice;    /* as in TensorFlow Lite: a rounded product, then a rounded shift of each channel */
    bool is_signed;       /* with two roundings, halves below zero are rounded down */
    bool is_unsigned;     /* the output is uint8 */
} tvm_ext_helium_fours;

/* Computes all channels of four pixels, whose first window is at x and first result at y. row_bytes: bytes from one row
 * to the next. It is not inlined so that it has all registers; compilers call it directly. */
typedef void tvm_ext_helium_group(const int8_t *x, int32_t row_bytes, uint8_t *y, const int8_t *restrict packed);

#ifdef TVM_EXT_HAS_HELIUM

/* Returns the addresses of four pixels, minus the four bytes by which a store advances them. */
static inline uint32x4_t tvm_ext_helium_four_places(uint8_t *y, int32_t pitch)
{
    const uint32x4_t pixels = vidupq_n_u32(0, 1);
    return vaddq_n_u32(vmulq_n_u32(pixels, (uint32_t)pitch), (uint32_t)(uintptr_t)y - 4U);
}

/* The accumulators take all even registers, and the assembly uses vectors 0 to 6 directly. */
#define TVM_EXT_HELIUM_FOUR(layer, x, row_bytes, y, packed, a, b, c, d, ...)                                         \
    do {                                                                                                             \
        const int8_t *four_a = (a), *four_b = (b), *four_c = (c), *four_d = (d), *four_f = (packed);                 \
        uint32x4_t four_places = tvm_ext_helium_four_places((y), (layer)->pitch);                                    \
        (void)(row_bytes);                                                                                           \
        __asm__ volatile(__VA_ARGS__                                                                                 \
                         : [x0] "+r"(four_a), [x1] "+r"(four_b), [x2] "+r"(four_c), [x3] "+r"(four_d),               \
                           [f] "+r"(four_f), [places] "+w"(four_places)                                              \
                         :                                                                                           \
                         : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "q3", "q4", "q5",     \
                           "q6", "cc", "memory");                                                                    \
    } while (0)

#else

/* Adds 16 products of each of four pixels and two channels. */
static inline void tvm_ext_helium_add_four(int32_t sums[2][4], const int8_t *x, int32_t advance, const int8_t *f)
{
    for (int32_t k = 0; k < 2; ++k) {
        for (int32_t m = 0; m < 4; ++m) {
            for (int32_t i = 0; i < 16; ++i) {
                sums[k][m] = tvm_ext_wrap((int64_t)sums[k][m] + (x[(m * advance) + i] * f[(16 * k) + i]));
            }
        }
    }
}

/* Returns a number of 32 bits in packed bytes, low bytes first. */
static inline int32_t tvm_ext_helium_four_number(const int8_t *packed)
{
    uint32_t number = 0;
    for (int32_t i = 3; i >= 0; --i) {
        number = (number << 8) | (uint8_t)packed[i];
    }
    return tvm_ext_wrap((int64_t)number);
}

/* Copies 16 bytes of each of four pixels. A layer with windows of one vector reads them once, before its results
 * overwrite them. */
static inline void tvm_ext_helium_four_kept(int8_t *kept, const int8_t *x, int32_t advance)
{
    for (int32_t i = 0; i < 64; ++i) {
        kept[i] = x[(i / 16 * advance) + (i % 16)];
    }
}

/* Returns the number of packed numbers of two channels between their weights and those of the next. */
static inline int32_t tvm_ext_helium_num_factors(const tvm_ext_helium_fours *layer)
{
    return layer->rounds_twice ? 6 : 4;
}

/* Returns value / 2^shift, halves up. */
static inline int64_t tvm_ext_helium_four_shifted(int64_t value, int32_t shift)
{
    return shift > 0 ? (value + ((int64_t)1 << (shift - 1))) >> shift : value;
}

/* Returns the element of a sum. shift: of the channel, negative, if the layer rounds twice. */
static inline uint8_t tvm_ext_helium_four_element(const tvm_ext_helium_fours *layer, int32_t sum, int32_t multiplier,
                                                  int32_t shift, int32_t zero_point)
{
    const int64_t half = layer->rounds_twice ? (int64_t)1 << 30 : 0;
    const int64_t high = (((int64_t)sum * multiplier) + half) >> 31;
    const int64_t product = layer->is_signed && high < 0 ? high - 1 : high;
    const int64_t rounded = tvm_ext_helium_four_shifted(product, layer->rounds_twice ? -shift : layer->shift);
    const int32_t value = (int32_t)(rounded < INT16_MIN ? INT16_MIN : rounded > INT16_MAX ? INT16_MAX : rounded);
    const int32_t low = layer->is_unsigned ? 0 : INT8_MIN;
    return (uint8_t)(tvm_ext_clamp(value + zero_point, low, low + 255) & 255);
}

static inline void tvm_ext_helium_four_plain(const tvm_ext_helium_fours *layer, const int8_t *x, int32_t row_bytes,
                                             uint8_t *y, const int8_t *packed)
{
    int8_t kept[64];
    int32_t advance = layer->stride * layer->column_bytes;
    int32_t left = 1;
    if (layer->runs == 1 && layer->taps == 1 && layer->steps == 1) {
        tvm_ext_helium_four_kept(kept, x, advance);
        x = kept;
        advance = 16;
    }
    for (int32_t k = 0; left > 0; k += 4) {
        int32_t elements[2][2][4];
        int32_t factors[2][6];
        for (int32_t half = 0; half < 2; ++half) {
            for (int32_t i = 0; i < 8; ++i) {
                elements[half][i / 4][i % 4] = 0;
            }
            for (int32_t r = 0; r < layer->runs; ++r) {
                for (int32_t s = 0; s < layer->steps; ++s) {
                    for (int32_t phase = 0; phase < layer->stride; ++phase) {
                        for (int32_t tap = phase; tap < layer->taps; tap += layer->stride) {
                            const int8_t *const column = &x[(r * row_bytes) + (tap * layer->column_bytes) + (16 * s)];
                            tvm_ext_helium_add_four(elements[half], column, advance, packed);
                            packed += 32;
                        }
                    }
                }
            }
            factors[half][4] = 0;
            factors[half][5] = 0;
            for (int32_t i = 0; i < tvm_ext_helium_num_factors(layer); ++i) {
                factors[half][i] = tvm_ext_helium_four_number(packed);
                packed += 4;
            }
        }
        const int32_t zero_point = tvm_ext_helium_four_number(packed);
        left = tvm_ext_helium_four_number(&packed[4]);
        packed += 8;
        for (int32_t i = 0; i < 16; ++i) {
            const int32_t m = i % 4, half = i / 4 % 2, odd = i / 8;
            const int32_t sum = tvm_ext_wrap((int64_t)elements[half][odd][m] + factors[half][odd]);
            y[(m * layer->pitch) + k + half + (2 * odd)] =
                tvm_ext_helium_four_element(layer, sum, factors[half][2 + odd], factors[half][4 + odd], zero_point);
        }
    }
}

#define TVM_EXT_HELIUM_FOUR(layer, x, row_bytes, y, packed, ...)                                                     \
    tvm_ext_helium_four_plain((layer), (x), (row_bytes), (y), (packed))

#endif

#endif
