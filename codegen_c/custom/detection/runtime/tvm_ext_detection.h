/* Boxes {ymin, xmin, ymax, xmax} of anchors, and the best of them without those that overlap better ones. */
#ifndef TVM_EXT_DETECTION_H
#define TVM_EXT_DETECTION_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Real numbers of bytes: (byte - zero_point) * step; a step of 0 stands for floats. */
typedef struct {
    int32_t zero_point;
    float step;
    bool is_signed;
} tvm_ext_detection_steps;

/* Boxes, and rows and classes of their scores. first: column of the first class. scale: {y, x, h, w} of encodings.
   most: boxes that come out; most_of_class: of one class, where each is selected for itself. */
typedef struct {
    int32_t boxes;
    int32_t coordinates;
    int32_t columns;
    int32_t classes;
    int32_t first;
    int32_t most;
    int32_t most_of_class;
    float scale[4];
    float least_score;
    float most_overlap;
    tvm_ext_detection_steps encodings;
    tvm_ext_detection_steps scores;
    tvm_ext_detection_steps anchors;
} tvm_ext_detection;

/* Memory of a call: boxes and scores of each anchor, the best found, which anchors may still be taken. */
typedef struct {
    float *boxes;
    float *scores;
    float *best_scores;
    int32_t *best;
    int32_t *selected;
    uint8_t *open;
} tvm_ext_detection_memory;

static inline int32_t tvm_ext_detection_byte(const void *values, int32_t place, const tvm_ext_detection_steps *steps)
{
    return steps->is_signed ? (int32_t)((const int8_t *)values)[place] : (int32_t)((const uint8_t *)values)[place];
}

/* Real number of an element of floats or of bytes. */
static inline float tvm_ext_detection_real(const void *values, int32_t place, const tvm_ext_detection_steps *steps)
{
    if (steps->step > 0.0f) {
        return (float)(tvm_ext_detection_byte(values, place, steps) - steps->zero_point) * steps->step;
    }
    return ((const float *)values)[place];
}

/* The best class of an anchor, the first one of equal scores. The order of bytes is that of their real numbers. */
static inline int32_t tvm_ext_detection_best_class(const void *scores, int32_t anchor, const tvm_ext_detection *shape)
{
    const int32_t first = anchor * shape->columns + shape->first;
    int32_t best = 0;
    for (int32_t k = 1; k < shape->classes; ++k) {
        const bool is_better = shape->scores.step > 0.0f
                                   ? tvm_ext_detection_byte(scores, first + k, &shape->scores) >
                                         tvm_ext_detection_byte(scores, first + best, &shape->scores)
                                   : ((const float *)scores)[first + k] > ((const float *)scores)[first + best];
        best = is_better ? k : best;
    }
    return best;
}

/* Encodings {y, x, h, w} of distances from anchors {y, x, h, w}, in double, as boxes; of anchors that may be selected.
 */
static inline void tvm_ext_detection_decode(const void *encodings, const void *anchors, const void *scores,
                                            float *boxes, const tvm_ext_detection *shape)
{
    for (int32_t i = 0; i < shape->boxes; ++i) {
        const int32_t best = i * shape->columns + shape->first + tvm_ext_detection_best_class(scores, i, shape);
        if (tvm_ext_detection_real(scores, best, &shape->scores) < shape->least_score) {
            continue;
        }
        float code[4];
        float anchor[4];
        for (int32_t k = 0; k < 4; ++k) {
            code[k] = tvm_ext_detection_real(encodings, i * shape->coordinates + k, &shape->encodings);
            anchor[k] = tvm_ext_detection_real(anchors, 4 * i + k, &shape->anchors);
        }
        for (int32_t axis = 0; axis < 2; ++axis) {
            const double extent = (double)anchor[axis + 2];
            const double middle = (double)code[axis] / (double)shape->scale[axis] * extent + (double)anchor[axis];
            const double half = 0.5 * exp((double)code[axis + 2] / (double)shape->scale[axis + 2]) * extent;
            boxes[4 * i + axis] = (float)middle - (float)half;
            boxes[4 * i + axis + 2] = (float)middle + (float)half;
        }
    }
}

/* Common area of two boxes by that of both together; 0 where one has none. */
static inline float tvm_ext_detection_overlap(const float *a, const float *b)
{
    const float area_a = (a[2] - a[0]) * (a[3] - a[1]);
    const float area_b = (b[2] - b[0]) * (b[3] - b[1]);
    if (area_a <= 0.0f || area_b <= 0.0f) {
        return 0.0f;
    }
    const float height = (a[2] < b[2] ? a[2] : b[2]) - (a[0] < b[0] ? b[0] : a[0]);
    const float width = (a[3] < b[3] ? a[3] : b[3]) - (a[1] < b[1] ? b[1] : a[1]);
    const float common = (height > 0.0f ? height : 0.0f) * (width > 0.0f ? width : 0.0f);
    return common / (area_a + area_b - common);
}

/* Anchors of the best scores in memory->scores without those that overlap better ones; their number. */
static inline int32_t tvm_ext_detection_select(int32_t most, const tvm_ext_detection_memory *memory,
                                               const tvm_ext_detection *shape)
{
    for (int32_t i = 0; i < shape->boxes; ++i) {
        memory->open[i] = (uint8_t)(memory->scores[i] >= shape->least_score);
    }
    for (int32_t count = 0; count < most; ++count) {
        int32_t best = -1;
        for (int32_t i = 0; i < shape->boxes; ++i) {
            if (memory->open[i] != 0u && (best < 0 || memory->scores[i] > memory->scores[best])) {
                best = i;
            }
        }
        if (best < 0) {
            return count;
        }
        memory->open[best] = 0;
        memory->selected[count] = best;
        for (int32_t i = 0; i < shape->boxes; ++i) {
            if (memory->open[i] != 0u &&
                tvm_ext_detection_overlap(&memory->boxes[4 * best], &memory->boxes[4 * i]) > shape->most_overlap) {
                memory->open[i] = 0;
            }
        }
    }
    return most;
}

/* The best class of each anchor, and the best anchors by these; their number. */
static inline int32_t tvm_ext_detection_fast(const void *scores, const tvm_ext_detection_memory *memory,
                                             const tvm_ext_detection *shape)
{
    for (int32_t i = 0; i < shape->boxes; ++i) {
        const int32_t best = i * shape->columns + shape->first + tvm_ext_detection_best_class(scores, i, shape);
        memory->scores[i] = tvm_ext_detection_real(scores, best, &shape->scores);
    }
    const int32_t count = tvm_ext_detection_select(shape->most, memory, shape);
    for (int32_t n = 0; n < count; ++n) {
        const int32_t i = memory->selected[n];
        memory->best[n] = i * shape->classes + tvm_ext_detection_best_class(scores, i, shape);
        memory->best_scores[n] = memory->scores[i];
    }
    return count;
}

/* The best anchors of each class for itself, and the best of all of them; their number. */
static inline int32_t tvm_ext_detection_by_class(const void *scores, const tvm_ext_detection_memory *memory,
                                                 const tvm_ext_detection *shape)
{
    int32_t count = 0;
    for (int32_t k = 0; k < shape->classes; ++k) {
        for (int32_t i = 0; i < shape->boxes; ++i) {
            memory->scores[i] = tvm_ext_detection_real(scores, i * shape->columns + shape->first + k, &shape->scores);
        }
        const int32_t found = tvm_ext_detection_select(shape->most_of_class, memory, shape);
        for (int32_t n = 0; n < found; ++n) {
            const float score = memory->scores[memory->selected[n]];
            int32_t place = count;
            while (place > 0 && memory->best_scores[place - 1] < score) {
                --place;
            }
            if (place < shape->most) {
                count = count < shape->most ? count + 1 : count;
                const size_t behind = (size_t)(count - 1 - place);
                memmove(&memory->best[place + 1], &memory->best[place], behind * sizeof(*memory->best));
                memmove(&memory->best_scores[place + 1], &memory->best_scores[place],
                        behind * sizeof(*memory->best_scores));
                memory->best[place] = memory->selected[n] * shape->classes + k;
                memory->best_scores[place] = score;
            }
        }
    }
    return count;
}

/* The best boxes, their classes and scores, and how many there are; zeros behind them. */
static inline void tvm_ext_detection_results(const tvm_ext_detection_memory *memory, int32_t count, float *boxes,
                                             float *classes, float *scores, float *number,
                                             const tvm_ext_detection *shape)
{
    memset(boxes, 0, (size_t)shape->most * 4u * sizeof(*boxes));
    memset(classes, 0, (size_t)shape->most * sizeof(*classes));
    memset(scores, 0, (size_t)shape->most * sizeof(*scores));
    for (int32_t n = 0; n < count; ++n) {
        memcpy(&boxes[4 * n], &memory->boxes[4 * (memory->best[n] / shape->classes)], 4u * sizeof(*boxes));
        classes[n] = (float)(memory->best[n] % shape->classes);
        scores[n] = memory->best_scores[n];
    }
    number[0] = (float)count;
}

#endif
