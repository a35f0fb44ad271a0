/* The entry of a module. The runtime has initialized its memory. */
#include <stdint.h>

#include "semihosting.h"

/* clang's name of a main function without parameters. */
extern int main_without_parameters(void) __asm__("__main_void");

__attribute__((export_name("_start"))) void reset_handler(void);

void reset_handler(void)
{
    semihosting_exit((uint32_t)main_without_parameters());
}
