/* Placing one buffer: neighbours are lifted, sections hold fewer open bytes, and all of it can be undone. */
#include "exact.h"

void find_floor(search *s, int32_t section)
{
    const exact_problem *p = s->p;
    int64_t floor = -1;
    for (int32_t k = p->first_member[section]; k < p->first_member[section + 1]; ++k) {
        const int32_t b = p->member[k];
        if (s->offset[b] < 0 && (floor < 0 || s->least[b] < floor)) {
            floor = s->least[b];
        }
    }
    s->floor[section] = floor;
}

int begin_search(search *s)
{
    const exact_problem *p = s->p;
    int fits = 1;
    for (int32_t b = 0; b < p->count; ++b) {
        s->offset[b] = -1;
        s->least[b] = p->fixed[b] >= 0 ? p->fixed[b] : 0;
    }
    for (int32_t section = 0; section < p->num_sections; ++section) {
        s->left[section] = p->load[section];
        find_floor(s, section);
        fits = fits && s->floor[section] + s->left[section] <= p->capacity;
    }
    return fits;
}

static void remember(search *s, int32_t index, int64_t value)
{
    s->trail[s->trail_length++] = (change){.index = index, .value = value};
}

static int32_t mark_sections(search *s, int32_t b, int64_t floor, int32_t num_changed)
{
    const exact_problem *p = s->p;
    for (int32_t k = p->first_use[b]; k < p->first_use[b + 1]; ++k) {
        const int32_t section = p->used_section[k];
        if (s->floor[section] == floor && !s->is_changed[section]) {
            s->is_changed[section] = 1;
            s->changed[num_changed++] = section;
        }
    }
    return num_changed;
}

/* Adds b to the open bytes of its sections (sign 1), or removes it (-1); shared bytes count while both are open. */
static void count_open(search *s, int32_t b, int64_t sign)
{
    const exact_problem *p = s->p;
    for (int32_t k = p->first_use[b]; k < p->first_use[b + 1]; ++k) {
        s->left[p->used_section[k]] += sign * p->used_bytes[k];
    }
    for (int32_t k = p->first_neighbour[b]; k < p->first_neighbour[b + 1]; ++k) {
        const int32_t n = p->neighbour[k];
        if (p->shared[k] > 0 && s->offset[n] < 0) {
            const int32_t begin = p->begin[b] > p->begin[n] ? p->begin[b] : p->begin[n];
            const int32_t end = p->end[b] < p->end[n] ? p->end[b] : p->end[n];
            for (int32_t section = begin; section < end; ++section) {
                s->left[section] -= sign * p->shared[k];
            }
        }
    }
}

/* Lifts an open buffer that is below `least`; false where it can't be there. */
static int lift(search *s, int32_t b, int64_t least, int32_t *num_changed)
{
    const exact_problem *p = s->p;
    if (s->offset[b] >= 0 || s->least[b] >= least) {
        return 1;
    }
    least = (least + p->alignment[b] - 1) / p->alignment[b] * p->alignment[b];
    *num_changed = mark_sections(s, b, s->least[b], *num_changed);
    remember(s, b, s->least[b]);
    s->least[b] = least;
    return p->fixed[b] < 0 && least + p->size[b] <= p->capacity;
}

/* Finds floors of marked sections again, as long as all fits. */
static int find_floors(search *s, int32_t num_changed, int fits)
{
    for (int32_t i = 0; i < num_changed; ++i) {
        const int32_t section = s->changed[i];
        s->is_changed[section] = 0;
        if (fits) {
            remember(s, -1 - section, s->floor[section]);
            find_floor(s, section);
            fits = s->floor[section] < 0 || s->floor[section] + s->left[section] <= s->p->capacity;
        }
    }
    return fits;
}

int place(search *s, int32_t b)
{
    const exact_problem *p = s->p;
    const int64_t at = s->least[b];
    s->offset[b] = at;
    count_open(s, b, -1);
    int fits = at + p->size[b] <= p->capacity;
    int32_t num_changed = mark_sections(s, b, at, 0);
    for (int32_t k = p->first_neighbour[b]; fits && k < p->first_neighbour[b + 1]; ++k) {
        fits = lift(s, p->neighbour[k], at + p->distance[k], &num_changed);
    }
    return find_floors(s, num_changed, fits);
}

int raise_section(search *s, int32_t section, int64_t offset)
{
    const exact_problem *p = s->p;
    int32_t num_changed = 0;
    int fits = 1;
    for (int32_t k = p->first_member[section]; fits && k < p->first_member[section + 1]; ++k) {
        fits = lift(s, p->member[k], offset, &num_changed);
    }
    return find_floors(s, num_changed, fits);
}

void go_back(search *s, int64_t trail_length)
{
    while (s->trail_length > trail_length) {
        const change last = s->trail[--s->trail_length];
        *(last.index < 0 ? &s->floor[-1 - last.index] : &s->least[last.index]) = last.value;
    }
}

void undo(search *s, int32_t b, int64_t trail_length)
{
    go_back(s, trail_length);
    count_open(s, b, 1);
    s->offset[b] = -1;
}
