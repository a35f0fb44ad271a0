/* Arm's semihosting: text, files and exit through the debugger or QEMU. For bring-up, not for products. */
#ifndef TVM_EXT_SEMIHOSTING_H
#define TVM_EXT_SEMIHOSTING_H

#include <stddef.h>
#include <stdint.h>

#define SEMIHOSTING_OPEN 0x01u
#define SEMIHOSTING_CLOSE 0x02u
#define SEMIHOSTING_WRITE0 0x04u
#define SEMIHOSTING_WRITE 0x05u
#define SEMIHOSTING_READ 0x06u
#define SEMIHOSTING_SEEK 0x0Au
#define SEMIHOSTING_FILE_LENGTH 0x0Cu
#define SEMIHOSTING_GET_CMDLINE 0x15u
#define SEMIHOSTING_EXIT_EXTENDED 0x20u

#define SEMIHOSTING_MODE_READ_BINARY 1u
#define SEMIHOSTING_MODE_WRITE_BINARY 5u
#define SEMIHOSTING_APPLICATION_EXIT 0x20026u

#include "semihosting_call.h"

static inline void semihosting_print(const char *text)
{
    (void)semihosting_call(SEMIHOSTING_WRITE0, text);
}

/* Opens a file. Returns a handle, or -1 on error. */
static inline int32_t semihosting_open(const char *path, size_t length, uint32_t mode)
{
    const uintptr_t block[3] = {(uintptr_t)path, mode, length};
    return semihosting_call(SEMIHOSTING_OPEN, block);
}

/* Closes a file. Returns 0 on success. */
static inline int32_t semihosting_close(int32_t file)
{
    const uintptr_t block[1] = {(uintptr_t)file};
    return semihosting_call(SEMIHOSTING_CLOSE, block);
}

/* Reads from a file. Returns the number of bytes that were not read: 0 on success. */
static inline int32_t semihosting_read(int32_t file, void *data, size_t bytes)
{
    const uintptr_t block[3] = {(uintptr_t)file, (uintptr_t)data, bytes};
    return semihosting_call(SEMIHOSTING_READ, block);
}

/* Writes to a file. Returns the number of bytes that were not written: 0 on success. */
static inline int32_t semihosting_write(int32_t file, const void *data, size_t bytes)
{
    const uintptr_t block[3] = {(uintptr_t)file, (uintptr_t)data, bytes};
    return semihosting_call(SEMIHOSTING_WRITE, block);
}

/* Sets the position in a file. Returns 0 on success. */
static inline int32_t semihosting_seek(int32_t file, size_t offset)
{
    const uintptr_t block[2] = {(uintptr_t)file, offset};
    return semihosting_call(SEMIHOSTING_SEEK, block);
}

/* Returns the length of an open file in bytes, or -1 on error. */
static inline int32_t semihosting_file_length(int32_t file)
{
    const uintptr_t block[1] = {(uintptr_t)file};
    return semihosting_call(SEMIHOSTING_FILE_LENGTH, block);
}

/* Copies the command line to `buffer` as text. Returns 0 on success. */
static inline int32_t semihosting_command_line(char *buffer, size_t capacity)
{
    const uintptr_t block[2] = {(uintptr_t)buffer, capacity};
    return semihosting_call(SEMIHOSTING_GET_CMDLINE, block);
}

static inline void semihosting_print_decimal(uint64_t value)
{
    char text[21];
    size_t at = sizeof text - 1u;
    text[at] = '\0';
    do {
        at--;
        text[at] = (char)('0' + (int)(value % 10u));
        value /= 10u;
    } while (value != 0u);
    semihosting_print(&text[at]);
}

static inline void semihosting_print_hex(uint32_t value)
{
    char text[11] = "0x";
    for (size_t digit = 0u; digit < 8u; digit++) {
        text[2u + digit] = "0123456789abcdef"[(value >> (28u - 4u * digit)) & 15u];
    }
    text[10] = '\0';
    semihosting_print(text);
}

__attribute__((noreturn)) static inline void semihosting_exit(uint32_t code)
{
    const uintptr_t block[2] = {SEMIHOSTING_APPLICATION_EXIT, code};
    for (;;) {
        (void)semihosting_call(SEMIHOSTING_EXIT_EXTENDED, block);
    }
}

#endif
