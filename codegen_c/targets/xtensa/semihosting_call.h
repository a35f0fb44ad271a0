/* Semihosting by the calls of Xtensa's simulator: the number in a2, arguments in a3 to a5, the result in a2. */
#ifndef TVM_EXT_SEMIHOSTING_CALL_H
#define TVM_EXT_SEMIHOSTING_CALL_H

#include <stddef.h>
#include <stdint.h>

#define SIMULATOR_EXIT 1
#define SIMULATOR_READ 3
#define SIMULATOR_WRITE 4
#define SIMULATOR_OPEN 5
#define SIMULATOR_CLOSE 6
#define SIMULATOR_LSEEK 19
#define SIMULATOR_ARGUMENTS 1000
#define SIMULATOR_ARGUMENT_BYTES 1001
#define SIMULATOR_COPY_ARGUMENTS 1002

#define SIMULATOR_WRITE_NEW 01101 /* O_WRONLY | O_CREAT | O_TRUNC of Linux */
#define SIMULATOR_FILE_MODE 0600
#define SIMULATOR_FROM_BEGIN 0
#define SIMULATOR_FROM_HERE 1
#define SIMULATOR_FROM_END 2

static inline int32_t simulator_call(int32_t number, uintptr_t first, uintptr_t second, uintptr_t third)
{
    register int32_t result __asm__("a2") = number;
    register uintptr_t a3 __asm__("a3") = first;
    register uintptr_t a4 __asm__("a4") = second;
    register uintptr_t a5 __asm__("a5") = third;
    __asm__ volatile("simcall" : "+r"(result), "+r"(a3) : "r"(a4), "r"(a5) : "memory");
    return result;
}

/* Returns the bytes that the call `number` did not transfer. */
static inline int32_t simulator_transfer(int32_t number, uintptr_t file, uintptr_t data, uintptr_t bytes)
{
    uintptr_t done = 0u;
    while (done < bytes) {
        const int32_t count = simulator_call(number, file, data + done, bytes - done);
        if (count <= 0) {
            break;
        }
        done += (uintptr_t)count;
    }
    return (int32_t)(bytes - done);
}

/* Returns the length of a file and leaves its position as it was; negative on error. */
static inline int32_t simulator_length(uintptr_t file)
{
    const int32_t here = simulator_call(SIMULATOR_LSEEK, file, 0u, SIMULATOR_FROM_HERE);
    const int32_t end = simulator_call(SIMULATOR_LSEEK, file, 0u, SIMULATOR_FROM_END);
    return here < 0 || simulator_call(SIMULATOR_LSEEK, file, (uintptr_t)here, SIMULATOR_FROM_BEGIN) < 0 ? -1 : end;
}

/* Writes the arguments to `text`, with spaces between them. Returns 0, or -1 if there are none or too many.

   The simulator writes their addresses, a null pointer, and the texts. */
static inline int32_t simulator_command_line(char *text, uintptr_t capacity)
{
    static union {
        uint32_t addresses[256];
        char bytes[1024];
    } words;
    const int32_t count = simulator_call(SIMULATOR_ARGUMENTS, 0u, 0u, 0u);
    const int32_t bytes = simulator_call(SIMULATOR_ARGUMENT_BYTES, 0u, 0u, 0u);
    uintptr_t at = 0u;
    if (count <= 0 || bytes <= 0 || (uint32_t)bytes > sizeof words) {
        return -1;
    }
    (void)simulator_call(SIMULATOR_COPY_ARGUMENTS, (uintptr_t)&words, 0u, 0u);
    for (int32_t word = 0; word < count; word++) {
        for (const char *letter = (const char *)words.addresses[word]; *letter != '\0' && at < capacity; letter++) {
            text[at] = *letter;
            at++;
        }
        if (at >= capacity) {
            return -1;
        }
        text[at] = word + 1 == count ? '\0' : ' ';
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
        const uintptr_t flags = block[1] == SEMIHOSTING_MODE_WRITE_BINARY ? SIMULATOR_WRITE_NEW : 0u;
        const int32_t file = simulator_call(SIMULATOR_OPEN, block[0], flags, SIMULATOR_FILE_MODE);
        return file < 0 ? -1 : file;
    }
    case SEMIHOSTING_CLOSE:
        return simulator_call(SIMULATOR_CLOSE, block[0], 0u, 0u) == 0 ? 0 : -1;
    case SEMIHOSTING_READ:
        return simulator_transfer(SIMULATOR_READ, block[0], block[1], block[2]);
    case SEMIHOSTING_WRITE:
        return simulator_transfer(SIMULATOR_WRITE, block[0], block[1], block[2]);
    case SEMIHOSTING_WRITE0:
        while (text[length] != '\0') {
            length++;
        }
        return simulator_transfer(SIMULATOR_WRITE, 1u, (uintptr_t)argument, length);
    case SEMIHOSTING_SEEK:
        return simulator_call(SIMULATOR_LSEEK, block[0], block[1], SIMULATOR_FROM_BEGIN) < 0 ? -1 : 0;
    case SEMIHOSTING_FILE_LENGTH:
        return simulator_length(block[0]);
    case SEMIHOSTING_GET_CMDLINE:
        return simulator_command_line((char *)block[0], block[1]);
    case SEMIHOSTING_EXIT_EXTENDED:
        return simulator_call(SIMULATOR_EXIT, block[1], 0u, 0u);
    default:
        return -1;
    }
}

#endif
