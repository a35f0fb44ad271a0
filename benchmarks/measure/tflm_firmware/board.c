/* What C++ needs of a board, for QEMU's mps2-an386 and mps3-an547: start, timer, a line of text, and the rest of newlib's calls. */
#include <stdint.h>

#define CPACR (*(volatile uint32_t *)0xE000ED88u)
#ifdef TIMER_CMSDK
#define TIMER ((volatile uint32_t *)0x40000000u) /* control, value, reload; counts down at 25 MHz */
#else
#define COUNTER_CONTROL (*(volatile uint32_t *)0x58100000u)
#define COUNTER_VALUE (*(volatile uint32_t *)0x58100008u) /* the low word; counts up at 32 MHz */
#endif

extern uint32_t data_load[], data_begin[], data_end[], bss_begin[], bss_end[], stack_top[];
extern void (*init_array_begin[])(void), (*init_array_end[])(void);
void *__dso_handle;

int main(void);
void reset(void);
void _exit(int code);

static int semihosting(int operation, const void *argument)
{
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void say(const char *text)
{
    (void)semihosting(4, text);
}

uint32_t timer_now(void)
{
#ifdef TIMER_CMSDK
    return UINT32_MAX - TIMER[1];
#else
    return COUNTER_VALUE;
#endif
}

void _exit(int code)
{
    const uint32_t block[2] = {0x20026u, (uint32_t)code};
    for (;;) {
        (void)semihosting(0x20, block);
    }
}

void reset(void)
{
    CPACR |= 0xFu << 20;
    __asm__ volatile("dsb\nisb");
    for (uint32_t *to = data_begin, *from = data_load; to < data_end;) {
        *to++ = *from++;
    }
    for (uint32_t *word = bss_begin; word < bss_end;) {
        *word++ = 0u;
    }
    for (void (**function)(void) = init_array_begin; function < init_array_end; function++) {
        (*function)();
    }
#ifdef TIMER_CMSDK
    TIMER[2] = UINT32_MAX;
    TIMER[1] = UINT32_MAX;
    TIMER[0] = 1u;
#else
    COUNTER_CONTROL = 1u;
#endif
    _exit(main());
}

static void fault(void)
{
    say("FAIL fault\n");
    _exit(2);
}

__attribute__((section(".vectors"), used)) static void (*const vectors[7])(void) = {
    (void (*)(void))stack_top, reset, fault, fault, fault, fault, fault,
};

void *_sbrk(int bytes)
{
    static char heap[8192];
    static int used;
    void *const begin = &heap[used];
    used += bytes;
    return begin;
}

int _write(int file, const char *text, int bytes)
{
    (void)file, (void)text;
    return bytes;
}
int _close(int file)
{
    return (void)file, -1;
}
int _fstat(int file, void *status)
{
    return (void)file, (void)status, 0;
}
int _isatty(int file)
{
    return (void)file, 1;
}
int _lseek(int file, int place, int from)
{
    return (void)file, (void)place, (void)from, 0;
}
int _read(int file, char *text, int bytes)
{
    return (void)file, (void)text, (void)bytes, 0;
}
int _kill(int process, int number)
{
    return (void)process, (void)number, -1;
}
int _getpid(void)
{
    return 1;
}
