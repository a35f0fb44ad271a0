/* Fourier transforms of real samples: a complex one of half the length, in steps of four and of two, and a split.
   Integers are divided by four, or two, before each step, so that the result is the transform by its length. */
#ifndef TVM_EXT_AUDIO_FFT_S16_H
#define TVM_EXT_AUDIO_FFT_S16_H

#include "tvm_ext_audio_samples.h"

typedef struct {
    int16_t real;
    int16_t imaginary;
} tvm_ext_audio_complex_s16;

/* Tables of a complex transform of `length`: the place where each result begins, powers of the root of one, and those
   of a split of twice the length, which begin half a power late. sign: of the root's angle, -1 or 1. */
typedef struct {
    const uint16_t *order;
    const int16_t *powers;
    const int16_t *split;
    int32_t length;
    int32_t sign;
} tvm_ext_audio_fft_s16_tables;

static inline tvm_ext_audio_complex_s16 tvm_ext_audio_part_of_s16(tvm_ext_audio_complex_s16 x, int32_t count)
{
    const tvm_ext_audio_complex_s16 part = {tvm_ext_audio_part_s16(x.real, count),
                                            tvm_ext_audio_part_s16(x.imaginary, count)};
    return part;
}

static inline tvm_ext_audio_complex_s16 tvm_ext_audio_plus_of_s16(tvm_ext_audio_complex_s16 a,
                                                                  tvm_ext_audio_complex_s16 b)
{
    const tvm_ext_audio_complex_s16 sum = {tvm_ext_audio_plus_s16(a.real, b.real),
                                           tvm_ext_audio_plus_s16(a.imaginary, b.imaginary)};
    return sum;
}

static inline tvm_ext_audio_complex_s16 tvm_ext_audio_minus_of_s16(tvm_ext_audio_complex_s16 a,
                                                                   tvm_ext_audio_complex_s16 b)
{
    const tvm_ext_audio_complex_s16 difference = {tvm_ext_audio_minus_s16(a.real, b.real),
                                                  tvm_ext_audio_minus_s16(a.imaginary, b.imaginary)};
    return difference;
}

/* A product with entry `index` of a table. */
static inline tvm_ext_audio_complex_s16 tvm_ext_audio_times_s16(tvm_ext_audio_complex_s16 x, const int16_t *table,
                                                                int32_t index)
{
    const int16_t real = table[2 * index];
    const int16_t imaginary = table[2 * index + 1];
    const tvm_ext_audio_complex_s16 product = {tvm_ext_audio_crossed_s16(x.real, real, x.imaginary, imaginary),
                                               tvm_ext_audio_products_s16(x.real, imaginary, x.imaginary, real)};
    return product;
}

/* Pairs of neighbours. */
static inline void tvm_ext_audio_fft_two_s16(tvm_ext_audio_complex_s16 *x, const int16_t *powers, int32_t length)
{
    for (int32_t k = 0; k < length; k += 2) {
        const tvm_ext_audio_complex_s16 a = tvm_ext_audio_part_of_s16(x[k], 2);
        const tvm_ext_audio_complex_s16 b = tvm_ext_audio_times_s16(tvm_ext_audio_part_of_s16(x[k + 1], 2), powers, 0);
        x[k] = tvm_ext_audio_plus_of_s16(a, b);
        x[k + 1] = tvm_ext_audio_minus_of_s16(a, b);
    }
}

/* Four transforms of `quarter` as one of four times that, again and again. */
static inline void tvm_ext_audio_fft_four_s16(tvm_ext_audio_complex_s16 *x, const tvm_ext_audio_fft_s16_tables *tables,
                                              int32_t quarter)
{
    const int32_t stride = tables->length / (4 * quarter);
    for (int32_t begin = 0; begin < tables->length; begin += 4 * quarter) {
        for (int32_t k = 0; k < quarter; ++k) {
            tvm_ext_audio_complex_s16 *const y = &x[begin + k];
            const tvm_ext_audio_complex_s16 a = tvm_ext_audio_part_of_s16(y[0], 4);
            const tvm_ext_audio_complex_s16 b =
                tvm_ext_audio_times_s16(tvm_ext_audio_part_of_s16(y[quarter], 4), tables->powers, k * stride);
            const tvm_ext_audio_complex_s16 c =
                tvm_ext_audio_times_s16(tvm_ext_audio_part_of_s16(y[2 * quarter], 4), tables->powers, 2 * k * stride);
            const tvm_ext_audio_complex_s16 d =
                tvm_ext_audio_times_s16(tvm_ext_audio_part_of_s16(y[3 * quarter], 4), tables->powers, 3 * k * stride);
            const tvm_ext_audio_complex_s16 even = tvm_ext_audio_plus_of_s16(a, c);
            const tvm_ext_audio_complex_s16 odd = tvm_ext_audio_plus_of_s16(b, d);
            const tvm_ext_audio_complex_s16 apart = tvm_ext_audio_minus_of_s16(a, c);
            const tvm_ext_audio_complex_s16 turned = tvm_ext_audio_minus_of_s16(b, d);
            const tvm_ext_audio_complex_s16 one = {tvm_ext_audio_plus_s16(apart.real, turned.imaginary),
                                                   tvm_ext_audio_minus_s16(apart.imaginary, turned.real)};
            const tvm_ext_audio_complex_s16 other = {tvm_ext_audio_minus_s16(apart.real, turned.imaginary),
                                                     tvm_ext_audio_plus_s16(apart.imaginary, turned.real)};
            y[0] = tvm_ext_audio_plus_of_s16(even, odd);
            y[2 * quarter] = tvm_ext_audio_minus_of_s16(even, odd);
            y[quarter] = tables->sign < 0 ? one : other;
            y[3 * quarter] = tables->sign < 0 ? other : one;
        }
    }
}

/* The complex transform in place, of elements that stand in the table's order. */
static inline void tvm_ext_audio_fft_in_place_s16(tvm_ext_audio_complex_s16 *x,
                                                  const tvm_ext_audio_fft_s16_tables *tables)
{
    int32_t done = 1;
    for (int32_t four = 1; four <= tables->length; four *= 4) {
        done = four == tables->length ? 1 : 2;
    }
    if (done == 2) {
        tvm_ext_audio_fft_two_s16(x, tables->powers, tables->length);
    }
    for (int32_t quarter = done; quarter < tables->length; quarter *= 4) {
        tvm_ext_audio_fft_four_s16(x, tables, quarter);
    }
}

/* The lower half of the transform of `count` samples and zeros behind them. work: `length` complex numbers. */
static inline void tvm_ext_audio_rfft_s16(const int16_t *input, int16_t *output, tvm_ext_audio_complex_s16 *work,
                                          int32_t count, const tvm_ext_audio_fft_s16_tables *tables)
{
    const int32_t length = tables->length;
    for (int32_t k = 0; k < length; ++k) {
        const int32_t from = 2 * tables->order[k];
        work[k].real = from < count ? input[from] : (int16_t)0;
        work[k].imaginary = from + 1 < count ? input[from + 1] : (int16_t)0;
    }
    tvm_ext_audio_fft_in_place_s16(work, tables);
    const tvm_ext_audio_complex_s16 mean = tvm_ext_audio_part_of_s16(work[0], 2);
    output[0] = tvm_ext_audio_plus_s16(mean.real, mean.imaginary);
    output[1] = 0;
    output[2 * length] = tvm_ext_audio_minus_s16(mean.real, mean.imaginary);
    output[2 * length + 1] = 0;
    for (int32_t k = 1; k <= length / 2; ++k) {
        const tvm_ext_audio_complex_s16 mirror = {work[length - k].real,
                                                  tvm_ext_audio_minus_s16(0, work[length - k].imaginary)};
        const tvm_ext_audio_complex_s16 a = tvm_ext_audio_part_of_s16(work[k], 2);
        const tvm_ext_audio_complex_s16 b = tvm_ext_audio_part_of_s16(mirror, 2);
        const tvm_ext_audio_complex_s16 sum = tvm_ext_audio_plus_of_s16(a, b);
        const tvm_ext_audio_complex_s16 turned =
            tvm_ext_audio_times_s16(tvm_ext_audio_minus_of_s16(a, b), tables->split, k - 1);
        output[2 * k] = tvm_ext_audio_mean_s16(sum.real, turned.real);
        output[2 * k + 1] = tvm_ext_audio_mean_s16(sum.imaginary, turned.imaginary);
        output[2 * (length - k)] = tvm_ext_audio_half_s16(sum.real, turned.real);
        output[2 * (length - k) + 1] = tvm_ext_audio_half_s16(turned.imaginary, sum.imaginary);
    }
}

/* Samples of the lower half of a transform. work and output: `length` complex numbers. */
static inline void tvm_ext_audio_irfft_s16(const int16_t *input, int16_t *output, tvm_ext_audio_complex_s16 *work,
                                           const tvm_ext_audio_fft_s16_tables *tables)
{
    const int32_t length = tables->length;
    const tvm_ext_audio_complex_s16 ends = {tvm_ext_audio_plus_s16(input[0], input[2 * length]),
                                            tvm_ext_audio_minus_s16(input[0], input[2 * length])};
    work[0] = tvm_ext_audio_part_of_s16(ends, 2);
    for (int32_t k = 1; k <= length / 2; ++k) {
        const tvm_ext_audio_complex_s16 own = {input[2 * k], input[2 * k + 1]};
        const tvm_ext_audio_complex_s16 mirror = {input[2 * (length - k)],
                                                  tvm_ext_audio_minus_s16(0, input[2 * (length - k) + 1])};
        const tvm_ext_audio_complex_s16 a = tvm_ext_audio_part_of_s16(own, 2);
        const tvm_ext_audio_complex_s16 b = tvm_ext_audio_part_of_s16(mirror, 2);
        const tvm_ext_audio_complex_s16 even = tvm_ext_audio_plus_of_s16(a, b);
        const tvm_ext_audio_complex_s16 odd =
            tvm_ext_audio_times_s16(tvm_ext_audio_minus_of_s16(a, b), tables->split, k - 1);
        const tvm_ext_audio_complex_s16 last = tvm_ext_audio_minus_of_s16(even, odd);
        work[k] = tvm_ext_audio_plus_of_s16(even, odd);
        work[length - k].real = last.real;
        work[length - k].imaginary = tvm_ext_audio_minus_s16(0, last.imaginary);
    }
    tvm_ext_audio_complex_s16 *const x = (tvm_ext_audio_complex_s16 *)output;
    for (int32_t k = 0; k < length; ++k) {
        x[k] = work[tables->order[k]];
    }
    tvm_ext_audio_fft_in_place_s16(x, tables);
    for (int32_t k = 0; k < 2 * length; ++k) {
        output[k] = tvm_ext_audio_restored_s16(output[k], 2 * length);
    }
}

#endif
