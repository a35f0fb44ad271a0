/* Semihosting for a program on Linux, such as one that QEMU runs as a process: each operation is a system call, by the
   numbers that architectures without a history share. The target's semihosting_call.h defines linux_call and includes
   this file; its startup.c defines process_arguments. */
#ifndef TVM_EXT_LINUX_CALLS_H
#define TVM_EXT_LINUX_CALLS_H

#include <stddef.h>
#include <stdint.h>

#define LINUX_OPENAT 56
#define LINUX_CLOSE 57
#define LINUX_LSEEK 62
#define LINUX_READ 63
#define LINUX_WRITE 64
#define LINUX_EXIT_GROUP 94

#define LINUX_WORKING_FOLDER (-100)
#define LINUX_WRITE_NEW 01101 /* O_WRONLY | O_CREAT | O_TRUNC */
#define LINUX_FILE_MODE 0600
#define LINUX_FROM_BEGIN 0
#define LINUX_FROM_HERE 1
#define LINUX_FROM_END 2

/* The arguments of the program, its name first, ended by NULL. */
extern char *const *process_arguments;

/* Returns the bytes that the call `number` did not transfer. */
static inline int32_t linux_transfer(intptr_t number, intptr_t file, uintptr_t data, uintptr_t bytes)
{
    uintptr_t done = 0u;
    while (done < bytes) {
        const intptr_t count = linux_call(number, file, (intptr_t)(data + done), (intptr_t)(bytes - done), 0);
        if (count <= 0) {
            break;
        }
        done += (uintptr_t)count;
    }
    return (int32_t)(bytes - done);
}

/* Returns the length of a file and leaves its position as it was; negative on error. */
static inline int32_t linux_length(intptr_t file)
{
    const intptr_t here = linux_call(LINUX_LSEEK, file, 0, LINUX_FROM_HERE, 0);
    const intptr_t end = linux_call(LINUX_LSEEK, file, 0, LINUX_FROM_END, 0);
    return here < 0 || linux_call(LINUX_LSEEK, file, here, LINUX_FROM_BEGIN, 0) < 0 ? -1 : (int32_t)end;
}

/* Writes the arguments after the program's name to `text`, with spaces between them. Returns 0, or -1 if there are none
   or too many. */
static inline int32_t linux_command_line(char *text, uintptr_t capacity)
{
    uintptr_t at = 0u;
    if (process_arguments[0] == NULL || process_arguments[1] == NULL) {
        return -1;
    }
    for (char *const *word = &process_arguments[1]; *word != NULL; word++) {
        for (const char *letter = *word; *letter != '\0' && at < capacity; letter++) {
            text[at] = *letter;
            at++;
        }
        if (at >= capacity) {
            return -1;
        }
        text[at] = word[1] == NULL ? '\0' : ' ';
        at++;
    }
    return 0;
}

static inline int32_t semihosting_call(uint32_t operation, const void *argument)
{
    const uintptr_t *const block = argument;
    const char *const text = argument;
    uintptr_t length = 0u;
    switch (operation) {
    case SEMIHOSTING_OPEN: {
        const intptr_t flags = block[1] == SEMIHOSTING_MODE_WRITE_BINARY ? LINUX_WRITE_NEW : 0;
        const intptr_t path = (intptr_t)block[0];
        const intptr_t file = linux_call(LINUX_OPENAT, LINUX_WORKING_FOLDER, path, flags, LINUX_FILE_MODE);
        return file < 0 ? -1 : (int32_t)file;
    }
    case SEMIHOSTING_CLOSE:
        return linux_call(LINUX_CLOSE, (intptr_t)block[0], 0, 0, 0) == 0 ? 0 : -1;
    case SEMIHOSTING_READ:
        return linux_transfer(LINUX_READ, (intptr_t)block[0], block[1], block[2]);
    case SEMIHOSTING_WRITE:
        return linux_transfer(LINUX_WRITE, (intptr_t)block[0], block[1], block[2]);
    case SEMIHOSTING_WRITE0:
        while (text[length] != '\0') {
            length++;
        }
        return linux_transfer(LINUX_WRITE, 1, (uintptr_t)argument, length);
    case SEMIHOSTING_SEEK:
        return linux_call(LINUX_LSEEK, (intptr_t)block[0], (intptr_t)block[1], LINUX_FROM_BEGIN, 0) < 0 ? -1 : 0;
    case SEMIHOSTING_FILE_LENGTH:
        return linux_length((intptr_t)block[0]);
    case SEMIHOSTING_GET_CMDLINE:
        return linux_command_line((char *)block[0], block[1]);
    case SEMIHOSTING_EXIT_EXTENDED:
        return (int32_t)linux_call(LINUX_EXIT_GROUP, (intptr_t)block[1], 0, 0, 0);
    default:
        return -1;
    }
}

#endif
