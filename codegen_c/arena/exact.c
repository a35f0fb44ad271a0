/* Offsets of buffers below a capacity, by complete depth-first search; exact.py prepares the problem and says what its
   numbers mean.

   Pushed down as far as it goes, every buffer of a solution lies at address 0, at its fixed offset, or on another
   buffer. Such solutions are built from the bottom up: offsets never fall, and buffers at one offset come by rank, so
   that each solution is met once. `least` is the lowest offset the buffers placed so far leave to one that is open
   (not placed yet). A branch ends when
     - open buffers of a section of time cannot lie between its lowest least offset and the capacity;
     - a gap stays below the buffer placed that an open buffer would fill;
     - an open buffer lies too low to come later, and no open neighbour can lift it.
   A buffer without open neighbours has one place worth trying. Open buffers that fall apart in time are solved one
   part after the other, each part ranked anew. */
#include <stdlib.h>

#include "exact.h"

enum { GAVE_UP = -1, IMPOSSIBLE = 0, FOUND = 1, OUT_OF_MEMORY = 2 };

static int has_open_neighbour(const search *s, int32_t b)
{
    for (int32_t k = s->p->first_neighbour[b]; k < s->p->first_neighbour[b + 1]; ++k) {
        if (s->offset[s->p->neighbour[k]] < 0) {
            return 1;
        }
    }
    return 0;
}

static int comes_later(const search *s, int32_t b, int64_t offset, int32_t rank)
{
    return s->least[b] > offset || (s->least[b] == offset && (s->rank[b] > rank || s->p->unordered[b]));
}

/* True where every open buffer passed over at (offset, rank) has an open neighbour that lifts it and leaves no gap. */
static int can_be_lifted(const search *s, const int32_t *open, int32_t count, int64_t offset, int32_t rank)
{
    const exact_problem *p = s->p;
    for (int32_t i = 0; i < count; ++i) {
        const int32_t b = open[i];
        if (s->offset[b] >= 0 || comes_later(s, b, offset, rank)) {
            continue;
        }
        const int64_t top = s->least[b] + p->size[b];
        int lifted = 0;
        for (int32_t k = p->first_neighbour[b]; !lifted && k < p->first_neighbour[b + 1]; ++k) {
            lifted = s->offset[p->neighbour[k]] < 0 && s->least[p->neighbour[k]] < top;
        }
        if (p->fixed[b] >= 0 || top <= offset || !lifted) {
            return 0;
        }
    }
    return 1;
}

static int ranks_before(const search *s, int32_t a, int32_t b)
{
    for (const char *key = s->keys; *key != '\0'; ++key) {
        const int64_t *values = *key == 'W'   ? s->p->width
                                : *key == 'A' ? s->p->area
                                : *key == 'Z' ? s->p->size
                                              : s->crowd;
        if (values[a] != values[b]) {
            return values[a] > values[b];
        }
    }
    return a < b;
}

static void rank_anew(search *s, const int32_t *open, int32_t count, int32_t *sorted)
{
    for (int32_t i = 0; i < count; ++i) {
        const int32_t b = open[i];
        s->crowd[b] = 0;
        for (int32_t k = s->p->first_use[b]; k < s->p->first_use[b + 1]; ++k) {
            const int64_t left = s->left[s->p->used_section[k]];
            s->crowd[b] = left > s->crowd[b] ? left : s->crowd[b];
        }
        int32_t j = i;
        for (; j > 0 && ranks_before(s, b, sorted[j - 1]); --j) {
            sorted[j] = sorted[j - 1];
        }
        sorted[j] = b;
    }
    for (int32_t i = 0; i < count; ++i) {
        s->rank[sorted[i]] = i;
    }
}

static int explore(search *s, const int32_t *open, int32_t count, int64_t floor, int32_t floor_rank, int32_t *stack);

/* Two parts that do not meet in time: open[0, first) and the rest. */
static int explore_parts(search *s, const int32_t *open, int32_t count, int32_t first, int64_t floor, int32_t *stack)
{
    int32_t *ranks = stack, *above = stack + count;
    for (int32_t i = 0; i < count; ++i) {
        ranks[i] = s->rank[open[i]];
    }
    rank_anew(s, open, first, above);
    int result = explore(s, open, first, floor, -1, above);
    if (result == FOUND) {
        rank_anew(s, open + first, count - first, above);
        result = explore(s, open + first, count - first, floor, -1, above);
    }
    for (int32_t i = 0; i < count; ++i) {
        s->rank[open[i]] = ranks[i];
    }
    return result;
}

/* Open buffers worth placing next, in the order to try them. */
static int32_t candidates(const search *s, const int32_t *open, int32_t count, int64_t floor, int32_t floor_rank,
                          int32_t *found)
{
    const exact_problem *p = s->p;
    int32_t reach = 0, num = 0;
    int64_t crowd = 0, limit = INT64_MAX;
    for (int32_t i = 0; i < count; ++i) {
        const int32_t b = open[i];
        const int64_t top = s->least[b] + (p->fixed[b] >= 0 ? 1 : p->size[b]);
        limit = top < limit ? top : limit;
        reach = p->end[b] > reach ? p->end[b] : reach;
    }
    for (int32_t section = p->begin[open[0]]; section < reach; ++section) {
        crowd = s->left[section] > crowd ? s->left[section] : crowd;
    }
    limit = p->capacity - crowd < limit ? p->capacity - crowd + 1 : limit;
    for (int32_t i = 0; i < count; ++i) {
        const int32_t b = open[i];
        const int is_second_twin = p->twin[b] >= 0 && s->offset[p->twin[b]] < 0;
        if (s->least[b] >= limit || is_second_twin || !comes_later(s, b, floor, floor_rank)) {
            continue;
        }
        int32_t j = num++;
        for (; j > 0; --j) {
            const int32_t other = found[j - 1];
            if (s->least[other] < s->least[b] || (s->least[other] == s->least[b] && s->rank[other] < s->rank[b])) {
                break;
            }
            found[j] = other;
        }
        found[j] = b;
    }
    return num;
}

static int explore(search *s, const int32_t *open, int32_t count, int64_t floor, int32_t floor_rank, int32_t *stack)
{
    const exact_problem *p = s->p;
    if (count == 0) {
        return FOUND;
    }
    if (s->nodes-- <= 0) {
        return GAVE_UP;
    }
    int32_t reach = p->end[open[0]];
    for (int32_t i = 1; i < count; ++i) {
        if (p->begin[open[i]] >= reach) {
            return explore_parts(s, open, count, i, floor, stack);
        }
        reach = p->end[open[i]] > reach ? p->end[open[i]] : reach;
    }
    const int32_t num = candidates(s, open, count, floor, floor_rank, stack);
    int32_t *rest = stack + num;
    for (int32_t i = 0; i < num; ++i) {
        const int32_t b = stack[i];
        const int64_t trail_length = s->trail_length;
        const int is_free = !has_open_neighbour(s, b);
        int result = IMPOSSIBLE;
        if (place(s, b) && can_be_lifted(s, open, count, s->offset[b], s->rank[b])) {
            int32_t num_rest = 0;
            for (int32_t j = 0; j < count; ++j) {
                rest[num_rest] = open[j];
                num_rest += open[j] != b;
            }
            result = explore(s, rest, count - 1, s->offset[b], s->rank[b], rest + count);
        }
        s->solution[b] = s->offset[b];
        undo(s, b, trail_length);
        if (result != IMPOSSIBLE || is_free) {
            return result;
        }
    }
    return IMPOSSIBLE;
}

/* 1 and offsets, 0 if there are none, -1 after most_nodes partial solutions, 2 without memory. keys: of ranks,
   one letter each: W width, A area, Z size, T crowd. */
int exact_offsets(const exact_problem *problem, const char *keys, int64_t most_nodes, int64_t *offsets)
{
    const size_t n = (size_t)problem->count, m = (size_t)problem->num_sections + 1;
    const size_t room = (size_t)problem->first_neighbour[n] + n * m + 1;
    search s = {.p = problem, .keys = keys, .nodes = most_nodes, .solution = offsets};
    int64_t *numbers = calloc(3 * n + 2 * m, sizeof(int64_t));
    int32_t *indices = calloc(2 * n + m + 2 * (n + 2) * (n + 2), sizeof(int32_t));
    s.trail = malloc(room * sizeof(change));
    s.is_changed = calloc(m, 1);
    int result = OUT_OF_MEMORY;
    if (numbers && indices && s.trail && s.is_changed) {
        s.offset = numbers, s.least = s.offset + n, s.crowd = s.least + n, s.left = s.crowd + n, s.floor = s.left + m;
        s.rank = indices, s.changed = s.rank + n;
        int32_t *open = s.changed + m;
        for (int32_t b = 0; b < problem->count; ++b) {
            open[b] = b;
        }
        result = begin_search(&s) ? FOUND : IMPOSSIBLE;
        rank_anew(&s, open, problem->count, open + n);
        result = result == FOUND ? explore(&s, open, problem->count, 0, -1, open + n) : result;
    }
    free(s.is_changed);
    free(s.trail);
    free(indices);
    free(numbers);
    return result;
}
