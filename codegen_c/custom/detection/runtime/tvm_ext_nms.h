/* Boxes of the best scores of each batch and class, without those that overlap better ones (ONNX NonMaxSuppression). */
#ifndef TVM_EXT_NMS_H
#define TVM_EXT_NMS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Boxes of each batch, scores of each class. most: rows of one class at most. rows: of the result.
   is_centred: boxes are {x, y, width, height} around their centres, not two opposite corners {y, x, y, x}. */
typedef struct {
    int32_t batches;
    int32_t classes;
    int32_t boxes;
    int32_t most;
    int32_t rows;
    bool is_centred;
} tvm_ext_nms;

/* Edges {x, y} of least and of largest numbers. */
static inline void tvm_ext_nms_edges(const float *box, bool is_centred, float *edges)
{
    for (int32_t axis = 0; axis < 2; ++axis) {
        if (is_centred) {
            const float half = box[axis + 2] / 2.0f;
            edges[axis] = box[axis] - half;
            edges[axis + 2] = box[axis] + half;
        } else {
            const float first = box[1 - axis];
            const float second = box[3 - axis];
            edges[axis] = first >= second ? second : first;
            edges[axis + 2] = first >= second ? first : second;
        }
    }
}

/* True where the common area of two boxes is more than `most_overlap` of both together; boxes without one never do. */
static inline bool tvm_ext_nms_overlap(const float *a, const float *b, bool is_centred, float most_overlap)
{
    float one[4];
    float other[4];
    float common[2];
    tvm_ext_nms_edges(a, is_centred, one);
    tvm_ext_nms_edges(b, is_centred, other);
    for (int32_t axis = 0; axis < 2; ++axis) {
        const float begin = one[axis] < other[axis] ? other[axis] : one[axis];
        const float end = other[axis + 2] < one[axis + 2] ? other[axis + 2] : one[axis + 2];
        if (end <= begin) {
            return false;
        }
        common[axis] = end - begin;
    }
    const float area = common[0] * common[1];
    const float area_one = (one[2] - one[0]) * (one[3] - one[1]);
    const float area_other = (other[2] - other[0]) * (other[3] - other[1]);
    const float together = area_one + area_other - area;
    if (area <= 0.0f || area_one <= 0.0f || area_other <= 0.0f || together <= 0.0f) {
        return false;
    }
    return area / together > most_overlap;
}

/* The open box of the best score, the first of equal ones; -1 where none is open. */
static inline int32_t tvm_ext_nms_best(const float *scores, const uint8_t *open, int32_t boxes)
{
    int32_t best = -1;
    for (int32_t i = 0; i < boxes; ++i) {
        if (open[i] != 0u && (best < 0 || scores[i] > scores[best])) {
            best = i;
        }
    }
    return best;
}

/* Rows {batch, class, box}, best scores of a class first; -1 in those behind the last. open: memory, one a box.
   score_threshold: scores have to be above it; NULL takes all that are numbers. */
static inline void tvm_ext_nms_rows(const float *boxes, const float *scores, float most_overlap,
                                    const float *score_threshold, int64_t *rows, uint8_t *open,
                                    const tvm_ext_nms *shape)
{
    int32_t count = 0;
    for (int32_t pair = 0; pair < shape->batches * shape->classes; ++pair) {
        const int32_t batch = pair / shape->classes;
        const float *const of_batch = &boxes[4 * batch * shape->boxes];
        const float *const of_class = &scores[pair * shape->boxes];
        for (int32_t i = 0; i < shape->boxes; ++i) {
            const bool counts = score_threshold != NULL ? of_class[i] > *score_threshold : !isnan(of_class[i]);
            open[i] = counts ? 1u : 0u;
        }
        for (int32_t n = 0; n < shape->most; ++n) {
            const int32_t best = tvm_ext_nms_best(of_class, open, shape->boxes);
            if (best < 0) {
                break;
            }
            open[best] = 0u;
            for (int32_t i = 0; i < shape->boxes; ++i) {
                if (open[i] != 0u &&
                    tvm_ext_nms_overlap(&of_batch[4 * best], &of_batch[4 * i], shape->is_centred, most_overlap)) {
                    open[i] = 0u;
                }
            }
            rows[3 * count] = batch;
            rows[3 * count + 1] = pair % shape->classes;
            rows[3 * count + 2] = best;
            ++count;
        }
    }
    for (int32_t i = 3 * count; i < 3 * shape->rows; ++i) {
        rows[i] = -1;
    }
}

#endif
