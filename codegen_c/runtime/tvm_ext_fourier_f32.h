/* Fourier transforms of windowed real frames of floats.
 *
 * A frame of 2 * length samples is a complex signal of `length` points, a sample pair each. Its transform is computed
 * in place by steps of radix 4, 2, 3 and 5, of which the first reads the frame. The spectrum of the real frame is then
 * computed from pairs of mirrored points. Products and sums are rounded one by one, so every processor computes the
 * same bits. The window holds half of each factor, which replaces the halves of the last step. */
#ifndef TVM_EXT_FOURIER_F32_H
#define TVM_EXT_FOURIER_F32_H

#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

/* Steps are functions of their own, which all layers and all steps of a radix share. A model need not use each radix.
 */
#if defined(__GNUC__)
#define TVM_EXT_FOURIER_STEP __attribute__((noinline, unused)) static
#else
#define TVM_EXT_FOURIER_STEP static
#endif

typedef struct {
    float real;
    float imaginary;
} tvm_ext_complex_f32;

/* The frames of a layer. */
typedef struct {
    int32_t length;      /* points of the complex transform: half of the samples of the real one */
    int32_t sample_step; /* elements from one sample to the next */
} tvm_ext_frame;

/* The elements that are written for a frame, for bins [begin, end). */
typedef struct {
    int32_t length; /* as in tvm_ext_frame */
    int32_t begin;
    int32_t end;
    int32_t step;         /* elements from one bin to the next */
    int32_t real;         /* first element of the real parts, or of the powers */
    int32_t imaginary;    /* first element of the imaginary parts */
    bool has_imaginary;   /* imaginary parts are written */
    bool turns_imaginary; /* with the opposite sign */
    bool is_power;        /* the sum of both squares is written instead of both parts */
    bool is_magnitude;    /* the square root of this sum */
} tvm_ext_spectrum;

TVM_EXT_INLINE tvm_ext_complex_f32 tvm_ext_complex_sum_f32(tvm_ext_complex_f32 a, tvm_ext_complex_f32 b)
{
    const tvm_ext_complex_f32 sum = {a.real + b.real, a.imaginary + b.imaginary};
    return sum;
}

TVM_EXT_INLINE tvm_ext_complex_f32 tvm_ext_complex_difference_f32(tvm_ext_complex_f32 a, tvm_ext_complex_f32 b)
{
    const tvm_ext_complex_f32 difference = {a.real - b.real, a.imaginary - b.imaginary};
    return difference;
}

/* Returns a - i * b. */
TVM_EXT_INLINE tvm_ext_complex_f32 tvm_ext_complex_less_turned_f32(tvm_ext_complex_f32 a, tvm_ext_complex_f32 b)
{
    const tvm_ext_complex_f32 result = {a.real + b.imaginary, a.imaginary - b.real};
    return result;
}

/* Returns a + i * b. */
TVM_EXT_INLINE tvm_ext_complex_f32 tvm_ext_complex_plus_turned_f32(tvm_ext_complex_f32 a, tvm_ext_complex_f32 b)
{
    const tvm_ext_complex_f32 result = {a.real - b.imaginary, a.imaginary + b.real};
    return result;
}

/* Returns a * x + b * y. */
TVM_EXT_INLINE tvm_ext_complex_f32 tvm_ext_complex_blend_f32(float a, tvm_ext_complex_f32 x, float b,
                                                             tvm_ext_complex_f32 y)
{
    const tvm_ext_complex_f32 result = {a * x.real + b * y.real, a * x.imaginary + b * y.imaginary};
    return result;
}

/* Returns x times the root of one whose real and imaginary parts `turn` points at. */
TVM_EXT_INLINE tvm_ext_complex_f32 tvm_ext_complex_turn_f32(tvm_ext_complex_f32 x, const float *turn)
{
    const tvm_ext_complex_f32 product = {x.real * turn[0] - x.imaginary * turn[1],
                                         x.real * turn[1] + x.imaginary * turn[0]};
    return product;
}

/* Transforms of two, three, four and five points, which are written `part` points apart. */

TVM_EXT_INLINE void tvm_ext_fourier_of_two_f32(tvm_ext_complex_f32 *y, int32_t part, tvm_ext_complex_f32 a,
                                               tvm_ext_complex_f32 b)
{
    y[0] = tvm_ext_complex_sum_f32(a, b);
    y[part] = tvm_ext_complex_difference_f32(a, b);
}

TVM_EXT_INLINE void tvm_ext_fourier_of_three_f32(tvm_ext_complex_f32 *y, int32_t part, tvm_ext_complex_f32 a,
                                                 tvm_ext_complex_f32 b, tvm_ext_complex_f32 c)
{
    const float sine = 0.8660254f; /* of 1/3 turn; its cosine is -1/2 */
    const tvm_ext_complex_f32 sum = tvm_ext_complex_sum_f32(b, c);
    const tvm_ext_complex_f32 difference = tvm_ext_complex_difference_f32(b, c);
    const tvm_ext_complex_f32 even = {a.real - 0.5f * sum.real, a.imaginary - 0.5f * sum.imaginary};
    const tvm_ext_complex_f32 odd = {sine * difference.real, sine * difference.imaginary};
    y[0] = tvm_ext_complex_sum_f32(a, sum);
    y[part] = tvm_ext_complex_less_turned_f32(even, odd);
    y[2 * part] = tvm_ext_complex_plus_turned_f32(even, odd);
}

TVM_EXT_INLINE void tvm_ext_fourier_of_four_f32(tvm_ext_complex_f32 *y, int32_t part, tvm_ext_complex_f32 a,
                                                tvm_ext_complex_f32 b, tvm_ext_complex_f32 c, tvm_ext_complex_f32 d)
{
    const tvm_ext_complex_f32 even = tvm_ext_complex_sum_f32(a, c);
    const tvm_ext_complex_f32 apart = tvm_ext_complex_difference_f32(a, c);
    const tvm_ext_complex_f32 odd = tvm_ext_complex_sum_f32(b, d);
    const tvm_ext_complex_f32 turned = tvm_ext_complex_difference_f32(b, d);
    y[0] = tvm_ext_complex_sum_f32(even, odd);
    y[part] = tvm_ext_complex_less_turned_f32(apart, turned);
    y[2 * part] = tvm_ext_complex_difference_f32(even, odd);
    y[3 * part] = tvm_ext_complex_plus_turned_f32(apart, turned);
}

TVM_EXT_INLINE void tvm_ext_fourier_of_five_f32(tvm_ext_complex_f32 *y, int32_t part, tvm_ext_complex_f32 a,
                                                tvm_ext_complex_f32 b, tvm_ext_complex_f32 c, tvm_ext_complex_f32 d,
                                                tvm_ext_complex_f32 e)
{
    /* Cosines and sines of 1/5 and of 2/5 turn. */
    const float cosine1 = 0.309017f;
    const float cosine2 = -0.809017f;
    const float sine1 = 0.95105654f;
    const float sine2 = 0.58778524f;
    const tvm_ext_complex_f32 outer = tvm_ext_complex_sum_f32(b, e);
    const tvm_ext_complex_f32 inner = tvm_ext_complex_sum_f32(c, d);
    const tvm_ext_complex_f32 far = tvm_ext_complex_difference_f32(b, e);
    const tvm_ext_complex_f32 close = tvm_ext_complex_difference_f32(c, d);
    const tvm_ext_complex_f32 even1 =
        tvm_ext_complex_sum_f32(a, tvm_ext_complex_blend_f32(cosine1, outer, cosine2, inner));
    const tvm_ext_complex_f32 even2 =
        tvm_ext_complex_sum_f32(a, tvm_ext_complex_blend_f32(cosine2, outer, cosine1, inner));
    const tvm_ext_complex_f32 odd1 = tvm_ext_complex_blend_f32(sine1, far, sine2, close);
    const tvm_ext_complex_f32 odd2 = tvm_ext_complex_blend_f32(sine2, far, -sine1, close);
    y[0] = tvm_ext_complex_sum_f32(a, tvm_ext_complex_sum_f32(outer, inner));
    y[part] = tvm_ext_complex_less_turned_f32(even1, odd1);
    y[2 * part] = tvm_ext_complex_less_turned_f32(even2, odd2);
    y[3 * part] = tvm_ext_complex_plus_turned_f32(even2, odd2);
    y[4 * part] = tvm_ext_complex_plus_turned_f32(even1, odd1);
}

/* Returns samples [begin, begin + count) of a signal of `extent` samples: where they are stored, or a copy in `frame`
 * if some of them lie outside of the signal, which are zero, or if the ring buffer wraps around between them. Sample t
 * is stored at (t + shift) % stored. */
TVM_EXT_INLINE const float *tvm_ext_frame_f32(const float *signal, float *frame, int32_t begin, int32_t count,
                                              int32_t extent, int32_t stored, int32_t shift)
{
    const int32_t first = (TVM_EXT_MAX(begin, 0) + shift) % stored;
    if (begin >= 0 && begin + count <= extent && first + count <= stored) {
        return &signal[first];
    }
    int32_t slot = first;
    for (int32_t n = 0; n < count; ++n) {
        const bool is_inside = begin + n >= 0 && begin + n < extent;
        frame[n] = is_inside ? signal[slot] : 0.0f;
        slot = is_inside ? slot + 1 : slot;
        slot = slot == stored ? 0 : slot;
    }
    return frame;
}

/* The first step. Returns point k of the frame: two samples from index order[k] on, each times its part of the window,
 * which is stored in the order in which it is read here. */
TVM_EXT_INLINE tvm_ext_complex_f32 tvm_ext_fourier_point_f32(const tvm_ext_frame *layer, const float *samples,
                                                             const uint16_t *order, const float *window, int32_t k)
{
    const float *const pair = &samples[order[k] * layer->sample_step];
    const tvm_ext_complex_f32 point = {pair[0] * window[2 * k], pair[layer->sample_step] * window[2 * k + 1]};
    return point;
}

TVM_EXT_INLINE void tvm_ext_fourier_begin_two_f32(const tvm_ext_frame *layer, tvm_ext_complex_f32 *x,
                                                  const float *samples, const uint16_t *order, const float *window)
{
    for (int32_t k = 0; k < layer->length; k += 2) {
        tvm_ext_fourier_of_two_f32(&x[k], 1, tvm_ext_fourier_point_f32(layer, samples, order, window, k),
                                   tvm_ext_fourier_point_f32(layer, samples, order, window, k + 1));
    }
}

TVM_EXT_INLINE void tvm_ext_fourier_begin_three_f32(const tvm_ext_frame *layer, tvm_ext_complex_f32 *x,
                                                    const float *samples, const uint16_t *order, const float *window)
{
    for (int32_t k = 0; k < layer->length; k += 3) {
        tvm_ext_fourier_of_three_f32(&x[k], 1, tvm_ext_fourier_point_f32(layer, samples, order, window, k),
                                     tvm_ext_fourier_point_f32(layer, samples, order, window, k + 1),
                                     tvm_ext_fourier_point_f32(layer, samples, order, window, k + 2));
    }
}

TVM_EXT_INLINE void tvm_ext_fourier_begin_four_f32(const tvm_ext_frame *layer, tvm_ext_complex_f32 *x,
                                                   const float *samples, const uint16_t *order, const float *window)
{
    for (int32_t k = 0; k < layer->length; k += 4) {
        tvm_ext_fourier_of_four_f32(&x[k], 1, tvm_ext_fourier_point_f32(layer, samples, order, window, k),
                                    tvm_ext_fourier_point_f32(layer, samples, order, window, k + 1),
                                    tvm_ext_fourier_point_f32(layer, samples, order, window, k + 2),
                                    tvm_ext_fourier_point_f32(layer, samples, order, window, k + 3));
    }
}

TVM_EXT_INLINE void tvm_ext_fourier_begin_five_f32(const tvm_ext_frame *layer, tvm_ext_complex_f32 *x,
                                                   const float *samples, const uint16_t *order, const float *window)
{
    for (int32_t k = 0; k < layer->length; k += 5) {
        tvm_ext_fourier_of_five_f32(&x[k], 1, tvm_ext_fourier_point_f32(layer, samples, order, window, k),
                                    tvm_ext_fourier_point_f32(layer, samples, order, window, k + 1),
                                    tvm_ext_fourier_point_f32(layer, samples, order, window, k + 2),
                                    tvm_ext_fourier_point_f32(layer, samples, order, window, k + 3),
                                    tvm_ext_fourier_point_f32(layer, samples, order, window, k + 4));
    }
}

/* Further steps: transforms of `part` points become transforms of two to five times as many points. turns: the roots of
 * one by which all but the first of the points are multiplied, for each of points 1 to part - 1. */

TVM_EXT_FOURIER_STEP void tvm_ext_fourier_two_f32(tvm_ext_complex_f32 *x, const float *turns, int32_t length,
                                                  int32_t part)
{
    for (int32_t k = 0; k < length; k += 2 * part) {
        tvm_ext_fourier_of_two_f32(&x[k], part, x[k], x[k + part]);
    }
    for (int32_t j = 1; j < part; ++j) {
        const float turn[2] = {turns[0], turns[1]};
        turns = &turns[2];
        for (int32_t k = j; k < length; k += 2 * part) {
            tvm_ext_fourier_of_two_f32(&x[k], part, x[k], tvm_ext_complex_turn_f32(x[k + part], turn));
        }
    }
}

TVM_EXT_FOURIER_STEP void tvm_ext_fourier_three_f32(tvm_ext_complex_f32 *x, const float *turns, int32_t length,
                                                    int32_t part)
{
    for (int32_t k = 0; k < length; k += 3 * part) {
        tvm_ext_fourier_of_three_f32(&x[k], part, x[k], x[k + part], x[k + 2 * part]);
    }
    for (int32_t j = 1; j < part; ++j) {
        const float turn[4] = {turns[0], turns[1], turns[2], turns[3]};
        turns = &turns[4];
        for (int32_t k = j; k < length; k += 3 * part) {
            tvm_ext_fourier_of_three_f32(&x[k], part, x[k], tvm_ext_complex_turn_f32(x[k + part], turn),
                                         tvm_ext_complex_turn_f32(x[k + 2 * part], &turn[2]));
        }
    }
}

TVM_EXT_FOURIER_STEP void tvm_ext_fourier_four_f32(tvm_ext_complex_f32 *x, const float *turns, int32_t length,
                                                   int32_t part)
{
    for (int32_t k = 0; k < length; k += 4 * part) {
        tvm_ext_fourier_of_four_f32(&x[k], part, x[k], x[k + part], x[k + 2 * part], x[k + 3 * part]);
    }
    for (int32_t j = 1; j < part; ++j) {
        const float turn[6] = {turns[0], turns[1], turns[2], turns[3], turns[4], turns[5]};
        turns = &turns[6];
        for (int32_t k = j; k < length; k += 4 * part) {
            tvm_ext_fourier_of_four_f32(&x[k], part, x[k], tvm_ext_complex_turn_f32(x[k + part], turn),
                                        tvm_ext_complex_turn_f32(x[k + 2 * part], &turn[2]),
                                        tvm_ext_complex_turn_f32(x[k + 3 * part], &turn[4]));
        }
    }
}

TVM_EXT_FOURIER_STEP void tvm_ext_fourier_five_f32(tvm_ext_complex_f32 *x, const float *turns, int32_t length,
                                                   int32_t part)
{
    for (int32_t k = 0; k < length; k += 5 * part) {
        tvm_ext_fourier_of_five_f32(&x[k], part, x[k], x[k + part], x[k + 2 * part], x[k + 3 * part], x[k + 4 * part]);
    }
    for (int32_t j = 1; j < part; ++j) {
        const float turn[8] = {turns[0], turns[1], turns[2], turns[3], turns[4], turns[5], turns[6], turns[7]};
        turns = &turns[8];
        for (int32_t k = j; k < length; k += 5 * part) {
            tvm_ext_fourier_of_five_f32(&x[k], part, x[k], tvm_ext_complex_turn_f32(x[k + part], turn),
                                        tvm_ext_complex_turn_f32(x[k + 2 * part], &turn[2]),
                                        tvm_ext_complex_turn_f32(x[k + 3 * part], &turn[4]),
                                        tvm_ext_complex_turn_f32(x[k + 4 * part], &turn[6]));
        }
    }
}

/* Writes bin k of a spectrum if it is among those of the layer. */
TVM_EXT_INLINE void tvm_ext_spectrum_one_f32(const tvm_ext_spectrum *layer, float *output, int32_t k, float real,
                                             float imaginary)
{
    if (k < layer->begin || k >= layer->end) {
        return;
    }
    const int32_t index = (k - layer->begin) * layer->step;
    if (layer->is_power) {
        const float power = real * real + imaginary * imaginary;
        output[layer->real + index] = layer->is_magnitude ? sqrtf(power) : power;
    } else {
        output[layer->real + index] = real;
        if (layer->has_imaginary) {
            output[layer->imaginary + index] = layer->turns_imaginary ? -imaginary : imaginary;
        }
    }
}

/* Writes bin k, and the mirrored bin, which is its conjugate, in a spectrum of both sides. */
TVM_EXT_INLINE void tvm_ext_spectrum_bin_f32(const tvm_ext_spectrum *layer, float *output, int32_t k, float real,
                                             float imaginary)
{
    tvm_ext_spectrum_one_f32(layer, output, k, real, imaginary);
    if (layer->end > layer->length + 1 && k > 0 && k < layer->length) {
        tvm_ext_spectrum_one_f32(layer, output, 2 * layer->length - k, real, -imaginary);
    }
}

/* The spectrum of the real frame from the complex transform: bin k and bin length - k from points k and length - k.
 * split: cosine and sine of pi * k / length, from k = 1 on. */
TVM_EXT_INLINE void tvm_ext_spectrum_f32(const tvm_ext_spectrum *layer, const tvm_ext_complex_f32 *x,
                                         const float *split, float *output)
{
    const int32_t length = layer->length;
    const float even = 2.0f * x[0].real;
    const float odd = 2.0f * x[0].imaginary;
    tvm_ext_spectrum_bin_f32(layer, output, 0, even + odd, 0.0f);
    tvm_ext_spectrum_bin_f32(layer, output, length, even - odd, 0.0f);
    for (int32_t k = 1; 2 * k < length; ++k) {
        const tvm_ext_complex_f32 a = x[k];
        const tvm_ext_complex_f32 b = x[length - k];
        const float cosine = split[2 * k - 2];
        const float sine = split[2 * k - 1];
        const tvm_ext_complex_f32 sum = {a.real + b.real, a.imaginary - b.imaginary};
        const tvm_ext_complex_f32 difference = {a.real - b.real, a.imaginary + b.imaginary};
        const float real = cosine * difference.imaginary - sine * difference.real;
        const float imaginary = cosine * difference.real + sine * difference.imaginary;
        tvm_ext_spectrum_bin_f32(layer, output, k, sum.real + real, sum.imaginary - imaginary);
        tvm_ext_spectrum_bin_f32(layer, output, length - k, sum.real - real, -sum.imaginary - imaginary);
    }
    if (length % 2 == 0) {
        const tvm_ext_complex_f32 middle = x[length / 2];
        tvm_ext_spectrum_bin_f32(layer, output, length / 2, 2.0f * middle.real, -2.0f * middle.imaginary);
    }
}

#endif
