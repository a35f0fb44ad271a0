/* The semihosting call of a module: a function that the runtime provides. It reads the arguments in linear memory. */
#ifndef TVM_EXT_SEMIHOSTING_CALL_H
#define TVM_EXT_SEMIHOSTING_CALL_H

#include <stdint.h>

__attribute__((import_module("tvm_ext"), import_name("semihosting"))) extern int32_t
semihosting_call(uint32_t operation, const void *argument);

#endif
