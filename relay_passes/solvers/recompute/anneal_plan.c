/* A repeat more or less in a plan: spans of what it reads and writes change, and the bytes alive along them. */
#include <stdlib.h>
#include <string.h>

#include "anneal.h"

int32_t repeats_before(const plan *s, int32_t slot)
{
    int32_t low = 0, high = s->num_repeats;
    while (low < high) {
        const int32_t middle = (low + high) / 2;
        if (s->slot[middle] < slot) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

int32_t events_until(const plan *s, int32_t value, int32_t slot)
{
    const int32_t *events = s->event + s->first_event[value];
    int32_t index = 0;
    while (index < s->num_events[value] && events[index] < 2 * slot + 2) {
        ++index;
    }
    return index;
}

int is_read_next(const plan *s, int32_t value, int32_t index)
{
    return index < s->num_events[value] && !(s->event[s->first_event[value] + index] & 1);
}

static int32_t first_runs_before(const plan *s, int32_t slot)
{
    const int32_t n = s->p->count, stage = slot < 0 ? 0 : slot / n;
    return stage >= n ? n : stage + (slot - stage * n > stage);
}

static int32_t above(int32_t bytes, int32_t limit)
{
    const int32_t over = bytes - limit;
    return over & ~(over >> 31); /* 0 for what is negative */
}

static int32_t add(int32_t *restrict sum, const int32_t *restrict limit, int32_t begin, int32_t end, int32_t bytes)
{
    int32_t more = 0;
    for (int32_t i = begin; i < end; ++i) {
        more += above(sum[i] + bytes, limit[i]) - above(sum[i], limit[i]);
        sum[i] += bytes;
    }
    return more;
}

static void add_bytes(plan *s, int32_t begin, int32_t end, int32_t bytes)
{
    s->excess += add(s->sum, s->limit, first_runs_before(s, begin), first_runs_before(s, end), bytes);
    s->excess += add(s->repeat_sum, s->repeat_limit, repeats_before(s, begin), repeats_before(s, end), bytes);
}

static void find_limit(plan *s, int32_t slot)
{
    const anneal_problem *p = s->p;
    const int32_t n = p->count, stage = slot / n, node = slot - stage * n;
    int32_t relief = 0;
    for (int32_t k = p->first_read[node]; k < p->first_read[node + 1]; ++k) {
        const int32_t v = p->read[k];
        if (p->shared[k] > relief && !is_read_next(s, v, events_until(s, v, slot))) {
            relief = p->shared[k];
        }
    }
    const int is_first = node == stage;
    const int32_t at = is_first ? stage : repeats_before(s, slot);
    int32_t *limit = (is_first ? s->limit : s->repeat_limit) + at;
    const int32_t sum = (is_first ? s->sum : s->repeat_sum)[at];
    s->excess -= above(sum, *limit);
    *limit = p->budget - p->extra[node] + relief;
    s->excess += above(sum, *limit);
}

/* Sets the limits anew where a value may have begun or ceased to die: at its last event before a slot. */
static void find_limit_before(plan *s, int32_t value, int32_t slot)
{
    const int32_t before = events_until(s, value, slot - 1);
    const int32_t event = before ? s->event[s->first_event[value] + before - 1] : 1;
    if (s->has_shared && !(event & 1)) {
        find_limit(s, event / 2);
    }
}

/* Adds an event to a value (sign 1), or removes it (-1). */
static void change_event(plan *s, int32_t value, int32_t slot, int is_write, int sign)
{
    int32_t *events = s->event + s->first_event[value], *count = s->num_events + value;
    const int32_t at = events_until(s, value, slot - 1), bytes = sign * s->p->size[value];
    if (sign > 0) {
        memmove(events + at + 1, events + at, (size_t)(*count - at) * sizeof *events);
        events[at] = 2 * slot + is_write;
        ++*count;
    }
    const int32_t after_last = (events[at - 1] >> 1) + 1;
    const int is_read_later = is_read_next(s, value, at + 1);
    if (is_write && is_read_later) {
        add_bytes(s, after_last, slot, -bytes);
    } else if (is_write) {
        add_bytes(s, slot, slot + 1, bytes);
    } else if (!is_read_later) {
        add_bytes(s, after_last, slot + 1, bytes);
    }
    if (sign < 0) {
        --*count;
        memmove(events + at, events + at + 1, (size_t)(*count - at) * sizeof *events);
    }
    find_limit_before(s, value, slot);
}

static void change_events(plan *s, int32_t node, int32_t slot, int sign)
{
    const anneal_problem *p = s->p;
    for (int32_t k = p->first_read[node]; k < p->first_read[node + 1]; ++k) {
        change_event(s, p->read[k], slot, 0, sign);
    }
    for (int32_t k = p->first_write[node]; k < p->first_write[node + 1]; ++k) {
        change_event(s, p->write[k], slot, 1, sign);
    }
}

static int is_full(const plan *s, int32_t value)
{
    return s->first_event[value] + s->num_events[value] == s->first_event[value + 1];
}

static int has_room(const plan *s, int32_t node)
{
    const anneal_problem *p = s->p;
    int fits = s->num_repeats < MOST_REPEATS;
    for (int32_t k = p->first_read[node]; k < p->first_read[node + 1]; ++k) {
        fits &= !is_full(s, p->read[k]);
    }
    for (int32_t k = p->first_write[node]; k < p->first_write[node + 1]; ++k) {
        fits &= !is_full(s, p->write[k]);
    }
    return fits;
}

static void move_repeats(plan *s, int32_t to, int32_t from)
{
    const size_t bytes = (size_t)(s->num_repeats - (to > from ? from : from)) * sizeof(int32_t);
    memmove(s->slot + to, s->slot + from, bytes);
    memmove(s->repeat_sum + to, s->repeat_sum + from, bytes);
    memmove(s->repeat_limit + to, s->repeat_limit + from, bytes);
    s->num_repeats += to - from;
}

int insert_repeat(plan *s, int32_t node, int32_t stage)
{
    const anneal_problem *p = s->p;
    const int32_t slot = stage * p->count + node, at = repeats_before(s, slot);
    const int is_followed = at < s->num_repeats && s->slot[at] / p->count == stage;
    if ((at < s->num_repeats && s->slot[at] == slot) || !has_room(s, node)) {
        return 0;
    }
    const int32_t next = is_followed ? s->slot[at] % p->count : stage;
    int32_t bytes = is_followed ? s->repeat_sum[at] : s->sum[stage];
    for (int32_t k = p->first_write[next]; k < p->first_write[next + 1]; ++k) {
        bytes -= p->size[p->write[k]];
    }
    move_repeats(s, at + 1, at);
    s->slot[at] = slot;
    s->repeat_sum[at] = bytes;
    s->repeat_limit[at] = p->budget - p->extra[node];
    s->excess += above(bytes, s->repeat_limit[at]);
    change_events(s, node, slot, 1);
    if (s->has_shared) {
        find_limit(s, slot);
    }
    s->cost += p->cost[node];
    return 1;
}

void remove_repeat(plan *s, int32_t node, int32_t stage)
{
    const anneal_problem *p = s->p;
    const int32_t slot = stage * p->count + node, at = repeats_before(s, slot);
    change_events(s, node, slot, -1);
    s->excess -= above(s->repeat_sum[at], s->repeat_limit[at]);
    move_repeats(s, at, at + 1);
    s->cost -= p->cost[node];
}

/* Events of all values, and the bytes from each write to the last read. */
static void fill(plan *s)
{
    const anneal_problem *p = s->p;
    const int32_t n = p->count;
    for (int32_t v = 0; v < p->num_values; ++v) {
        const int32_t made = p->maker[v];
        s->event[s->first_event[v] + s->num_events[v]++] = 2 * (made < 0 ? -1 : made * n + made) + 1;
    }
    for (int32_t u = 0; u < n; ++u) {
        for (int32_t k = p->first_read[u]; k < p->first_read[u + 1]; ++k) {
            const int32_t v = p->read[k];
            s->event[s->first_event[v] + s->num_events[v]++] = 2 * (u * n + u);
        }
    }
    for (int32_t v = 0; v < p->num_values; ++v) {
        int32_t *events = s->event + s->first_event[v];
        if (p->output[v]) {
            events[s->num_events[v]++] = 2 * n * n;
        }
        const int32_t begin = events[0] >> 1, last = events[s->num_events[v] - 1] >> 1;
        (void)add(s->sum, s->limit, first_runs_before(s, begin), first_runs_before(s, last + 1), p->size[v]);
    }
}

int32_t *make_plan(plan *s)
{
    const anneal_problem *p = s->p;
    const int32_t n = p->count, m = p->num_values;
    const int32_t room = 2 * n + 2 * m + 1 + p->first_read[n] + m * (ROOM + 2);
    int32_t *memory = calloc((size_t)room, sizeof *memory);
    if (memory == NULL) {
        return NULL;
    }
    s->sum = memory, s->limit = s->sum + n, s->num_events = s->limit + n, s->first_event = s->num_events + m;
    s->event = s->first_event + m + 1;
    for (int32_t k = 0; k < p->first_read[n]; ++k) {
        ++s->first_event[p->read[k] + 1];
        s->has_shared |= p->shared[k] > 0;
    }
    for (int32_t v = 0; v < m; ++v) {
        s->first_event[v + 1] += s->first_event[v] + ROOM + 2;
    }
    fill(s);
    for (int32_t u = 0; u < n; ++u) {
        s->limit[u] = p->budget - p->extra[u];
        s->excess += above(s->sum[u], s->limit[u]);
        find_limit(s, u * n + u);
    }
    return memory;
}
