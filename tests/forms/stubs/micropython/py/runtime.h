/* What a C module needs of MicroPython, as its documentation says it, on objects that are buffers. */
#ifndef PY_RUNTIME_H
#define PY_RUNTIME_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    void *buf;
    size_t len;
} mp_buffer_info_t;

typedef void *mp_obj_t;
typedef struct {
    const void *type;
} mp_obj_base_t;
typedef struct {
    mp_obj_t (*function)(mp_obj_t, mp_obj_t);
} mp_obj_fun_builtin_fixed_t;
typedef struct {
    const char *key;
    const void *value;
} mp_rom_map_elem_t;
typedef struct {
    size_t count;
    const mp_rom_map_elem_t *table;
} mp_obj_dict_t;
typedef struct {
    mp_obj_base_t base;
    mp_obj_dict_t *globals;
} mp_obj_module_t;

enum { MP_BUFFER_READ = 1, MP_BUFFER_WRITE = 2 };

static const int mp_type_module = 0;
#define mp_const_none NULL

static inline void mp_get_buffer_raise(mp_obj_t object, mp_buffer_info_t *info, unsigned flags)
{
    (void)flags;
    *info = *(const mp_buffer_info_t *)object;
}

static inline _Noreturn void mp_raise_ValueError(const char *text)
{
    puts(text);
    exit(1);
}

static inline _Noreturn void mp_raise_OSError(int number)
{
    printf("OSError %d\n", number);
    exit(2);
}

#define MP_ERROR_TEXT(text) text
#define MP_QSTR___name__ "__name__"
#define MP_QSTR_kws "kws"
#define MP_QSTR_run "run"
#define MP_ROM_QSTR(text) (text)
#define MP_ROM_PTR(pointer) (pointer)
#define MP_DEFINE_CONST_FUN_OBJ_2(name, fun) const mp_obj_fun_builtin_fixed_t name = {.function = fun}
#define MP_DEFINE_CONST_DICT(name, rows) const mp_obj_dict_t name = {sizeof(rows) / sizeof(rows)[0], rows}
#define MP_REGISTER_MODULE(name, module) extern const mp_obj_module_t module

#endif
