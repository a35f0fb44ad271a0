/* Runs a model of a published submission twice; a plugin of QEMU's counts the second run. */
#include <stddef.h>
#include <stdint.h>

#include "tvm/runtime/c_backend_api.h"
#include "tvmgen_default.h"

static uint8_t workspace[WORKSPACE_SIZE + 4096] __attribute__((aligned(16)));
static size_t used;
static uint8_t input[65536] __attribute__((aligned(16)));
static uint8_t output[65536] __attribute__((aligned(16)));

/* Memory of a stack, as the submission's own allocator gives it: what was taken last is given back first. */
void *TVMBackendAllocWorkspace(int device, int number, uint64_t bytes, int code, int bits)
{
    (void)device;
    (void)number;
    (void)code;
    (void)bits;
    const size_t taken = ((size_t)bytes + 15u) & ~(size_t)15u;
    if (taken > sizeof workspace - used) {
        return NULL;
    }
    used += taken;
    return &workspace[used - taken];
}

int TVMBackendFreeWorkspace(int device, int number, void *pointer)
{
    (void)device;
    (void)number;
    used = (size_t)((uint8_t *)pointer - workspace);
    return 0;
}

int main(void)
{
    for (size_t i = 0u; i < sizeof input; i++) {
        input[i] = INPUT_IS_FLOAT != 0 ? 0u : (uint8_t)(i * 73u);
    }
    struct tvmgen_default_inputs inputs = {input};
    struct tvmgen_default_outputs outputs = {output};
    for (int run = 0; run < 2; run++) {
        if (tvmgen_default_run(&inputs, &outputs) != 0) {
            return 1;
        }
    }
    return 0;
}
