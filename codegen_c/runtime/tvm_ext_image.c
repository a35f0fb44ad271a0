/* Loader of images: checks an image that a main program found in memory. No heap, no state, no copy. */
#include "tvm_ext_image.h"

#include <string.h>

#define BLOCK_BYTES 64u
#define LEAST_ALIGNMENT 16u

static const uint32_t round_constants[64] = {
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
    0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
    0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
    0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
    0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
    0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
    0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
    0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u,
};

static uint32_t rotated(uint32_t value, uint32_t bits)
{
    return (value >> bits) | (value << (32u - bits));
}

static void sha256_block(uint32_t state[8], const uint8_t *block)
{
    uint32_t words[64];
    for (uint32_t i = 0u; i < 16u; i++) {
        words[i] = ((uint32_t)block[4u * i] << 24) | ((uint32_t)block[4u * i + 1u] << 16) |
                   ((uint32_t)block[4u * i + 2u] << 8) | block[4u * i + 3u];
    }
    for (uint32_t i = 16u; i < 64u; i++) {
        const uint32_t early = words[i - 15u];
        const uint32_t late = words[i - 2u];
        words[i] = words[i - 16u] + (rotated(early, 7u) ^ rotated(early, 18u) ^ (early >> 3)) + words[i - 7u] +
                   (rotated(late, 17u) ^ rotated(late, 19u) ^ (late >> 10));
    }
    uint32_t v[8];
    (void)memcpy(v, state, sizeof v);
    for (uint32_t i = 0u; i < 64u; i++) {
        const uint32_t chosen = (v[4] & v[5]) ^ (~v[4] & v[6]);
        const uint32_t most = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        const uint32_t first = v[7] + (rotated(v[4], 6u) ^ rotated(v[4], 11u) ^ rotated(v[4], 25u)) + chosen +
                               round_constants[i] + words[i];
        const uint32_t second = (rotated(v[0], 2u) ^ rotated(v[0], 13u) ^ rotated(v[0], 22u)) + most;
        (void)memmove(&v[1], &v[0], 7u * sizeof v[0]);
        v[4] += first;
        v[0] = first + second;
    }
    for (uint32_t i = 0u; i < 8u; i++) {
        state[i] += v[i];
    }
}

void tvm_ext_image_sha256(const uint8_t *bytes, size_t num_bytes, uint8_t digest[32])
{
    uint32_t state[8] = {0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                         0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
    size_t done = 0u;
    for (; num_bytes - done >= BLOCK_BYTES; done += BLOCK_BYTES) {
        sha256_block(state, &bytes[done]);
    }
    uint8_t last[2u * BLOCK_BYTES] = {0};
    const size_t left = num_bytes - done;
    const size_t last_bytes = left + 9u <= BLOCK_BYTES ? BLOCK_BYTES : 2u * BLOCK_BYTES;
    (void)memcpy(last, &bytes[done], left);
    last[left] = 0x80u;
    for (size_t i = 0u; i < 8u; i++) {
        last[last_bytes - 1u - i] = (uint8_t)(((uint64_t)num_bytes * 8u) >> (8u * i));
    }
    for (size_t begin = 0u; begin < last_bytes; begin += BLOCK_BYTES) {
        sha256_block(state, &last[begin]);
    }
    for (uint32_t i = 0u; i < 32u; i++) {
        digest[i] = (uint8_t)(state[i / 4u] >> (24u - 8u * (i % 4u)));
    }
}

const tvm_ext_image_port *tvm_ext_image_ports(const tvm_ext_image_header *image)
{
    return (const tvm_ext_image_port *)(const void *)&image[1];
}

static const int32_t *entries(const tvm_ext_image_header *image)
{
    return (const int32_t *)(const void *)&tvm_ext_image_ports(image)[image->num_ports];
}

tvm_ext_image_function tvm_ext_image_entry(const tvm_ext_image_header *image, uint32_t index)
{
    const int32_t *const word = &entries(image)[index];
    return (tvm_ext_image_function)((uintptr_t)word + (uintptr_t)(intptr_t)*word);
}

/* Returns true if header, ports and entries end inside the image, and every function begins inside it. */
static int tables_are_inside(const tvm_ext_image_header *image)
{
    const uint64_t tables =
        sizeof *image + (uint64_t)image->num_ports * sizeof(tvm_ext_image_port) + (uint64_t)image->num_entries * 4u;
    if (tables > image->image_bytes) {
        return 0;
    }
    for (uint32_t i = 0u; i < image->num_entries; i++) {
        const uintptr_t from = (uintptr_t)tvm_ext_image_entry(image, i) - (uintptr_t)image;
        if (from < tables || from >= image->image_bytes) {
            return 0;
        }
    }
    return 1;
}

int32_t tvm_ext_image_check(const void *place, size_t room_bytes)
{
    const tvm_ext_image_header *const image = place;
    const size_t begin = offsetof(tvm_ext_image_header, image_bytes);
    if ((uintptr_t)place % LEAST_ALIGNMENT != 0u) {
        return TVM_EXT_IMAGE_MISALIGNED;
    }
    if (room_bytes < sizeof *image || image->magic != TVM_EXT_IMAGE_MAGIC) {
        return TVM_EXT_IMAGE_NONE;
    }
    if (image->abi_version != TVM_EXT_IMAGE_ABI_VERSION) {
        return TVM_EXT_IMAGE_WRONG_VERSION;
    }
    if (image->image_bytes < sizeof *image || image->image_bytes > room_bytes) {
        return TVM_EXT_IMAGE_WRONG_SIZE;
    }
    if (((image->processor ^ TVM_EXT_IMAGE_PROCESSOR) & TVM_EXT_IMAGE_EQUAL) != 0u ||
        (image->processor & ~TVM_EXT_IMAGE_PROCESSOR) != 0u) {
        return TVM_EXT_IMAGE_WRONG_PROCESSOR;
    }
    uint8_t digest[sizeof image->sha256];
    tvm_ext_image_sha256((const uint8_t *)place + begin, image->image_bytes - begin, digest);
    if (memcmp(digest, image->sha256, sizeof digest) != 0) {
        return TVM_EXT_IMAGE_WRONG_HASH;
    }
    if (image->alignment == 0u || (uintptr_t)place % image->alignment != 0u) {
        return TVM_EXT_IMAGE_MISALIGNED;
    }
    return tables_are_inside(image) ? TVM_EXT_IMAGE_OK : TVM_EXT_IMAGE_WRONG_SIZE;
}
