/* Products of two quantized activations by Helium: two vectors by four columns of a matrix at a time.
 *
 * A head's matrix is packed in scratch first, for all vectors that are multiplied by it: four columns at a time, 16
 * bytes of each in turn, with zeros after them; so the loops of tvm_ext_helium_channels.h read it like weights.
 * Vectors that are uint8, or no whole steps of 16 bytes, are copied. */
#ifndef TVM_EXT_HELIUM_MATMUL_H
#define TVM_EXT_HELIUM_MATMUL_H

#include "tvm_ext_helium_channels.h"
#include "tvm_ext_layer.h"
#include "tvm_ext_matrices.h"

typedef struct {
    tvm_ext_image input;  /* a vector in each pixel; the zero point is that of its elements as int8 */
    tvm_ext_image output; /* a vector in each pixel */
    tvm_ext_matrices second;
    tvm_ext_helium_product product;
} tvm_ext_helium_matmul_layer;

/* Multiplies two vectors by a packed matrix; one if both are the same. It is not inlined, so that it has all
   registers to itself. */
typedef void tvm_ext_helium_two_vectors(const int8_t *x0, const int8_t *x1, uint8_t *y0, uint8_t *y1,
                                        const int8_t *matrix, const int32_t *start, const int32_t *restrict factors);

/* Copies elements that are `step` apart as int8: 16 in a row, with zeros after the first `count`. Returns their sum. */
#if defined(TVM_EXT_HAS_HELIUM)

TVM_EXT_INLINE int32_t tvm_ext_helium_pack_column(int8_t *target, const uint8_t *source, int32_t step, int32_t count,
                                                  bool is_unsigned)
{
    const mve_pred16_t inside = vctp8q((uint32_t)count);
    if (step == 1) {
        int8x16_t bytes = vldrbq_z_s8((const int8_t *)source, inside);
        if (is_unsigned) {
            bytes = veorq_m_s8(bytes, bytes, vdupq_n_s8(INT8_MIN), inside);
        }
        vstrbq_s8(target, bytes);
        return vaddvq_s8(bytes);
    }
    const uint16x8_t places = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)step);
    const mve_pred16_t first = vctp16q((uint32_t)count);
    const mve_pred16_t others = vctp16q((uint32_t)(count > 8 ? count - 8 : 0));
    const uint8_t *const behind = &source[count > 8 ? 8 * step : 0];
    int16x8_t low = vldrbq_gather_offset_z_s16((const int8_t *)source, places, first);
    int16x8_t high = vldrbq_gather_offset_z_s16((const int8_t *)behind, places, others);
    if (is_unsigned) {
        low = veorq_m_s16(low, low, vdupq_n_s16(INT8_MIN), first);
        high = veorq_m_s16(high, high, vdupq_n_s16(INT8_MIN), others);
        low = vmovlbq_s8(vreinterpretq_s8_s16(low));
        high = vmovlbq_s8(vreinterpretq_s8_s16(high));
    }
    vstrbq_s16(target, low);
    vstrbq_s16(&target[8], high);
    return vaddvaq_s16(vaddvq_s16(low), high);
}

/* Returns the sum of `steps` times 16 bytes. */
TVM_EXT_INLINE int32_t tvm_ext_helium_byte_sum(const int8_t *x, int32_t steps)
{
    int32_t sum = 0;
    for (int32_t s = 0; s < steps; ++s) {
        sum = vaddvaq_s8(sum, vldrbq_s8(&x[s * TVM_EXT_HELIUM_STEP]));
    }
    return sum;
}

#else

TVM_EXT_INLINE int32_t tvm_ext_helium_pack_column(int8_t *target, const uint8_t *source, int32_t step, int32_t count,
                                                  bool is_unsigned)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < TVM_EXT_HELIUM_STEP; ++i) {
        const uint8_t byte = i < count ? (uint8_t)(source[i * step] ^ (is_unsigned ? 0x80u : 0u)) : 0u;
        target[i] = (int8_t)byte;
        sum += target[i];
    }
    return sum;
}

TVM_EXT_INLINE int32_t tvm_ext_helium_byte_sum(const int8_t *x, int32_t steps)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < steps * TVM_EXT_HELIUM_STEP; ++i) {
        sum += x[i];
    }
    return sum;
}

#endif

/* Packs a matrix, and computes the initial sum of each column, which contains the part of the vectors' zero point. */
TVM_EXT_INLINE void tvm_ext_helium_pack_matrix(const tvm_ext_helium_matmul_layer *layer, const uint8_t *source,
                                               int8_t *matrix, int32_t *start)
{
    const tvm_ext_matrices *const second = &layer->second;
    const int32_t steps = layer->product.steps;
    const int32_t both = second->depth * layer->input.zero_point * second->zero_point;
    for (int32_t n = 0; n < second->columns; ++n) {
        int8_t *const column = &matrix[((n / 4 * steps * 4) + (n % 4)) * TVM_EXT_HELIUM_STEP];
        int32_t sum = 0;
        for (int32_t s = 0; s < steps; ++s) {
            const int32_t c = s * TVM_EXT_HELIUM_STEP;
            const int32_t rest = second->depth - c;
            sum += tvm_ext_helium_pack_column(
                &column[4 * c], &source[(n * second->column_step) + (c * second->element_step)], second->element_step,
                rest < TVM_EXT_HELIUM_STEP ? rest : TVM_EXT_HELIUM_STEP, second->is_unsigned);
        }
        start[n] = both - (layer->input.zero_point * sum);
    }
}

/* Multiplies two vectors by a packed matrix. */
TVM_EXT_INLINE void tvm_ext_helium_matmul_two(const tvm_ext_helium_matmul_layer *layer, const int8_t *x0,
                                              const int8_t *x1, uint8_t *y0, uint8_t *y1, const int8_t *matrix,
                                              const int32_t *start, const int32_t *restrict factors)
{
    const tvm_ext_helium_product *const product = &layer->product;
    const int32_t bytes = tvm_ext_helium_output_bytes(product);
    const int32_t zero_point = layer->second.zero_point;
    tvm_ext_i32x4 first = tvm_ext_i32x4_splat(0);
    tvm_ext_i32x4 other = first;
    if (zero_point != 0) {
        first = tvm_ext_i32x4_splat(-zero_point * tvm_ext_helium_byte_sum(x0, product->steps));
        other = tvm_ext_i32x4_splat(-zero_point * tvm_ext_helium_byte_sum(x1, product->steps));
    }
    for (int32_t k = 0; k < product->channels; k += TVM_EXT_HELIUM_BLOCK) {
        const tvm_ext_i32x4 begin = tvm_ext_i32x4_load(&start[k]);
        tvm_ext_i32x4 sums[2];
        sums[0] = zero_point != 0 ? tvm_ext_i32x4_add(begin, first) : begin;
        sums[1] = zero_point != 0 ? tvm_ext_i32x4_add(begin, other) : begin;
        matrix = tvm_ext_helium_add_row(product, sums, x0, x1, 0, matrix, 2);
        tvm_ext_helium_store_block(product, sums, &y0[k * bytes], &y1[k * bytes], factors, product->channels - k, 2);
    }
}

/* Computes output rows [row_begin, row_end), head by head. factors: four unused numbers each, multipliers and
 * shifts. scratch: initial sums, a packed matrix, and memory for two vectors if they are copied. */
TVM_EXT_INLINE void tvm_ext_helium_matmul(const tvm_ext_helium_matmul_layer *layer, tvm_ext_helium_two_vectors *two,
                                          const void *input, const void *second, void *output,
                                          const int32_t *restrict factors, void *scratch, int32_t row_begin,
                                          int32_t row_end)
{
    const tvm_ext_matrices *const matrices = &layer->second;
    const bool inside = matrices->heads_inside;
    const int32_t blocks = (matrices->columns + TVM_EXT_HELIUM_BLOCK - 1) / TVM_EXT_HELIUM_BLOCK;
    const int32_t row_bytes = layer->product.steps * TVM_EXT_HELIUM_STEP;
    int32_t *const start = (int32_t *)scratch;
    int8_t *const matrix = (int8_t *)&start[blocks * TVM_EXT_HELIUM_BLOCK];
    int8_t *const copy = &matrix[blocks * TVM_EXT_HELIUM_BLOCK * row_bytes];
    const bool is_copied = layer->input.is_unsigned || row_bytes != matrices->depth;
    const int32_t begin = inside ? row_begin : 0;
    const int32_t end = inside ? row_end : layer->output.columns;
    for (int32_t head = inside ? 0 : row_begin; head < (inside ? matrices->heads : row_end); ++head) {
        tvm_ext_helium_pack_matrix(layer, &((const uint8_t *)second)[head * matrices->head_step], matrix, start);
        for (int32_t i = begin; i < end; i += 2) {
            const uint8_t *x[2];
            uint8_t *y[2];
            for (int32_t j = 0; j < 2; ++j) {
                const int32_t row = i + j < end ? i + j : i;
                const int32_t h = inside ? row : head;
                const int32_t w = inside ? head : row;
                x[j] = &((const uint8_t *)input)[tvm_ext_row(&layer->input, 0, h) + (w * matrices->depth)];
                y[j] = &((uint8_t *)output)[tvm_ext_row(&layer->output, 0, h) + (w * matrices->columns)];
                if (is_copied) {
                    for (int32_t c = 0; c < matrices->depth; c += TVM_EXT_HELIUM_STEP) {
                        const int32_t rest = matrices->depth - c;
                        (void)tvm_ext_helium_pack_column(&copy[(j * row_bytes) + c], &x[j][c], 1,
                                                         rest < TVM_EXT_HELIUM_STEP ? rest : TVM_EXT_HELIUM_STEP,
                                                         layer->input.is_unsigned);
                    }
                    x[j] = (const uint8_t *)&copy[j * row_bytes];
                }
            }
            two((const int8_t *)x[0], (const int8_t *)x[1], y[0], y[1], matrix, start, factors);
        }
    }
}

#endif
