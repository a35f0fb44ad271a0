/* Energies of a spectrum gathered in channels, and what follows: roots, noise taken away, gain control, logarithms. */
#ifndef TVM_EXT_AUDIO_FILTER_BANK_H
#define TVM_EXT_AUDIO_FILTER_BANK_H

#include "tvm_ext_audio_bits.h"

/* Sums of `channels` channels. Each bin counts to a channel by its weight, and to the next one by its unweight. */
static inline void tvm_ext_audio_filter_bank(const uint32_t *input, const int16_t *weights, const int16_t *unweights,
                                             const int16_t *frequency_starts, const int16_t *weight_starts,
                                             const int16_t *widths, uint64_t *output, int32_t channels)
{
    uint64_t sum = 0;
    for (int32_t i = 0; i <= channels; ++i) {
        uint64_t next = 0;
        for (int32_t k = 0; k < widths[i]; ++k) {
            const uint64_t energy = input[frequency_starts[i] + k];
            sum += (uint64_t)(int64_t)weights[weight_starts[i] + k] * energy;
            next += (uint64_t)(int64_t)unweights[weight_starts[i] + k] * energy;
        }
        if (i > 0) {
            output[i - 1] = sum;
        }
        sum = next;
    }
}

/* Square roots, shifted right. */
static inline void tvm_ext_audio_square_roots(const uint64_t *input, uint32_t *output, int32_t channels, int32_t shift)
{
    for (int32_t i = 0; i < channels; ++i) {
        output[i] = tvm_ext_audio_sqrt_u64(input[i]) >> shift;
    }
}

/* Smoothing of noise: weights of a channel and of the estimate before, of channels of even and of odd number. */
typedef struct {
    uint32_t smoothing[2];
    uint32_t one_minus_smoothing[2];
    uint32_t least_remaining;
    int32_t smoothing_bits;
    int32_t fraction_bits;
    int32_t clamps;
} tvm_ext_audio_noise;

/* Channels without the noise in them, and its estimate behind them, which is the next run's. */
static inline void tvm_ext_audio_subtract(const uint32_t *input, const uint32_t *before, uint32_t *output,
                                          uint32_t *estimate, uint32_t *next, int32_t channels,
                                          const tvm_ext_audio_noise *noise)
{
    for (int32_t i = 0; i < channels; ++i) {
        const uint32_t raised = input[i] << noise->smoothing_bits;
        uint32_t mean = (uint32_t)(((uint64_t)raised * noise->smoothing[i % 2] +
                                    (uint64_t)before[i] * noise->one_minus_smoothing[i % 2]) >>
                                   noise->fraction_bits);
        const uint32_t taken = mean > raised ? raised : mean;
        mean = noise->clamps != 0 ? taken : mean;
        const uint32_t least = (uint32_t)(((uint64_t)input[i] * noise->least_remaining) >> noise->fraction_bits);
        const uint32_t left = (raised - taken) >> noise->smoothing_bits;
        output[i] = left > least ? left : least;
        estimate[i] = mean;
        next[i] = mean;
    }
}

/* Gain for a noise: a curve of a parabola for each number of bits, {start, slope, bend} in the table. */
static inline int32_t tvm_ext_audio_gain(uint32_t x, const int16_t *table)
{
    if (x <= 2u) {
        return table[x];
    }
    const int32_t bits = tvm_ext_audio_bits(x);
    const int16_t *const curve = &table[4 * bits - 6];
    const int32_t fraction = (int32_t)((bits < 11 ? x << (11 - bits) : x >> (bits - 11)) & 0x3FFu);
    const int32_t slope = ((curve[2] * fraction) >> 5) + curve[1] * 32;
    return (int16_t)(((slope * fraction + (1 << 14)) >> 15) + curve[0]);
}

/* Channels over their noise, compressed: a quarter of the square of what is below 2, less 1 above. */
static inline void tvm_ext_audio_pcan(const uint32_t *input, const uint32_t *noise, const int16_t *table,
                                      uint32_t *output, int32_t channels, int32_t shift)
{
    for (int32_t i = 0; i < channels; ++i) {
        const uint32_t gain = (uint32_t)tvm_ext_audio_gain(noise[i], table);
        const uint32_t ratio = (uint32_t)(((uint64_t)input[i] * gain) >> shift);
        output[i] = ratio < (UINT32_C(2) << 12) ? (ratio * ratio) >> 20 : (ratio >> 6) - 64u;
    }
}

/* Natural logarithms times `scale`, at most 32767; 0 for what is 0 or 1. table: 128 steps of log2(1 + x) - x. */
static inline void tvm_ext_audio_logarithm(const uint32_t *input, const uint16_t *table, int16_t *output,
                                           int32_t channels, uint32_t scale, int32_t correction_bits)
{
    for (int32_t i = 0; i < channels; ++i) {
        const uint32_t x = input[i] << correction_bits;
        output[i] = 0;
        if (x > 1u) {
            const int32_t whole = tvm_ext_audio_bits(x) - 1;
            const uint32_t above = x - (UINT32_C(1) << whole);
            const int32_t fraction = (int32_t)(whole < 16 ? above << (16 - whole) : above >> (whole - 16));
            const int32_t step = fraction >> 9;
            const int32_t bend = (((int32_t)table[step + 1] - table[step]) * (fraction - 512 * step)) >> 16;
            const uint32_t log2 = ((uint32_t)whole << 16) + (uint32_t)(fraction + table[step] + bend);
            const uint32_t natural = (uint32_t)((UINT64_C(45426) * log2 + 32768u) >> 16);
            const uint32_t scaled = (scale * natural + 32768u) >> 16;
            output[i] = (int16_t)(scaled < INT16_MAX ? scaled : INT16_MAX);
        }
    }
}

#endif
