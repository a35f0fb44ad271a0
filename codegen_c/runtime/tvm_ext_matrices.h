/* The second operand of a product of two activations: a matrix for each head, in the layout of its tensor. */
#ifndef TVM_EXT_MATRICES_H
#define TVM_EXT_MATRICES_H

#include "tvm_ext_layer.h"

typedef struct {
    int32_t heads;
    int32_t depth;        /* elements of a vector of the first operand */
    int32_t columns;      /* elements of a result */
    bool heads_inside;    /* a row of the other tensors is one vector with all its heads; otherwise a head */
    int32_t head_step;    /* elements from one head to the next */
    int32_t column_step;  /* from one column to the next */
    int32_t element_step; /* from one element of a column to the next */
    bool is_unsigned;     /* uint8, otherwise int8 */
    int32_t zero_point;
} tvm_ext_matrices;

/* Returns element i of a matrix minus the zero point. */
TVM_EXT_INLINE int32_t tvm_ext_matrix_element(const tvm_ext_matrices *matrices, const void *matrix, int32_t i)
{
    const int32_t element =
        matrices->is_unsigned ? (int32_t)((const uint8_t *)matrix)[i] : (int32_t)((const int8_t *)matrix)[i];
    return element - matrices->zero_point;
}

#endif
