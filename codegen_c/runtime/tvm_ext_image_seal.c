/* Runs on the build machine: writes size and hash into a linked image. Usage: seal LINKED IMAGE */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tvm_ext_image.h"

static int fail(const char *what, const char *path)
{
    (void)fprintf(stderr, "seal: %s: %s\n", path, what);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        return fail("usage: seal LINKED IMAGE", "arguments");
    }
    FILE *const file = fopen(argv[1], "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        return fail("cannot be read", argv[1]);
    }
    const long end = ftell(file);
    const size_t begin = offsetof(tvm_ext_image_header, image_bytes);
    uint8_t *const bytes = end > 0 ? malloc((size_t)end) : NULL;
    if (bytes == NULL || (size_t)end < sizeof(tvm_ext_image_header) || fseek(file, 0, SEEK_SET) != 0 ||
        fread(bytes, 1u, (size_t)end, file) != (size_t)end) {
        return fail("is no linked image", argv[1]);
    }
    (void)fclose(file);
    for (size_t i = 0u; i < 4u; i++) {
        bytes[begin + i] = (uint8_t)((size_t)end >> (8u * i));
    }
    tvm_ext_image_sha256(&bytes[begin], (size_t)end - begin, &bytes[offsetof(tvm_ext_image_header, sha256)]);
    FILE *const sealed = fopen(argv[2], "wb");
    const int is_written = sealed != NULL && fwrite(bytes, 1u, (size_t)end, sealed) == (size_t)end;
    free(bytes);
    if (sealed == NULL || fclose(sealed) != 0 || !is_written) {
        return fail("cannot be written", argv[2]);
    }
    return 0;
}
