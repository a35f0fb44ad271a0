/* Integer operations with RISC-V's vectors (Zve32x), and the same in plain C for other processors.
 *
 * The loops are assembly. No vector register is live from one loop to the next, and each loop asks for its vector
 * length, so the same text works for all lengths from 128 bits on, with one vsetvli for a whole loop. Compilers that do
 * not know the extension can assemble it as well, if the build defines TVM_EXT_RVV as 1. */
#ifndef TVM_EXT_RVV_H
#define TVM_EXT_RVV_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(TVM_EXT_RVV)
#if defined(__riscv_vector) && defined(__GNUC__)
#define TVM_EXT_RVV 1
#else
#define TVM_EXT_RVV 0
#endif
#endif

/* Directives around instructions of the extension, for builds whose -march does not name it. */
#if defined(__riscv_vector)
#define TVM_EXT_RVV_BEGIN ""
#define TVM_EXT_RVV_END ""
#else
#define TVM_EXT_RVV_BEGIN ".option push\n\t.option arch, +zve32x\n\t"
#define TVM_EXT_RVV_END ".option pop\n\t"
#endif

/* Loads the address or the number of the same size with index INDEX of an array at FROM, and the bytes of each. */
#if defined(__riscv_xlen) && __riscv_xlen == 64
#define TVM_EXT_RVV_LOAD(TO, INDEX, FROM) "ld %[" TO "], 8*" INDEX "(%[" FROM "])\n\t"
#define TVM_EXT_RVV_ADDRESS_BYTES "8"
#else
#define TVM_EXT_RVV_LOAD(TO, INDEX, FROM) "lw %[" TO "], 4*" INDEX "(%[" FROM "])\n\t"
#define TVM_EXT_RVV_ADDRESS_BYTES "4"
#endif

/* Clobber list: vector registers that a loop changes, for compilers that allocate them. */
#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 13)
#define TVM_EXT_RVV_CHANGED                                                                                           \
    , "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16",    \
        "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"
#else
#define TVM_EXT_RVV_CHANGED
#endif

/* Storage class of functions that exist once for all layers. */
#if TVM_EXT_RVV && !defined(__clang__)
#define TVM_EXT_RVV_SHARED static __attribute__((noinline, noclone, unused))
#elif TVM_EXT_RVV
#define TVM_EXT_RVV_SHARED static __attribute__((noinline, unused))
#else
#define TVM_EXT_RVV_SHARED static inline
#endif

/* Storage class of loops over the pixels of a layer: code for each layer's shapes, or one function where code must be
 * small. */
#if TVM_EXT_RVV && defined(__OPTIMIZE_SIZE__)
#define TVM_EXT_RVV_LOOPS TVM_EXT_RVV_SHARED
#else
#define TVM_EXT_RVV_LOOPS TVM_EXT_INLINE
#endif

/* Copies `count` bytes; count > 0. A few bytes take one register, for some processors work on all registers of a group,
 * whatever the length of the vector. */
TVM_EXT_RVV_SHARED void tvm_ext_rvv_copy(uint8_t *target, const uint8_t *source, intptr_t count)
{
#if TVM_EXT_RVV
    intptr_t length;
    __asm__ volatile(TVM_EXT_RVV_BEGIN "vsetvli %[length], %[count], e8, m1, ta, ma\n\t"
                                       "bne %[length], %[count], 1f\n\t"
                                       "vle8.v v0, (%[source])\n\t"
                                       "vse8.v v0, (%[target])\n\t"
                                       "j 2f\n"
                                       "1:\n\t"
                                       "vsetvli %[length], %[count], e8, m8, ta, ma\n\t"
                                       "vle8.v v0, (%[source])\n\t"
                                       "sub %[count], %[count], %[length]\n\t"
                                       "add %[source], %[source], %[length]\n\t"
                                       "vse8.v v0, (%[target])\n\t"
                                       "add %[target], %[target], %[length]\n\t"
                                       "bnez %[count], 1b\n"
                                       "2:\n\t" TVM_EXT_RVV_END
                     : [length] "=&r"(length), [count] "+r"(count), [source] "+r"(source), [target] "+r"(target)
                     :
                     : "memory" TVM_EXT_RVV_CHANGED);
#else
    (void)memcpy(target, source, (size_t)count);
#endif
}

/* Fills `count` bytes with a value; count > 0. */
TVM_EXT_RVV_SHARED void tvm_ext_rvv_fill(uint8_t *target, int32_t value, intptr_t count)
{
#if TVM_EXT_RVV
    intptr_t length;
    __asm__ volatile(TVM_EXT_RVV_BEGIN "1:\n\t"
                                       "vsetvli %[length], %[count], e8, m8, ta, ma\n\t"
                                       "vmv.v.x v0, %[value]\n\t"
                                       "sub %[count], %[count], %[length]\n\t"
                                       "vse8.v v0, (%[target])\n\t"
                                       "add %[target], %[target], %[length]\n\t"
                                       "bnez %[count], 1b\n\t" TVM_EXT_RVV_END
                     : [length] "=&r"(length), [count] "+r"(count), [target] "+r"(target)
                     : [value] "r"(value)
                     : "memory" TVM_EXT_RVV_CHANGED);
#else
    (void)memset(target, value & 0xff, (size_t)count);
#endif
}

#endif
