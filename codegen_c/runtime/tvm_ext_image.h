/* Images: models that a main program finds in memory, checks, and calls, without being linked with them.

   An image is code and constants that run wherever they lie. It begins with this header; what each function is for,
   and its type, is fixed by the interface that `interface_id` stands for. Numbers are those of the processor. */
#ifndef TVM_EXT_IMAGE_H
#define TVM_EXT_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TVM_EXT_IMAGE_MAGIC 0x49585654u /* "TVXI" */
#define TVM_EXT_IMAGE_ABI_VERSION 1u

/* `interface_id`, 64 bits in two words, is equal where functions and tensors are, scales and zero points aside.
   `image_bytes` counts from the first byte of the header, `sha256` is that of all behind it, up to there.
   `warm_up_runs`: runs behind a reset before a window over time is full. The header is followed by the ports, and
   these by `num_entries` words: each function by its distance from its own word. */
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
} tvm_ext_image;

/* An input or output, inputs first: real = scale * (value - zero_point); scale is 0 where nothing is quantized. */
typedef struct {
    uint32_t num_elements;
    int32_t zero_point;
    float scale;
} tvm_ext_image_port;

/* The processor that this is compiled for: a family and the extensions that code may use, as bits. */
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
#if __ARM_ARCH >= 7
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

/* Bits of `processor` that have to be equal: the family, and how floats are handed to functions. Of the others, an
   image may have those alone that the loader was compiled for. */
#define TVM_EXT_IMAGE_EQUAL 0x800000FFu

/* Answers of a check. */
#define TVM_EXT_IMAGE_OK 0
#define TVM_EXT_IMAGE_MISALIGNED (-101)      /* it does not lie at a multiple of its alignment */
#define TVM_EXT_IMAGE_NONE (-102)            /* the bytes do not begin as an image does */
#define TVM_EXT_IMAGE_WRONG_VERSION (-103)   /* of the ABI */
#define TVM_EXT_IMAGE_WRONG_SIZE (-104)      /* it runs over the bytes that are there, or its tables over itself */
#define TVM_EXT_IMAGE_WRONG_PROCESSOR (-105) /* made for another one */
#define TVM_EXT_IMAGE_WRONG_HASH (-106)      /* its bytes are not those that were made */
#define TVM_EXT_IMAGE_WRONG_INTERFACE (-107) /* functions or tensors are not those of this program */
#define TVM_EXT_IMAGE_WRONG_CONTEXT (-108)   /* an instance needs more bytes, or another alignment, than there are */

typedef void (*tvm_ext_image_function)(void);

/* 0 where an image lies at `place`, of at most room_bytes, that this processor may call; it reads no byte behind.
   It says that the bytes are those that were made, not who made them: check a signature before, where that counts. */
int32_t tvm_ext_image_check(const void *place, size_t room_bytes);

/* Its functions, of a checked image. */
tvm_ext_image_function tvm_ext_image_entry(const tvm_ext_image *image, uint32_t index);

/* Its inputs and outputs. */
const tvm_ext_image_port *tvm_ext_image_ports(const tvm_ext_image *image);

/* SHA-256 (FIPS 180-4). */
void tvm_ext_image_sha256(const uint8_t *bytes, size_t num_bytes, uint8_t digest[32]);

#ifdef __cplusplus
}
#endif

#endif
