/* Boxes from the heads of a detector: YOLO's with and without anchors, and SSD's. Nothing is allocated.
   Scores are compared as the network gives them; only boxes that reach the threshold take exponential functions. */
#ifndef TVM_EXT_BOXES_H
#define TVM_EXT_BOXES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Corners, score and class of a box. */
typedef struct {
    float x0;
    float y0;
    float x1;
    float y1;
    float score;
    int32_t class_index;
} tvm_ext_box;

/* Elements of an output. A real number is (integer - zero_point) * step. */
typedef enum { tvm_ext_boxes_floats, tvm_ext_boxes_int8, tvm_ext_boxes_uint8, tvm_ext_boxes_int16 } tvm_ext_boxes_kind;

/* least: integers below it cannot reach the threshold; least_real: the same for floats. */
typedef struct {
    tvm_ext_boxes_kind kind;
    float step;
    int32_t zero_point;
    int32_t least;
    float least_real;
} tvm_ext_boxes_elements;

/* A list of boxes in order of their scores. capacity: boxes that it holds; the worst ones fall out. */
typedef struct {
    tvm_ext_box *boxes;
    int32_t count;
    int32_t capacity;
} tvm_ext_boxes_list;

static inline int32_t tvm_ext_boxes_integer(const void *values, int32_t place, tvm_ext_boxes_kind kind)
{
    if (kind == tvm_ext_boxes_int8) {
        return ((const int8_t *)values)[place];
    }
    return kind == tvm_ext_boxes_uint8 ? (int32_t)((const uint8_t *)values)[place] : ((const int16_t *)values)[place];
}

static inline float tvm_ext_boxes_real(const void *values, int32_t place, const tvm_ext_boxes_elements *elements)
{
    if (elements->kind == tvm_ext_boxes_floats) {
        return ((const float *)values)[place];
    }
    return (float)(tvm_ext_boxes_integer(values, place, elements->kind) - elements->zero_point) * elements->step;
}

/* False where an element is too small for the threshold, or NaN. */
static inline bool tvm_ext_boxes_reaches(const void *values, int32_t place, const tvm_ext_boxes_elements *elements)
{
    if (elements->kind == tvm_ext_boxes_floats) {
        return ((const float *)values)[place] >= elements->least_real;
    }
    return tvm_ext_boxes_integer(values, place, elements->kind) >= elements->least;
}

/* Number of the largest of `count` elements that are `spacing` apart, the first one of equal elements. */
static inline int32_t tvm_ext_boxes_best(const void *values, int32_t first, int32_t count, int32_t spacing,
                                         tvm_ext_boxes_kind kind)
{
    int32_t best = 0;
    for (int32_t k = 1; k < count; ++k) {
        const int32_t one = first + k * spacing;
        const int32_t other = first + best * spacing;
        const bool is_larger =
            kind == tvm_ext_boxes_floats
                ? ((const float *)values)[one] > ((const float *)values)[other]
                : tvm_ext_boxes_integer(values, one, kind) > tvm_ext_boxes_integer(values, other, kind);
        best = is_larger ? k : best;
    }
    return best;
}

static inline float tvm_ext_boxes_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Puts a box after all boxes with the same or a better score. */
static inline void tvm_ext_boxes_add(tvm_ext_boxes_list *list, const tvm_ext_box *box)
{
    int32_t place = list->count;
    while (place > 0 && list->boxes[place - 1].score < box->score) {
        --place;
    }
    if (place >= list->capacity) {
        return;
    }
    list->count = list->count < list->capacity ? list->count + 1 : list->count;
    memmove(&list->boxes[place + 1], &list->boxes[place], (size_t)(list->count - 1 - place) * sizeof(*list->boxes));
    list->boxes[place] = *box;
}

/* A head of YOLO: for each pixel and anchor x, y, width, height, objectness and classes, before the sigmoid.
   pixels, channels: distances of elements. stride: pixels of the input for one of the head. sizes: {width, height} of
   anchors. is_squared: centres and sizes as YOLOv5 has them, not as YOLOv3. */
typedef struct {
    tvm_ext_boxes_elements elements;
    int32_t rows;
    int32_t columns;
    int32_t anchors;
    int32_t classes;
    int32_t pixels;
    int32_t channels;
    float stride;
    const float *sizes;
    bool is_squared;
    float least_score;
} tvm_ext_boxes_yolo_head;

static inline void tvm_ext_boxes_yolo(const void *values, const tvm_ext_boxes_yolo_head *head, tvm_ext_boxes_list *list)
{
    const int32_t apart = head->channels;
    for (int32_t pixel = 0; pixel < head->rows * head->columns; ++pixel) {
        for (int32_t anchor = 0; anchor < head->anchors; ++anchor) {
            const int32_t first = pixel * head->pixels + anchor * (5 + head->classes) * apart;
            if (!tvm_ext_boxes_reaches(values, first + 4 * apart, &head->elements)) {
                continue;
            }
            const int32_t k = tvm_ext_boxes_best(values, first + 5 * apart, head->classes, apart, head->elements.kind);
            const float known = tvm_ext_boxes_sigmoid(tvm_ext_boxes_real(values, first + 4 * apart, &head->elements));
            const float score =
                known * tvm_ext_boxes_sigmoid(tvm_ext_boxes_real(values, first + (5 + k) * apart, &head->elements));
            if (!(score >= head->least_score)) {
                continue;
            }
            const float corner[2] = {(float)(pixel % head->columns), (float)(pixel / head->columns)};
            float middle[2];
            float half[2];
            for (int32_t axis = 0; axis < 2; ++axis) {
                const float moved =
                    tvm_ext_boxes_sigmoid(tvm_ext_boxes_real(values, first + axis * apart, &head->elements));
                const float size = tvm_ext_boxes_real(values, first + (2 + axis) * apart, &head->elements);
                const float twice = 2.0f * tvm_ext_boxes_sigmoid(size);
                middle[axis] = ((head->is_squared ? 2.0f * moved - 0.5f : moved) + corner[axis]) * head->stride;
                half[axis] = 0.5f * head->sizes[2 * anchor + axis] * (head->is_squared ? twice * twice : expf(size));
            }
            const tvm_ext_box box = {
                middle[0] - half[0], middle[1] - half[1], middle[0] + half[0], middle[1] + half[1], score, k};
            tvm_ext_boxes_add(list, &box);
        }
    }
}

/* A head without anchors, of YOLOv8: for each pixel the distances of its centre to the left, top, right and bottom
   edge, each as `bins` elements whose softmax weights the numbers 0, 1, ..., or as a number if `bins` is 1; and scores
   of the classes before the sigmoid. distance_pixels, score_pixels, channels: distances of elements. stride: pixels of
   the input for one of the head. */
typedef struct {
    tvm_ext_boxes_elements distances;
    tvm_ext_boxes_elements scores;
    int32_t rows;
    int32_t columns;
    int32_t bins;
    int32_t classes;
    int32_t distance_pixels;
    int32_t score_pixels;
    int32_t channels;
    float stride;
    float least_score;
} tvm_ext_boxes_free_head;

/* Mean of the numbers of `bins` elements, weighted by their softmax. */
static inline float tvm_ext_boxes_distance(const void *values, int32_t first, const tvm_ext_boxes_free_head *head)
{
    if (head->bins == 1) {
        return tvm_ext_boxes_real(values, first, &head->distances);
    }
    const int32_t best = tvm_ext_boxes_best(values, first, head->bins, head->channels, head->distances.kind);
    const float largest = tvm_ext_boxes_real(values, first + best * head->channels, &head->distances);
    float total = 0.0f;
    float sum = 0.0f;
    for (int32_t bin = 0; bin < head->bins; ++bin) {
        const float x = tvm_ext_boxes_real(values, first + bin * head->channels, &head->distances);
        const float weight = expf(x - largest);
        total += weight;
        sum += weight * (float)bin;
    }
    return sum / total;
}

/* first: of the scores in their output. */
static inline void tvm_ext_boxes_free(const void *distances, const void *scores, int32_t first,
                                      const tvm_ext_boxes_free_head *head, tvm_ext_boxes_list *list)
{
    const int32_t apart = head->channels;
    for (int32_t pixel = 0; pixel < head->rows * head->columns; ++pixel) {
        const int32_t own = first + pixel * head->score_pixels;
        const int32_t k = tvm_ext_boxes_best(scores, own, head->classes, apart, head->scores.kind);
        if (!tvm_ext_boxes_reaches(scores, own + k * apart, &head->scores)) {
            continue;
        }
        const float score = tvm_ext_boxes_sigmoid(tvm_ext_boxes_real(scores, own + k * apart, &head->scores));
        if (!(score >= head->least_score)) {
            continue;
        }
        const float middle[2] = {(float)(pixel % head->columns) + 0.5f, (float)(pixel / head->columns) + 0.5f};
        float edge[4];
        for (int32_t side = 0; side < 4; ++side) {
            const int32_t place = pixel * head->distance_pixels + side * head->bins * apart;
            const float distance = tvm_ext_boxes_distance(distances, place, head);
            edge[side] = (side < 2 ? middle[side] - distance : middle[side - 2] + distance) * head->stride;
        }
        const tvm_ext_box box = {edge[0], edge[1], edge[2], edge[3], score, k};
        tvm_ext_boxes_add(list, &box);
    }
}

/* Heads of SSD: encodings {y, x, h, w, ...} and scores of each anchor {y, x, h, w}.
   classes: those of columns `first` on. is_logit: scores are before the sigmoid. scale: {y, x, h, w} of encodings. */
typedef struct {
    tvm_ext_boxes_elements encodings;
    tvm_ext_boxes_elements scores;
    int32_t anchors;
    int32_t coordinates;
    int32_t columns;
    int32_t first;
    bool is_logit;
    float scale[4];
    const float *places;
} tvm_ext_boxes_ssd_head;

static inline void tvm_ext_boxes_ssd(const void *encodings, const void *scores, const tvm_ext_boxes_ssd_head *head,
                                     tvm_ext_boxes_list *list)
{
    for (int32_t i = 0; i < head->anchors; ++i) {
        const int32_t first = i * head->columns + head->first;
        const int32_t k = tvm_ext_boxes_best(scores, first, head->columns - head->first, 1, head->scores.kind);
        if (!tvm_ext_boxes_reaches(scores, first + k, &head->scores)) {
            continue;
        }
        const float found = tvm_ext_boxes_real(scores, first + k, &head->scores);
        const float *const anchor = &head->places[4 * i];
        float middle[2];
        float half[2];
        for (int32_t axis = 0; axis < 2; ++axis) {
            const int32_t code = i * head->coordinates + axis;
            middle[axis] =
                tvm_ext_boxes_real(encodings, code, &head->encodings) / head->scale[axis] * anchor[axis + 2] +
                anchor[axis];
            half[axis] = 0.5f *
                         expf(tvm_ext_boxes_real(encodings, code + 2, &head->encodings) / head->scale[axis + 2]) *
                         anchor[axis + 2];
        }
        const tvm_ext_box box = {middle[1] - half[1],
                                 middle[0] - half[0],
                                 middle[1] + half[1],
                                 middle[0] + half[0],
                                 head->is_logit ? tvm_ext_boxes_sigmoid(found) : found,
                                 k};
        tvm_ext_boxes_add(list, &box);
    }
}

/* Common area of two boxes by that of both together; 0 where one has none. */
static inline float tvm_ext_boxes_overlap(const tvm_ext_box *a, const tvm_ext_box *b)
{
    const float area_a = (a->x1 - a->x0) * (a->y1 - a->y0);
    const float area_b = (b->x1 - b->x0) * (b->y1 - b->y0);
    const float width = (a->x1 < b->x1 ? a->x1 : b->x1) - (a->x0 < b->x0 ? b->x0 : a->x0);
    const float height = (a->y1 < b->y1 ? a->y1 : b->y1) - (a->y0 < b->y0 ? b->y0 : a->y0);
    if (area_a <= 0.0f || area_b <= 0.0f || width <= 0.0f || height <= 0.0f) {
        return 0.0f;
    }
    return width * height / (area_a + area_b - width * height);
}

/* Move the boxes that overlap no better box of their class to the front, `most` at most; their number. */
static inline int32_t tvm_ext_boxes_select(const tvm_ext_boxes_list *list, float most_overlap, int32_t most)
{
    int32_t count = 0;
    for (int32_t i = 0; i < list->count && count < most; ++i) {
        bool is_apart = true;
        for (int32_t n = 0; n < count && is_apart; ++n) {
            is_apart = list->boxes[n].class_index != list->boxes[i].class_index ||
                       !(tvm_ext_boxes_overlap(&list->boxes[n], &list->boxes[i]) > most_overlap);
        }
        if (is_apart) {
            list->boxes[count] = list->boxes[i];
            ++count;
        }
    }
    return count;
}

#endif
