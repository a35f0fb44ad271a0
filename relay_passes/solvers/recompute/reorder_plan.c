/* Plans and candidates: what is needed before each run, bytes above the budget, counted where a candidate differs. */
#include <stdlib.h>
#include <string.h>

#include "reorder.h"

int is_needed(const uint64_t *set, int32_t value)
{
    return (int)(set[value >> 6] >> (value & 63) & 1);
}

const uint64_t *needed_before(const search *a, int32_t number)
{
    return a->needed + (size_t)number * (size_t)a->words;
}

int32_t node_at(const search *a, int32_t place)
{
    return a->run[a->candidate[place]].node;
}

/* Goes from behind a run to before it: `set` and `bytes` of what is needed. Returns bytes above the budget meanwhile.
 */
static int64_t step_back(const reorder_problem *p, int32_t node, uint64_t *set, int64_t *bytes)
{
    int64_t most = *bytes + p->extra[node], shared = 0;
    for (int32_t k = p->first_write[node]; k < p->first_write[node + 1]; ++k) {
        const int32_t v = p->write[k];
        const int64_t needed = is_needed(set, v) ? p->size[v] : 0;
        most += p->size[v] - needed;
        *bytes -= needed;
        set[v >> 6] &= ~((uint64_t)1 << (v & 63));
    }
    for (int32_t k = p->first_read[node]; k < p->first_read[node + 1]; ++k) {
        const int32_t v = p->read[k];
        if (!is_needed(set, v)) {
            set[v >> 6] |= (uint64_t)1 << (v & 63);
            *bytes += p->size[v];
            most += p->size[v];
            shared = p->shared[k] > shared ? p->shared[k] : shared;
        }
    }
    return most - shared > p->budget ? most - shared - p->budget : 0;
}

void begin_candidate(search *a)
{
    memcpy(a->candidate, a->plan, (size_t)a->length * sizeof *a->plan);
    a->new_length = a->head = a->tail = a->length;
    a->num_inserted = a->num_removed = 0;
    a->new_cost = a->cost;
}

static void touch(search *a, int32_t begin, int32_t end)
{
    const int32_t behind = a->new_length - end;
    a->head = begin < a->head ? begin : a->head;
    a->tail = behind < a->tail ? behind : a->tail;
}

int insert_run(search *a, int32_t node, int32_t at)
{
    if (a->num_unused == 0 || a->num_inserted == MOST_CHANGES) {
        return 0;
    }
    const int32_t number = a->unused[--a->num_unused];
    touch(a, at, at);
    memmove(a->candidate + at + 1, a->candidate + at, (size_t)(a->new_length - at) * sizeof *a->candidate);
    a->candidate[at] = a->inserted[a->num_inserted++] = number;
    a->run[number].node = node;
    a->new_cost += a->p->cost[node];
    ++a->new_length;
    ++a->times[node];
    return 1;
}

int remove_run(search *a, int32_t at)
{
    if (a->num_removed == MOST_CHANGES) {
        return 0;
    }
    const int32_t node = node_at(a, at);
    touch(a, at, at + 1);
    a->removed[a->num_removed++] = a->candidate[at];
    --a->new_length;
    memmove(a->candidate + at, a->candidate + at + 1, (size_t)(a->new_length - at) * sizeof *a->candidate);
    a->new_cost -= a->p->cost[node];
    --a->times[node];
    return 1;
}

static void reverse(int32_t *numbers, int32_t count)
{
    for (int32_t i = 0; i < count / 2; ++i) {
        const int32_t one = numbers[i];
        numbers[i] = numbers[count - 1 - i];
        numbers[count - 1 - i] = one;
    }
}

void move_runs(search *a, int32_t first, int32_t length, int32_t to)
{
    const int32_t low = first < to ? first : to, passed = first < to ? to - first : first - to;
    const int32_t left = first < to ? length : passed; /* of both parts that change places, the one in front */
    int32_t *part = a->candidate + low;
    touch(a, low, low + length + passed);
    reverse(part, left);
    reverse(part + left, length + passed - left);
    reverse(part, length + passed);
}

/* What is needed behind the runs that differ; returns its bytes. */
static int64_t needed_behind(search *a)
{
    const reorder_problem *p = a->p;
    const size_t row = (size_t)a->words * sizeof *a->set;
    if (a->tail > 0) {
        const int32_t number = a->plan[a->length - a->tail];
        memcpy(a->set, needed_before(a, number), row);
        return a->run[number].bytes;
    }
    int64_t bytes = 0;
    memset(a->set, 0, row);
    for (int32_t v = 0; v < p->num_values; ++v) {
        bytes += p->output[v] ? p->size[v] : 0;
        a->set[v >> 6] |= (uint64_t)(p->output[v] != 0) << (v & 63);
    }
    return bytes;
}

static int is_given(const search *a)
{
    for (int32_t v = 0; v < a->p->num_values; ++v) {
        if (is_needed(a->set, v) && !a->p->input[v]) {
            return 0;
        }
    }
    return 1;
}

int count_candidate(search *a)
{
    const size_t row = (size_t)a->words * sizeof *a->set;
    int64_t bytes = needed_behind(a);
    a->num_counted = 0;
    a->new_above = a->above;
    for (int32_t place = a->head; place < a->length - a->tail; ++place) {
        a->new_above -= a->run[a->plan[place]].above;
    }
    for (int32_t place = a->new_length - a->tail - 1; place >= 0; --place) {
        const int32_t node = node_at(a, place), old = place < a->length ? a->plan[place] : 0;
        counted_run *counted = a->counted + a->num_counted;
        counted->node = node;
        counted->above = step_back(a->p, node, a->set, &bytes);
        counted->bytes = bytes;
        memcpy(a->counted_needed + (size_t)a->num_counted++ * (size_t)a->words, a->set, row);
        a->new_above += counted->above - (place < a->head ? a->run[old].above : 0);
        if (place <= a->head && place < a->length && bytes == a->run[old].bytes &&
            memcmp(a->set, needed_before(a, old), row) == 0) {
            return 1;
        }
    }
    return is_given(a);
}

void take_candidate(search *a)
{
    const size_t row = (size_t)a->words * sizeof *a->set;
    const int32_t last = a->new_length - a->tail - 1;
    int32_t *plan = a->plan;
    for (int32_t k = 0; k < a->num_counted; ++k) {
        const int32_t number = a->candidate[last - k];
        a->run[number] = a->counted[k];
        memcpy(a->needed + (size_t)number * (size_t)a->words, a->counted_needed + (size_t)k * (size_t)a->words, row);
    }
    for (int32_t k = 0; k < a->num_removed; ++k) {
        a->unused[a->num_unused++] = a->removed[k];
    }
    a->plan = a->candidate, a->candidate = plan;
    a->length = a->new_length, a->cost = a->new_cost, a->above = a->new_above;
}

void drop_candidate(search *a)
{
    for (int32_t k = 0; k < a->num_removed; ++k) {
        ++a->times[a->run[a->removed[k]].node];
    }
    for (int32_t k = 0; k < a->num_inserted; ++k) {
        --a->times[a->run[a->inserted[k]].node];
        a->unused[a->num_unused++] = a->inserted[k];
    }
}

static int allocate(search *a)
{
    const size_t most = (size_t)a->most_runs, words = (size_t)a->words, values = (size_t)a->p->num_values,
                 nodes = (size_t)a->p->count;
    const size_t bytes = 2 * most * sizeof *a->run + (2 * most + 1) * words * sizeof *a->set +
                         (3 * most + values + nodes) * sizeof *a->plan;
    a->memory = calloc(bytes, 1);
    if (a->memory == NULL) {
        return 0;
    }
    a->run = a->memory, a->counted = a->run + most;
    a->needed = (uint64_t *)(a->counted + most), a->counted_needed = a->needed + most * words;
    a->set = a->counted_needed + most * words;
    a->unused = (int32_t *)(a->set + words), a->plan = a->unused + most, a->candidate = a->plan + most;
    a->times = a->candidate + most, a->mark_of = a->times + nodes;
    return 1;
}

int make_search(search *a, const reorder_problem *p, const int32_t *nodes, int32_t length, int32_t most_runs)
{
    a->p = p, a->most_runs = most_runs, a->words = (p->num_values + 63) / 64;
    if (!allocate(a)) {
        return 0;
    }
    for (int32_t k = 0; k < length; ++k) {
        a->plan[k] = k;
        a->run[k].node = nodes[k];
        a->cost += a->times[nodes[k]]++ > 0 ? p->cost[nodes[k]] : 0;
    }
    for (int32_t k = most_runs - 1; k >= length; --k) {
        a->unused[a->num_unused++] = k;
    }
    a->length = length;
    begin_candidate(a);
    a->head = a->tail = 0; /* all of it is counted */
    if (count_candidate(a)) {
        a->new_above = 0;
        for (int32_t k = 0; k < a->num_counted; ++k) {
            a->new_above += a->counted[k].above;
        }
        take_candidate(a);
        return 1;
    }
    return 0;
}
