/* Offsets of buffers below a capacity, by beam search: quick where most branches end late, no proof where it fails.

   Partial solutions grow from the bottom up, as in exact.c: the lowest section gets a buffer that can lie at its floor,
   or is raised to its lower neighbour where no buffer fits below that. Partial solutions of about the same area
   compete; of each level the `width` best go on. Best is where little is open for the slack that sections have left.
   A seed disturbs scores by up to `noise`, so that one more try is a different one. */
#include <stdlib.h>
#include <string.h>

#include "exact.h"

enum { IMPOSSIBLE = 0, FOUND = 1, OUT_OF_MEMORY = 2, LEVELS_PER_BUFFER = 4, SLACK_PARTS = 1024, MOST_BYTES = 1 << 26 };

typedef struct {
    double score;
    uint64_t hash;
    int64_t area;    /* bytes times sections of what is placed */
    int64_t count;   /* buffers placed */
    int64_t state[]; /* offset, least, left and floor, as `search` has them */
} partial;

typedef struct {
    search s;
    size_t numbers;    /* of a state */
    int64_t *area;     /* of each buffer */
    int64_t step;      /* area from level to level */
    int32_t num_levels, width, noise;
    int32_t *count;    /* of each level */
    partial **kept;    /* `width` of each level */
    partial **unused;  /* to be written again */
    int32_t num_unused, most_partials, num_partials;
    uint64_t seed;
} beam;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Open bytes of sections against what they have left beside them, times 1 + noise / 2^16 at most. */
static double score(const beam *b, uint64_t hash)
{
    const search *s = &b->s;
    const int64_t least = s->p->capacity / SLACK_PARTS + 1;
    double sum = 0;
    for (int32_t section = 0; section < s->p->num_sections; ++section) {
        if (s->floor[section] >= 0) {
            const int64_t slack = s->p->capacity - s->floor[section] - s->left[section];
            sum += (double)s->left[section] / (double)(slack + least);
        }
    }
    return sum * (double)(65536 + (int64_t)(mix(hash + b->seed) >> 48) * b->noise / 65536);
}

static partial *unused_one(beam *b)
{
    if (b->num_unused > 0) {
        return b->unused[--b->num_unused];
    }
    if (b->num_partials == b->most_partials) {
        return NULL;
    }
    partial *made = malloc(sizeof(partial) + b->numbers * sizeof(int64_t));
    b->num_partials += made != NULL;
    return made;
}

/* Keeps the state that `s` is in, if it is among the best of its level and not there yet. */
static void keep(beam *b, int32_t above, uint64_t hash, int64_t area, int64_t count)
{
    const int64_t reached = area / b->step;
    const int32_t level = reached <= above ? above + 1 : (int32_t)reached;
    if (level >= b->num_levels) {
        return;
    }
    partial **kept = b->kept + (size_t)level * (size_t)b->width;
    int32_t worst = 0;
    for (int32_t i = 0; i < b->count[level]; ++i) {
        if (kept[i]->hash == hash) {
            return;
        }
        worst = kept[i]->score > kept[worst]->score ? i : worst;
    }
    const double value = score(b, hash);
    partial *target = b->count[level] < b->width ? unused_one(b) : NULL;
    if (target) {
        kept[b->count[level]++] = target;
    } else if (b->count[level] > 0 && value < kept[worst]->score) {
        target = kept[worst];
    } else {
        return;
    }
    *target = (partial){.score = value, .hash = hash, .area = area, .count = count};
    memcpy(target->state, b->s.offset, b->numbers * sizeof(int64_t));
}

/* The section of the lowest floor; of several, the one with the least slack. */
static int32_t lowest_section(const search *s)
{
    int32_t lowest = -1;
    for (int32_t section = 0; section < s->p->num_sections; ++section) {
        const int64_t floor = s->floor[section];
        if (floor >= 0 && (lowest < 0 || floor < s->floor[lowest] ||
                           (floor == s->floor[lowest] && s->left[section] > s->left[lowest]))) {
            lowest = section;
        }
    }
    return lowest;
}

/* Where the section goes if nothing comes to lie at its floor; -1 where that leaves a gap that a buffer would fill. */
static int64_t raised_floor(const search *s, int32_t section)
{
    const exact_problem *p = s->p;
    const int64_t floor = s->floor[section];
    int32_t first = section, end = section + 1;
    for (; first > 0 && s->floor[first - 1] == floor; --first) {
    }
    for (; end < p->num_sections && s->floor[end] == floor; ++end) {
    }
    int64_t raised = first > 0 ? s->floor[first - 1] : -1;
    if (end < p->num_sections && s->floor[end] >= 0 && (raised < 0 || s->floor[end] < raised)) {
        raised = s->floor[end];
    }
    for (int32_t k = p->first_member[section]; k < p->first_member[section + 1]; ++k) {
        const int32_t b = p->member[k];
        if (s->offset[b] < 0 && s->least[b] == floor && p->begin[b] >= first && p->end[b] <= end &&
            p->size[b] <= raised - floor) {
            return -1;
        }
    }
    return raised;
}

/* Goes on from one partial solution in all ways; true where one of them is whole. */
static int go_on(beam *b, const partial *from, int32_t level)
{
    search *s = &b->s;
    const exact_problem *p = s->p;
    memcpy(s->offset, from->state, b->numbers * sizeof(int64_t));
    const int32_t section = lowest_section(s);
    const int64_t floor = s->floor[section], raised = raised_floor(s, section);
    for (int32_t k = p->first_member[section]; k < p->first_member[section + 1]; ++k) {
        const int32_t one = p->member[k];
        const int is_second_twin = p->twin[one] >= 0 && s->offset[p->twin[one]] < 0;
        if (s->offset[one] >= 0 || s->least[one] != floor || is_second_twin) {
            continue;
        }
        const int fits = place(s, one);
        if (fits && from->count + 1 == p->count) {
            return 1;
        }
        if (fits) {
            const uint64_t hash = from->hash ^ mix(((uint64_t)one << 48) + (uint64_t)floor + 1);
            keep(b, level, hash, from->area + b->area[one], from->count + 1);
        }
        undo(s, one, 0);
    }
    if (raised >= 0) {
        if (raise_section(s, section, raised)) {
            keep(b, level, from->hash ^ mix(~(((uint64_t)section << 48) + (uint64_t)raised)), from->area, from->count);
        }
        go_back(s, 0);
    }
    return 0;
}

static int climb(beam *b)
{
    keep(b, -1, 0, 0, 0);
    for (int32_t level = 0; level < b->num_levels; ++level) {
        partial **kept = b->kept + (size_t)level * (size_t)b->width;
        for (int32_t i = 0; i < b->count[level]; ++i) {
            if (go_on(b, kept[i], level)) {
                return FOUND;
            }
        }
        for (; b->count[level] > 0; b->unused[b->num_unused++] = kept[--b->count[level]]) {
        }
    }
    return IMPOSSIBLE;
}

/* 1 and offsets, 0 where none were found, 2 without memory. noise: 65536ths of a score. */
int beam_offsets(const exact_problem *problem, int32_t width, int32_t noise, uint64_t seed, int64_t *offsets)
{
    const size_t n = (size_t)problem->count, m = (size_t)problem->num_sections;
    const size_t room = (size_t)problem->first_neighbour[n] + n * (m + 1) + n + 1;
    beam b = {.s = {.p = problem}, .numbers = 2 * n + 2 * m, .width = width, .noise = noise, .seed = mix(seed + 1)};
    b.num_levels = (int32_t)n * LEVELS_PER_BUFFER + 2;
    b.most_partials = (int32_t)((size_t)MOST_BYTES / (sizeof(partial) + b.numbers * sizeof(int64_t)));
    int64_t *numbers = calloc(b.numbers + n, sizeof(int64_t));
    b.count = calloc((size_t)b.num_levels, sizeof(int32_t));
    b.kept = calloc((size_t)b.num_levels * (size_t)width, sizeof(partial *));
    b.unused = calloc((size_t)b.most_partials, sizeof(partial *));
    b.s.changed = calloc(m, sizeof(int32_t));
    b.s.is_changed = calloc(m, 1);
    b.s.trail = malloc(room * sizeof(change));
    int result = OUT_OF_MEMORY;
    if (numbers && b.count && b.kept && b.unused && b.s.changed && b.s.is_changed && b.s.trail) {
        search *s = &b.s;
        s->offset = numbers, s->least = s->offset + n, s->left = s->least + n, s->floor = s->left + m;
        b.area = s->floor + m;
        result = begin_search(s) ? FOUND : IMPOSSIBLE;
        int64_t whole = 0;
        for (size_t i = 0; i < n; ++i) {
            for (int32_t k = problem->first_use[i]; k < problem->first_use[i + 1]; ++k) {
                b.area[i] += problem->used_bytes[k];
            }
            whole += b.area[i];
        }
        b.step = whole / (int64_t)(n * LEVELS_PER_BUFFER) + 1;
        result = result == FOUND ? climb(&b) : result;
        if (result == FOUND) {
            memcpy(offsets, s->offset, n * sizeof(int64_t));
        }
        for (int32_t i = 0; i < b.num_levels * width; ++i) {
            if (b.count[i / width] > i % width) {
                free(b.kept[i]);
            }
        }
        for (; b.num_unused > 0; free(b.unused[--b.num_unused])) {
        }
    }
    free(b.s.trail);
    free(b.s.is_changed);
    free(b.s.changed);
    free(b.unused);
    free(b.kept);
    free(b.count);
    free(numbers);
    return result;
}
