/* Functions of string.h that packages use, for compilers without a C library. The header of a C library is used if
   there is one. */
#pragma GCC system_header
#ifndef TVM_EXT_OWN_STRING_H
#define TVM_EXT_OWN_STRING_H

#if __has_include_next(<string.h>)
#include_next <string.h>
#else
#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
int memcmp(const void *one, const void *other, size_t bytes);
size_t strlen(const char *text);
char *strchr(const char *text, int letter);
int strcmp(const char *one, const char *other);
int strncmp(const char *one, const char *other, size_t most);
#endif

#endif
