/* Reference of an accelerator's driver: the same layers in plain C, slowly, with the bytes of the other kernels.
 *
 * A call is stored, and computed when it is waited for; with TVM_EXT_OFFLOAD_EARLY when it is started. A program
 * that reads a result or writes to an operand before the wait computes different bytes in one of the two. */
#ifndef TVM_EXT_OFFLOAD_REFERENCE_H
#define TVM_EXT_OFFLOAD_REFERENCE_H

#include "tvm_ext_offload_floats.h"
#include "tvm_ext_offload_integers.h"

#ifndef TVM_EXT_OFFLOAD_EARLY
#define TVM_EXT_OFFLOAD_EARLY 0
#endif

/* Results of a wait after calls in the wrong order. */
#define TVM_EXT_OFFLOAD_NOT_STARTED 101
#define TVM_EXT_OFFLOAD_STARTED_TWICE 102

/* An accelerator, and its current call. */
typedef struct {
    tvm_ext_reference_call call;
    uint32_t starts;
    uint32_t waits;
    int32_t status;
} tvm_ext_reference_unit;

static inline void tvm_ext_reference_compute(const tvm_ext_reference_call *call)
{
    switch (call->kind) {
    case TVM_EXT_REFERENCE_NOTHING:
        break;
    case TVM_EXT_REFERENCE_CONV2D:
    case TVM_EXT_REFERENCE_DEPTHWISE:
        tvm_ext_reference_convolve(call, call->kind == TVM_EXT_REFERENCE_DEPTHWISE);
        break;
    case TVM_EXT_REFERENCE_DENSE:
        tvm_ext_reference_dense(call);
        break;
    case TVM_EXT_REFERENCE_MAX_POOL:
    case TVM_EXT_REFERENCE_AVERAGE_POOL:
        tvm_ext_reference_pool(call);
        break;
    case TVM_EXT_REFERENCE_ADD:
        tvm_ext_reference_add(call);
        break;
    case TVM_EXT_REFERENCE_CONV2D_F32:
    case TVM_EXT_REFERENCE_DEPTHWISE_F32:
        tvm_ext_reference_convolve_f32(call, call->kind == TVM_EXT_REFERENCE_DEPTHWISE_F32);
        break;
    case TVM_EXT_REFERENCE_DENSE_F32:
        tvm_ext_reference_dense_f32(call);
        break;
    case TVM_EXT_REFERENCE_MAX_POOL_F32:
    case TVM_EXT_REFERENCE_AVERAGE_POOL_F32:
        tvm_ext_reference_pool_f32(call);
        break;
    case TVM_EXT_REFERENCE_ADD_F32:
        tvm_ext_reference_add_f32(call);
        break;
    }
}

static inline void tvm_ext_reference_start(tvm_ext_reference_unit *unit, const tvm_ext_reference_call *call)
{
    if (unit->call.kind != TVM_EXT_REFERENCE_NOTHING) {
        unit->status = TVM_EXT_OFFLOAD_STARTED_TWICE;
    }
    unit->starts++;
    unit->call = *call;
    if (TVM_EXT_OFFLOAD_EARLY) {
        tvm_ext_reference_compute(call);
    }
}

static inline int32_t tvm_ext_reference_wait(tvm_ext_reference_unit *unit)
{
    unit->waits++;
    if (unit->call.kind == TVM_EXT_REFERENCE_NOTHING) {
        unit->status = TVM_EXT_OFFLOAD_NOT_STARTED;
    } else if (!TVM_EXT_OFFLOAD_EARLY) {
        tvm_ext_reference_compute(&unit->call);
    }
    unit->call.kind = TVM_EXT_REFERENCE_NOTHING;
    const int32_t status = unit->status;
    unit->status = 0;
    return status;
}

#endif
