/* Matrices of quantized elements as cells of 16-bit pairs minus their zero point, four columns adjacent. */
#ifndef TVM_EXT_DSP_MATRIX_H
#define TVM_EXT_DSP_MATRIX_H

#include "tvm_ext_dsp.h"
#include "tvm_ext_matrices.h"

#define TVM_EXT_DSP_COLUMNS 4

/* Returns bytes 0 and 2, or 1 and 3, of a word of the second tensor. */
TVM_EXT_INLINE uint32_t tvm_ext_dsp_matrix_even(const tvm_ext_matrices *second, uint32_t word)
{
    return second->is_unsigned ? tvm_ext_dsp_even_u8(word) : tvm_ext_dsp_even_s8(word);
}

TVM_EXT_INLINE uint32_t tvm_ext_dsp_matrix_odd(const tvm_ext_matrices *second, uint32_t word)
{
    return second->is_unsigned ? tvm_ext_dsp_odd_u8(word) : tvm_ext_dsp_odd_s8(word);
}

/* Returns the zero point in both halves. */
TVM_EXT_INLINE uint32_t tvm_ext_dsp_matrix_zeros(const tvm_ext_matrices *second)
{
    return tvm_ext_dsp_lows((uint32_t)second->zero_point, (uint32_t)second->zero_point);
}

/* Returns cell (c, c + 2) of column n minus the zero point; zeros beyond the matrix. */
TVM_EXT_INLINE uint32_t tvm_ext_dsp_matrix_cell(const tvm_ext_matrices *second, const uint8_t *matrix, int32_t n,
                                                int32_t c)
{
    const int32_t place = (n * second->column_step) + (c * second->element_step);
    const bool has_first = n < second->columns && c < second->depth;
    const bool has_second = n < second->columns && c + 2 < second->depth;
    const int32_t first = has_first ? tvm_ext_matrix_element(second, matrix, place) : 0;
    const int32_t other = has_second ? tvm_ext_matrix_element(second, matrix, place + (2 * second->element_step)) : 0;
    return tvm_ext_dsp_lows((uint32_t)first, (uint32_t)other);
}

/* Expands both cells of a unit of column n, whose elements are adjacent. */
TVM_EXT_INLINE void tvm_ext_dsp_expand_column(const tvm_ext_matrices *second, const uint8_t *matrix, uint32_t *cells,
                                              int32_t n, int32_t c)
{
    const uint32_t word = tvm_ext_dsp_load(&matrix[(n * second->column_step) + c]);
    const uint32_t zeros = tvm_ext_dsp_matrix_zeros(second);
    cells[0] = tvm_ext_dsp_subtract_pair(tvm_ext_dsp_matrix_even(second, word), zeros);
    cells[4] = tvm_ext_dsp_subtract_pair(tvm_ext_dsp_matrix_odd(second, word), zeros);
}

/* Expands cells (c, c + 2) of four adjacent columns. */
TVM_EXT_INLINE void tvm_ext_dsp_expand_columns(const tvm_ext_matrices *second, const uint8_t *matrix, uint32_t *cells,
                                               int32_t n, int32_t c)
{
    const uint32_t first = tvm_ext_dsp_load(&matrix[(c * second->element_step) + n]);
    const uint32_t other = tvm_ext_dsp_load(&matrix[((c + 2) * second->element_step) + n]);
    const uint32_t zeros = tvm_ext_dsp_matrix_zeros(second);
    const uint32_t even = tvm_ext_dsp_matrix_even(second, first), odd = tvm_ext_dsp_matrix_odd(second, first);
    const uint32_t other_even = tvm_ext_dsp_matrix_even(second, other);
    const uint32_t other_odd = tvm_ext_dsp_matrix_odd(second, other);
    cells[0] = tvm_ext_dsp_subtract_pair(tvm_ext_dsp_lows(even, other_even), zeros);
    cells[1] = tvm_ext_dsp_subtract_pair(tvm_ext_dsp_lows(odd, other_odd), zeros);
    cells[2] = tvm_ext_dsp_subtract_pair(tvm_ext_dsp_highs(even, other_even), zeros);
    cells[3] = tvm_ext_dsp_subtract_pair(tvm_ext_dsp_highs(odd, other_odd), zeros);
}

/* Expands the unit from element c on of four columns from n on: eight cells. */
TVM_EXT_INLINE void tvm_ext_dsp_expand_unit(const tvm_ext_matrices *second, const uint8_t *matrix, uint32_t *cells,
                                            int32_t n, int32_t c)
{
    const bool is_whole = n + TVM_EXT_DSP_COLUMNS <= second->columns && c + 4 <= second->depth;
    if (is_whole && second->element_step == 1) {
        tvm_ext_dsp_expand_column(second, matrix, &cells[0], n, c);
        tvm_ext_dsp_expand_column(second, matrix, &cells[1], n + 1, c);
        tvm_ext_dsp_expand_column(second, matrix, &cells[2], n + 2, c);
        tvm_ext_dsp_expand_column(second, matrix, &cells[3], n + 3, c);
    } else if (is_whole && second->column_step == 1) {
        tvm_ext_dsp_expand_columns(second, matrix, &cells[0], n, c);
        tvm_ext_dsp_expand_columns(second, matrix, &cells[4], n, c + 1);
    } else {
        for (int32_t k = 0; k < TVM_EXT_DSP_COLUMNS; ++k) {
            cells[k] = tvm_ext_dsp_matrix_cell(second, matrix, n + k, c);
            cells[4 + k] = tvm_ext_dsp_matrix_cell(second, matrix, n + k, c + 1);
        }
    }
}

#endif
