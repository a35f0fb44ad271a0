/* Moves of the search: repeats added where the bytes are above the budget, left out, put elsewhere. */
#include "anneal.h"
#include "cooling.h"

enum { MOST_GENERATIONS = 3 };

int32_t draw(search *a, int32_t below)
{
    return draw_below(&a->random, below);
}

static int chance(search *a, int32_t percent)
{
    return draw(a, 100) < percent;
}

static int insert(search *a, int32_t node, int32_t stage)
{
    if (a->num_changes == MOST_CHANGES || node >= stage || !insert_repeat(&a->s, node, stage)) {
        return 0;
    }
    a->changes[a->num_changes++] = (change){.node = node, .stage = stage, .is_added = 1};
    return 1;
}

static int leave_out(search *a, int32_t node, int32_t stage)
{
    if (a->num_changes == MOST_CHANGES) {
        return 0;
    }
    remove_repeat(&a->s, node, stage);
    a->changes[a->num_changes++] = (change){.node = node, .stage = stage, .is_added = 0};
    return 1;
}

void take_back(search *a)
{
    while (a->num_changes > 0) {
        const change last = a->changes[--a->num_changes];
        if (last.is_added) {
            remove_repeat(&a->s, last.node, last.stage);
        } else {
            (void)insert_repeat(&a->s, last.node, last.stage);
        }
    }
}

/* True where a value comes from a repeat at a slot, of which nothing is read. */
static int is_idle(const plan *s, int32_t value, int32_t slot)
{
    const anneal_problem *p = s->p;
    const int32_t maker = p->maker[value];
    int idle = maker >= 0 && slot != maker * p->count + maker;
    for (int32_t k = idle ? p->first_write[maker] : 0; idle && k < p->first_write[maker + 1]; ++k) {
        idle = !is_read_next(s, p->write[k], events_until(s, p->write[k], slot));
    }
    return idle;
}

/* Leaves out a repeat, and those before it that only served it. */
static void leave_out_chain(search *a, int32_t slot)
{
    const anneal_problem *p = a->s.p;
    const int32_t node = slot % p->count;
    if (!leave_out(a, node, slot / p->count)) {
        return;
    }
    for (int32_t k = p->first_read[node]; k < p->first_read[node + 1]; ++k) {
        const int32_t v = p->read[k];
        const int32_t before = a->s.event[a->s.first_event[v] + events_until(&a->s, v, slot) - 1];
        if ((before & 1) && is_idle(&a->s, v, before >> 1)) {
            leave_out_chain(a, before >> 1);
        }
    }
}

static void leave_out_some(search *a)
{
    if (a->s.num_repeats > 0) {
        leave_out_chain(a, a->s.slot[draw(a, a->s.num_repeats)]);
    }
}

/* A slot at which the bytes are above the budget; -1 where there is none. */
static int32_t slot_above(search *a)
{
    const plan *s = &a->s;
    const int32_t n = s->p->count, from = draw(a, n);
    for (int32_t i = 0; i < n; ++i) {
        const int32_t k = from + i < n ? from + i : from + i - n;
        if (s->sum[k] > s->limit[k]) {
            return k * n + k;
        }
    }
    for (int32_t i = 0; i < s->num_repeats; ++i) {
        if (s->repeat_sum[i] > s->repeat_limit[i]) {
            return s->slot[i];
        }
    }
    return -1;
}

/* A value that may wait at a slot: for a first run, or for one of the repeats behind it; -1 for none. */
static int32_t some_value(search *a, int32_t slot)
{
    const plan *s = &a->s;
    const anneal_problem *p = s->p;
    const int32_t first = p->first_waiting[slot / p->count], num = p->first_waiting[slot / p->count + 1] - first;
    if (num > 0 && chance(a, 70)) {
        return p->waiting[first + draw(a, num)];
    }
    const int32_t behind = repeats_before(s, slot + 1);
    if (behind == s->num_repeats) {
        return -1;
    }
    const int32_t node = s->slot[behind + draw(a, s->num_repeats - behind)] % p->count;
    const int32_t begin = p->first_read[node], reads = p->first_read[node + 1] - begin;
    return reads > 0 ? p->read[begin + draw(a, reads)] : -1;
}

/* Stage of the next read of a value that waits at a slot and can be made again; -1 where it does not. */
static int32_t waits_until(const plan *s, int32_t value, int32_t slot)
{
    const int32_t *events = s->event + s->first_event[value];
    const int32_t next = events_until(s, value, slot),
                  stage = is_read_next(s, value, next) ? (events[next] >> 1) / s->p->count : s->p->count;
    const int waits = s->p->maker[value] >= 0 && next > 0 && stage < s->p->count && (events[next - 1] >> 1) != slot;
    return waits ? stage : -1;
}

/* Repeats for some of the inputs that a repeat has made to wait longer. */
static void supply(search *a, int32_t node, int32_t stage, int32_t generations)
{
    const anneal_problem *p = a->s.p;
    const int32_t slot = stage * p->count + node;
    for (int32_t k = p->first_read[node]; generations > 0 && k < p->first_read[node + 1]; ++k) {
        const int32_t v = p->read[k], at = events_until(&a->s, v, slot - 1);
        const int32_t before = at > 0 ? a->s.event[a->s.first_event[v] + at - 1] >> 1 : slot;
        const int is_far = before / p->count < stage && !is_read_next(&a->s, v, at + 1);
        if (p->maker[v] >= 0 && is_far && chance(a, 40) && insert(a, p->maker[v], stage)) {
            supply(a, p->maker[v], stage, generations - 1);
        }
    }
}

/* Makes a value again that waits where the bytes are above the budget: of a few, the largest for its cost. */
static void add_repeat(search *a)
{
    const anneal_problem *p = a->s.p;
    const int32_t slot = slot_above(a);
    int32_t best = -1, stage = -1;
    double most = -1;
    for (int32_t left = slot < 0 ? 0 : 1 + draw(a, 4); left > 0; --left) {
        const int32_t v = some_value(a, slot), until = v < 0 ? -1 : waits_until(&a->s, v, slot);
        const double worth = until < 0 ? -1 : p->size[v] / ((double)p->cost[p->maker[v]] + 1);
        if (worth > most) {
            best = v, stage = until, most = worth;
        }
    }
    if (best < 0) {
        return;
    }
    const int32_t between = stage - slot / p->count;
    if (between > 1 && chance(a, 20)) {
        stage -= draw(a, between);
    }
    if (insert(a, p->maker[best], stage)) {
        supply(a, p->maker[best], stage, MOST_GENERATIONS + 1);
    }
}

static void shift_repeat(search *a)
{
    const int32_t n = a->s.p->count, slot = a->s.slot[draw(a, a->s.num_repeats)];
    const int32_t node = slot % n, stage = slot / n, by = 1 + draw(a, chance(a, 50) ? 3 : 30);
    const int32_t to = chance(a, 50) ? stage + by : stage - by;
    if (to > node && to < n && leave_out(a, node, stage)) {
        (void)insert(a, node, to);
    }
}

void make_move(search *a)
{
    const int32_t kind = draw(a, 100);
    a->num_changes = 0;
    if (a->s.num_repeats == 0 || (a->s.excess > 0 && kind < 40)) {
        add_repeat(a);
    } else if (kind < 60) {
        leave_out_some(a);
    } else if (kind < 90) {
        leave_out_some(a);
        if (chance(a, 30)) {
            leave_out_some(a);
        }
        add_repeat(a);
        if (chance(a, 40)) {
            add_repeat(a);
        }
    } else {
        shift_repeat(a);
    }
}
