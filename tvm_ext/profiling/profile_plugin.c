/* A plugin of QEMU's: executed instructions, branches taken and memory accesses of one run, by layer and block of code.

   A layer is a call that the run function makes: what runs from there until control is back in the run function,
   callees included. Layer 0 is the run function itself. When the run ends, the file `out` is written:

       T address                                 top of the stack: the run function stores below it
       L layer site target lowest                a call: address behind it, function called, lowest address stored
                                                 on the stack
       B block address address ...               a run of instructions without branches, executed in order
       E block layer executed taken              executions of a block in a layer, and after how many control went
                                                 elsewhere than to the next address
       M block layer memory is_store transactions bursts bytes
                                                 accesses that began in a block: to a memory by its number, one more
                                                 than the last for addresses in none. Accesses of one instruction to
                                                 the same word of the bus are one transaction; one that does not go
                                                 on where the last one to this memory ended begins a burst.

   Arguments: out=PATH run=BEGIN-END skip=COUNT bus=BYTES stack=BEGIN-END memory=BEGIN-END, the last any number of
   times. skip: runs to let pass before the one that is counted. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile_counts.h"
#include "qemu_plugin.h"

#define READ_AND_WRITE 3

typedef struct {
    block *inside;
    uint64_t address;
} instruction;

typedef struct {
    uint64_t site;
    uint64_t target;
    uint64_t lowest;
} layer;

static range run_range;
static range stack_range;
static range memories[MOST_MEMORIES];
static size_t num_memories;
static uint64_t bus_bytes = 4u;
static uint64_t skipped_runs;
static char out[512];

static block *blocks;
static layer *layers;
static size_t num_layers;
static size_t current;
static bool is_inside;
static bool is_done;
static uint64_t return_address;
static uint64_t stack_top;
static const block *entry;
static block *last;
static uint64_t executions;

/* The last access: by which instruction, in which execution of a block, and where it ended; of each memory its end. */
static uint64_t last_instruction;
static uint64_t last_execution;
static uint64_t last_address;
static uint64_t ends[MOST_MEMORIES + 1];

static size_t layer_of(uint64_t site, uint64_t target)
{
    for (size_t i = 0u; i < num_layers; i++) {
        if (layers[i].site == site && layers[i].target == target) {
            return i;
        }
    }
    layers = grown(layers, (num_layers + 1u) * sizeof *layers);
    layers[num_layers] = (layer){.site = site, .target = target, .lowest = UINT64_MAX};
    return num_layers++;
}

static void write_profile(void)
{
    FILE *const file = fopen(out, "w");
    if (file == NULL) {
        (void)fprintf(stderr, "profile_plugin: %s cannot be written\n", out);
        return;
    }
    (void)fprintf(file, "T %" PRIx64 "\n", stack_top);
    for (size_t i = 0u; i < num_layers; i++) {
        (void)fprintf(file, "L %zu %" PRIx64 " %" PRIx64 " %" PRIx64 "\n", i, layers[i].site, layers[i].target,
                      layers[i].lowest);
    }
    size_t number = 0u;
    for (const block *one = blocks; one != NULL; one = one->next) {
        if (one->num_layers == 0u) {
            continue;
        }
        (void)fprintf(file, "B %zu", number);
        for (size_t i = 0u; i < one->count; i++) {
            (void)fprintf(file, " %" PRIx64, one->addresses[i]);
        }
        (void)fprintf(file, "\n");
        for (size_t i = 0u; i < one->num_layers; i++) {
            if (one->by_layer[i] != NULL) {
                write_tally(file, number, i, num_memories, one->by_layer[i]);
            }
        }
        number++;
    }
    (void)fclose(file);
}

static void enter_or_leave(const block *now)
{
    if (is_inside && now->begin == return_address) {
        is_inside = false;
        is_done = true;
        write_profile();
    } else if (!is_inside && now->begin == run_range.begin && last != NULL) {
        if (skipped_runs != 0u) {
            skipped_runs--;
            return;
        }
        is_inside = true;
        return_address = last->end;
        last = NULL;
        entry = now;
        current = layer_of(0u, run_range.begin);
    }
}

static void execute(unsigned number, void *data)
{
    (void)number;
    block *const now = data;
    if (is_done) {
        return;
    }
    executions++;
    if (is_inside && last != NULL && last->end != now->begin) {
        tally_of(last, current)->taken++;
    }
    enter_or_leave(now);
    if (is_inside) {
        if (now->begin >= run_range.begin && now->begin < run_range.end) {
            current = 0u;
        } else if (current == 0u && last != NULL) {
            current = layer_of(last->end, now->begin);
        }
        tally_of(now, current)->executed++;
    }
    last = now;
}

static size_t memory_of(uint64_t address)
{
    size_t found = 0u;
    while (found < num_memories && (address < memories[found].begin || address >= memories[found].end)) {
        found++;
    }
    return found;
}

static void access_memory(unsigned number, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
    (void)number;
    const instruction *const by = data;
    if (!is_inside) {
        return;
    }
    const uint64_t bytes = UINT64_C(1) << qemu_plugin_mem_size_shift(info);
    const bool is_store = qemu_plugin_mem_is_store(info);
    const bool goes_on = by->address == last_instruction && executions == last_execution && address == last_address &&
                         address % bus_bytes != 0u;
    const size_t memory = memory_of(address);
    traffic *const moved = &tally_of(by->inside, current)->of[memory][is_store];
    moved->transactions += goes_on ? 0u : 1u;
    moved->bursts += address == ends[memory] ? 0u : 1u;
    moved->bytes += bytes;
    last_instruction = by->address;
    last_execution = executions;
    last_address = address + bytes;
    ends[memory] = address + bytes;
    if (is_store && address >= stack_range.begin && address < stack_range.end) {
        if (by->inside == entry && address + bytes > stack_top) {
            stack_top = address + bytes;
        }
        if (address < layers[current].lowest) {
            layers[current].lowest = address;
        }
    }
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    (void)id;
    const size_t count = qemu_plugin_tb_n_insns(tb);
    if (count == 0u) {
        return;
    }
    block *const found = grown(NULL, sizeof *found);
    instruction *const instructions = grown(NULL, count * sizeof *instructions);
    *found = (block){.next = blocks, .begin = qemu_plugin_tb_vaddr(tb), .count = count};
    found->addresses = grown(NULL, count * sizeof *found->addresses);
    blocks = found;
    for (size_t i = 0u; i < count; i++) {
        struct qemu_plugin_insn *const one = qemu_plugin_tb_get_insn(tb, i);
        found->addresses[i] = qemu_plugin_insn_vaddr(one);
        found->end = found->addresses[i] + qemu_plugin_insn_size(one);
        instructions[i] = (instruction){.inside = found, .address = found->addresses[i]};
        qemu_plugin_register_vcpu_mem_cb(one, access_memory, 0, READ_AND_WRITE, &instructions[i]);
    }
    qemu_plugin_register_vcpu_tb_exec_cb(tb, execute, 0, found);
}

static bool read_range(const char *text, range *into)
{
    return sscanf(text, "%" SCNx64 "-%" SCNx64, &into->begin, &into->end) == 2;
}

static bool understood(const char *text)
{
    if (strncmp(text, "out=", 4u) == 0) {
        return (size_t)snprintf(out, sizeof out, "%s", &text[4]) < sizeof out;
    }
    if (strncmp(text, "run=", 4u) == 0) {
        return read_range(&text[4], &run_range);
    }
    if (strncmp(text, "stack=", 6u) == 0) {
        return read_range(&text[6], &stack_range);
    }
    if (strncmp(text, "memory=", 7u) == 0 && num_memories < MOST_MEMORIES) {
        return read_range(&text[7], &memories[num_memories++]);
    }
    if (strncmp(text, "skip=", 5u) == 0) {
        return sscanf(&text[5], "%" SCNu64, &skipped_runs) == 1;
    }
    return strncmp(text, "bus=", 4u) == 0 && sscanf(&text[4], "%" SCNu64, &bus_bytes) == 1 && bus_bytes != 0u;
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (!understood(argv[i])) {
            (void)fprintf(stderr, "profile_plugin: %s is not understood\n", argv[i]);
            return 1;
        }
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    return 0;
}
