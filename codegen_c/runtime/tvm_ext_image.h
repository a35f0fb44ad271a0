/* Images: models that a main program finds in memory, checks and calls, without being linked with them.

   An image is code and constants that run at any address. It begins with this header; the interface that
   `interface_id` identifies fixes the meaning and type of each function. Numbers have the processor's byte order. */
#ifndef TVM_EXT_IMAGE_H
#define TVM_EXT_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TVM_EXT_IMAGE_MAGIC 0x49585654u /* "TVXI" */
#define TVM_EXT_IMAGE_ABI_VERSION 1u

/* `interface_id`, 64 bits in two words, is equal for equal functions and tensors, apart from scales and zero points.
   `image_bytes` counts from the first byte of the header; `sha256` is the hash of all bytes after it, up to there.
   `warm_up_runs`: runs after a reset until a window over time is full. The ports follow the header, and
   `num_entries` words follow the ports: the offset of each function from its own word. */
typedef struct {
    uint32_t magic;
    uint8_t sha256[32];
    uint32_t image_bytes;
    uint32_t abi_version;
    uint32_t processor;
    uint32_t alignment;
    uint32_t interface_id[2];
    uint32_t context_bytes;
    uint32_t context_alignment;
    uint32_t state_bytes;
    uint32_t warm_up_runs;
    uint32_t num_ports;
    uint32_t num_entries;
} tvm_ext_image_header;

/* An input or output, inputs first: real = scale * (value - zero_point); scale is 0 if it is not quantized. */
typedef struct {
    uint32_t num_elements;
    int32_t zero_point;
    float scale;
} tvm_ext_image_port;

/* The processor for which this is compiled: a family, and the extensions that code may use, as bits. */
#if defined(__arm__) && defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M'
#define TVM_EXT_IMAGE_FAMILY 1u
#elif defined(__x86_64__)
#define TVM_EXT_IMAGE_FAMILY 2u
#elif defined(__aarch64__)
#define TVM_EXT_IMAGE_FAMILY 3u
#elif defined(__riscv) && __riscv_xlen == 32
#define TVM_EXT_IMAGE_FAMILY 4u
#else
#define TVM_EXT_IMAGE_FAMILY 255u
#endif

/* Arm M-profile: of v7-M, DSP, v8-M, v8.1-M, Helium on integers and on floats, and floats in registers. */
#if TVM_EXT_IMAGE_FAMILY == 1u
#if __ARM_ARCH >= 7 && __ARM_ARCH_ISA_THUMB >= 2 /* v8-M baseline lacks most of v7-M */
#define TVM_EXT_IMAGE_V7M (1u << 8)
#else
#define TVM_EXT_IMAGE_V7M 0u
#endif
#ifdef __ARM_FEATURE_DSP
#define TVM_EXT_IMAGE_DSP (1u << 9)
#else
#define TVM_EXT_IMAGE_DSP 0u
#endif
#if __ARM_ARCH >= 8
#define TVM_EXT_IMAGE_V8M (1u << 10)
#else
#define TVM_EXT_IMAGE_V8M 0u
#endif
#if defined(__ARM_ARCH_8_1M_MAIN__) || defined(__ARM_FEATURE_MVE)
#define TVM_EXT_IMAGE_V81M (1u << 11)
#else
#define TVM_EXT_IMAGE_V81M 0u
#endif
#ifdef __ARM_FEATURE_MVE
#define TVM_EXT_IMAGE_MVE ((uint32_t)(__ARM_FEATURE_MVE & 3) << 12)
#else
#define TVM_EXT_IMAGE_MVE 0u
#endif
#ifdef __ARM_FP
#define TVM_EXT_IMAGE_FP ((uint32_t)(__ARM_FP & 12) << 12)
#else
#define TVM_EXT_IMAGE_FP 0u
#endif
#ifdef __ARM_PCS_VFP
#define TVM_EXT_IMAGE_CALLS (1u << 31)
#else
#define TVM_EXT_IMAGE_CALLS 0u
#endif
#define TVM_EXT_IMAGE_EXTENSIONS                                                                                       \
    (TVM_EXT_IMAGE_V7M | TVM_EXT_IMAGE_DSP | TVM_EXT_IMAGE_V8M | TVM_EXT_IMAGE_V81M | TVM_EXT_IMAGE_MVE |              \
     TVM_EXT_IMAGE_FP | TVM_EXT_IMAGE_CALLS)
#else
#define TVM_EXT_IMAGE_EXTENSIONS 0u
#endif

#define TVM_EXT_IMAGE_PROCESSOR (TVM_EXT_IMAGE_FAMILY | TVM_EXT_IMAGE_EXTENSIONS)

/* Bits of `processor` that must be equal: the family, and the passing of floats to functions. Of the other bits, an
   image may have only those for which the loader was compiled. */
#define TVM_EXT_IMAGE_EQUAL 0x800000FFu

/* Results of a check. */
#define TVM_EXT_IMAGE_OK 0
#define TVM_EXT_IMAGE_MISALIGNED (-101)      /* its address is no multiple of its alignment */
#define TVM_EXT_IMAGE_NONE (-102)            /* the bytes do not begin with an image's header */
#define TVM_EXT_IMAGE_WRONG_VERSION (-103)   /* of the ABI */
#define TVM_EXT_IMAGE_WRONG_SIZE (-104)      /* it exceeds the available bytes, or its tables exceed it */
#define TVM_EXT_IMAGE_WRONG_PROCESSOR (-105) /* made for another processor */
#define TVM_EXT_IMAGE_WRONG_HASH (-106)      /* its bytes differ from those that were made */
#define TVM_EXT_IMAGE_WRONG_INTERFACE (-107) /* functions or tensors are not those of this program */
#define TVM_EXT_IMAGE_WRONG_CONTEXT (-108)   /* an instance needs more bytes, or another alignment */

typedef void (*tvm_ext_image_function)(void);

/* Returns 0 if an image that this processor may call lies at `place`, with at most room_bytes; it reads no byte
   beyond. The check detects damage, but does not authenticate the image: check a signature first if that matters. */
int32_t tvm_ext_image_check(const void *place, size_t room_bytes);

/* Returns a function of a checked image. */
tvm_ext_image_function tvm_ext_image_entry(const tvm_ext_image_header *image, uint32_t index);

/* Returns the inputs and outputs of a checked image. */
const tvm_ext_image_port *tvm_ext_image_ports(const tvm_ext_image_header *image);

/* SHA-256 (FIPS 180-4). */
void tvm_ext_image_sha256(const uint8_t *bytes, size_t num_bytes, uint8_t digest[32]);

#ifdef __cplusplus
}
#endif

#endif
