/* A plugin of QEMU's: executed instructions of each processor, at every signal that it sends or has awaited.

   A file for each processor, `<out>.<number>`, has a line for each event: its letter, and the instructions executed
   before it. N: a signal was sent; A: one was awaited; R: the run begins; E: it has ended. A wait counts once, however
   often it looks.

   Arguments: out=PATH run=ADDRESS notify=BEGIN-END await=BEGIN-END, the last two any number of times. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu_plugin.h"

#define MOST_RANGES 32
#define MOST_PROCESSORS 16

enum { ELSEWHERE, SENDING, AWAITING };

/* A run of instructions without branches. visit: the last wait in which it was counted, by processor. */
typedef struct {
    uint64_t begin;
    uint64_t end;
    uint64_t count;
    int place;
    uint64_t visit[MOST_PROCESSORS];
} block;

typedef struct {
    FILE *events;
    uint64_t executed;
    uint64_t visits;
    uint64_t last_end;
    uint64_t return_address;
    int place;
} processor;

static struct {
    uint64_t begin;
    uint64_t end;
    int place;
} ranges[MOST_RANGES];
static size_t num_ranges;
static uint64_t run_address;
static char out[512];
static processor processors[MOST_PROCESSORS];

static void note(processor *one, char event)
{
    if (one->events != NULL) {
        (void)fprintf(one->events, "%c %" PRIu64 "\n", event, one->executed);
        (void)fflush(one->events);
    }
}

static void execute(unsigned number, void *data)
{
    block *const now = data;
    processor *const one = &processors[number % MOST_PROCESSORS];
    if (one->place != ELSEWHERE && now->place != one->place) {
        note(one, one->place == SENDING ? 'N' : 'A');
    }
    if (now->place == AWAITING && one->place != AWAITING) {
        one->visits++;
    }
    one->place = now->place;
    if (now->begin == run_address) {
        note(one, 'R');
        one->return_address = one->last_end;
    } else if (now->begin == one->return_address) {
        note(one, 'E');
        one->return_address = 0u;
    }
    if (now->place != AWAITING || now->visit[number % MOST_PROCESSORS] != one->visits) {
        one->executed += now->count;
        now->visit[number % MOST_PROCESSORS] = one->visits;
    }
    one->last_end = now->end;
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    (void)id;
    const size_t count = qemu_plugin_tb_n_insns(tb);
    block *const found = calloc(1u, sizeof *found);
    if (found == NULL || count == 0u) {
        free(found);
        return;
    }
    const struct qemu_plugin_insn *const last = qemu_plugin_tb_get_insn(tb, count - 1u);
    found->begin = qemu_plugin_tb_vaddr(tb);
    found->end = qemu_plugin_insn_vaddr(last) + qemu_plugin_insn_size(last);
    found->count = count;
    for (size_t i = 0u; i < num_ranges; i++) {
        if (found->begin >= ranges[i].begin && found->begin < ranges[i].end) {
            found->place = ranges[i].place;
        }
    }
    qemu_plugin_register_vcpu_tb_exec_cb(tb, execute, 0, found);
}

static bool add_range(const char *text, int place)
{
    if (num_ranges == MOST_RANGES) {
        return false;
    }
    ranges[num_ranges].place = place;
    const bool read = sscanf(text, "%" SCNx64 "-%" SCNx64, &ranges[num_ranges].begin, &ranges[num_ranges].end) == 2;
    num_ranges++;
    return read;
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        bool understood = false;
        if (strncmp(argv[i], "out=", 4u) == 0) {
            understood = (size_t)snprintf(out, sizeof out, "%s", &argv[i][4]) < sizeof out;
        } else if (strncmp(argv[i], "run=", 4u) == 0) {
            understood = sscanf(&argv[i][4], "%" SCNx64, &run_address) == 1;
        } else if (strncmp(argv[i], "notify=", 7u) == 0) {
            understood = add_range(&argv[i][7], SENDING);
        } else if (strncmp(argv[i], "await=", 6u) == 0) {
            understood = add_range(&argv[i][6], AWAITING);
        }
        if (!understood) {
            (void)fprintf(stderr, "count_plugin: %s is not understood\n", argv[i]);
            return 1;
        }
    }
    for (unsigned number = 0u; number < MOST_PROCESSORS; number++) {
        char path[sizeof out + 8u];
        (void)snprintf(path, sizeof path, "%s.%u", out, number);
        processors[number].events = fopen(path, "w");
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    return 0;
}
