/* Moves of the search: repeats added where the bytes are above the budget, left out; runs put elsewhere. */
#include "cooling.h"
#include "reorder.h"

enum { MOST_GENERATIONS = 4, LONGEST = 12, NEAR = 3, FAR = 40 };

int32_t draw(search *a, int32_t below)
{
    return draw_below(&a->random, below);
}

static int chance(search *a, int32_t percent)
{
    return draw(a, 100) < percent;
}

static int reads(const reorder_problem *p, int32_t node, int32_t value)
{
    int found = 0;
    for (int32_t k = p->first_read[node]; k < p->first_read[node + 1]; ++k) {
        found |= p->read[k] == value;
    }
    return found;
}

/* Place of the run behind `at` that reads a value; the end where none does. */
static int32_t next_reader(const search *a, int32_t value, int32_t at)
{
    int32_t place = at + 1;
    while (place < a->new_length && !reads(a->p, node_at(a, place), value)) {
        ++place;
    }
    return place;
}

/* A place whose run takes more than the budget; -1 where there is none. */
static int32_t place_above(search *a)
{
    const int32_t from = draw(a, a->length);
    for (int32_t i = 0; i < a->length; ++i) {
        const int32_t k = from + i < a->length ? from + i : from + i - a->length;
        if (a->run[a->plan[k]].above > 0) {
            return k;
        }
    }
    return -1;
}

/* True where a run takes fewer bytes if a value is not kept behind it: it does not read it, or shares its bytes then.
 */
static int gains_without(const reorder_problem *p, int32_t node, int32_t value)
{
    int gains = 1;
    for (int32_t k = p->first_read[node]; k < p->first_read[node + 1]; ++k) {
        gains &= p->read[k] != value || p->shared[k] > 0;
    }
    return gains;
}

/* A value that waits in the plan while the run at a place goes on; -1 where a few draws find none. */
static int32_t some_waiting(search *a, int32_t place)
{
    const reorder_problem *p = a->p;
    if (place + 1 >= a->length) {
        return -1;
    }
    const uint64_t *behind = needed_before(a, a->plan[place + 1]), *before = needed_before(a, a->plan[place]);
    const int32_t node = a->run[a->plan[place]].node, from = draw(a, p->num_values);
    for (int32_t i = 0; i < p->num_values; ++i) {
        const int32_t v = from + i < p->num_values ? from + i : from + i - p->num_values;
        if (is_needed(behind, v) && is_needed(before, v) && p->maker[v] >= 0 && gains_without(p, node, v)) {
            return v;
        }
    }
    return -1;
}

static int is_inserted(const search *a, int32_t number)
{
    int found = 0;
    for (int32_t k = 0; k < a->num_inserted; ++k) {
        found |= a->inserted[k] == number;
    }
    return found;
}

/* True where a value is kept until before a place of the candidate; runs that are new there tell nothing. */
static int is_kept(const search *a, int32_t value, int32_t place)
{
    if (place == a->new_length) {
        return a->p->output[value];
    }
    return is_inserted(a, a->candidate[place]) || is_needed(needed_before(a, a->candidate[place]), value);
}

/* Runs for some of what a new run at a place reads and is not kept until there. */
static void supply(search *a, int32_t at, int32_t generations)
{
    const reorder_problem *p = a->p;
    const int32_t node = node_at(a, at), length = a->new_length;
    for (int32_t k = p->first_read[node]; generations > 0 && k < p->first_read[node + 1]; ++k) {
        const int32_t v = p->read[k], behind = at + 1 + a->new_length - length;
        if (p->maker[v] >= 0 && !is_kept(a, v, behind) && chance(a, 40) && insert_run(a, p->maker[v], at)) {
            supply(a, at, generations - 1);
        }
    }
}

/* Makes a value again that waits where the bytes are above the budget: of a few, the largest for its cost. */
static void add_repeat(search *a, int32_t place)
{
    const reorder_problem *p = a->p;
    int32_t best = -1;
    double most = -1;
    for (int32_t left = 1 + draw(a, 4); left > 0; --left) {
        const int32_t v = some_waiting(a, place);
        const double worth = v < 0 ? -1 : (double)p->size[v] / ((double)p->cost[p->maker[v]] + 1);
        if (worth > most) {
            best = v, most = worth;
        }
    }
    if (best < 0) {
        return;
    }
    int32_t at = 0;
    while (at < a->new_length && a->candidate[at] != a->plan[place]) {
        ++at;
    }
    const int32_t reader = next_reader(a, best, at);
    if (reader <= a->new_length && insert_run(a, p->maker[best], reader)) {
        supply(a, reader, MOST_GENERATIONS);
    }
}

/* Place of the nearest run before `at` (step -1) or from it on (1) that makes a value or reads it; the end for none. */
static int32_t nearest_use(const search *a, int32_t value, int32_t at, int32_t step)
{
    const int32_t maker = a->p->maker[value];
    int32_t place = step < 0 ? at - 1 : at;
    while (place >= 0 && place < a->new_length && node_at(a, place) != maker &&
           !reads(a->p, node_at(a, place), value)) {
        place += step;
    }
    return place;
}

/* Place of the run that made a value which nothing reads any more from there on to the next one; -1 for none. */
static int32_t idle_maker(const search *a, int32_t value, int32_t at)
{
    const reorder_problem *p = a->p;
    const int32_t maker = p->maker[value];
    if (maker < 0 || a->times[maker] < 2) {
        return -1;
    }
    const int32_t before = nearest_use(a, value, at, -1), behind = nearest_use(a, value, at, 1);
    const int is_made = before >= 0 && node_at(a, before) == maker;
    const int is_made_again = behind < a->new_length ? node_at(a, behind) == maker : !p->output[value];
    return is_made && is_made_again ? before : -1;
}

/* Leaves out a run, and those before it that only served it. */
static void leave_out(search *a, int32_t at)
{
    const reorder_problem *p = a->p;
    const int32_t node = node_at(a, at);
    if (!remove_run(a, at)) {
        return;
    }
    for (int32_t k = p->first_read[node]; k < p->first_read[node + 1]; ++k) {
        const int32_t maker = idle_maker(a, p->read[k], at), length = a->new_length;
        if (maker >= 0) {
            leave_out(a, maker);
            at -= length - a->new_length;
        }
    }
}

static void leave_out_some(search *a)
{
    const int32_t n = a->new_length, from = draw(a, n);
    for (int32_t i = 0; i < n; ++i) {
        const int32_t k = from + i < n ? from + i : from + i - n;
        if (a->times[node_at(a, k)] > 1) {
            leave_out(a, k);
            return;
        }
    }
}

/* True where a run that is passed writes, or reads, what is marked. */
static int meets(const search *a, int32_t node, int of_writes)
{
    const reorder_problem *p = a->p;
    const int32_t *first = of_writes ? p->first_write : p->first_read, *values = of_writes ? p->write : p->read;
    int found = 0;
    for (int32_t k = first[node]; k < first[node + 1]; ++k) {
        found |= a->mark_of[values[k]] == a->stamp;
    }
    return found;
}

static void mark(search *a, int32_t node, int of_writes)
{
    const reorder_problem *p = a->p;
    const int32_t *first = of_writes ? p->first_write : p->first_read, *values = of_writes ? p->write : p->read;
    for (int32_t k = first[node]; k < first[node + 1]; ++k) {
        a->mark_of[values[k]] = a->stamp;
    }
}

void shift(search *a)
{
    const int32_t n = a->new_length, first = draw(a, n), most = n - first < LONGEST ? n - first : LONGEST;
    const int32_t length = chance(a, 60) ? 1 : 1 + draw(a, most), is_earlier = chance(a, 50);
    const int32_t by = 1 + draw(a, chance(a, 50) ? NEAR : FAR);
    int32_t passed = 0;
    ++a->stamp;
    for (int32_t k = first; k < first + length; ++k) {
        mark(a, node_at(a, k), !is_earlier);
    }
    while (passed < by) {
        const int32_t place = is_earlier ? first - 1 - passed : first + length + passed;
        if (place < 0 || place >= n || meets(a, node_at(a, place), is_earlier)) {
            break;
        }
        ++passed;
    }
    if (passed > 0) {
        move_runs(a, first, length, is_earlier ? first - passed : first + passed);
    }
}

int make_move(search *a)
{
    const int32_t kind = draw(a, 100), place = a->above > 0 ? place_above(a) : draw(a, a->length);
    begin_candidate(a);
    if (kind < 40) {
        shift(a);
    } else if (kind < 60 && a->above > 0) {
        add_repeat(a, place);
    } else if (kind < 75) {
        leave_out_some(a);
    } else if (kind < 90) {
        leave_out_some(a);
        if (chance(a, 30)) {
            leave_out_some(a);
        }
        add_repeat(a, place);
        if (chance(a, 40)) {
            add_repeat(a, a->above > 0 ? place_above(a) : draw(a, a->length));
        }
    } else {
        leave_out_some(a);
        shift(a);
    }
    return a->num_inserted + a->num_removed > 0 || a->head < a->length;
}
