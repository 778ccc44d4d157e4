/* Structs that may grow: options, and tables of functions (ops).
 *
 * Each begins with `struct_size`, the size that it had when your program was compiled, so that a
 * later library knows which fields your program has. The macros with named arguments fill it in.
 * If you write such a struct yourself, begin with LK_SIZE:
 *
 *     lk_adam_options options = {LK_SIZE(lk_adam_options), .lr = 0.02};
 *     lk_optimizer *optimizer = lk_adam_with(&options); // the same as lk_adam(.lr = 0.02)
 *     static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops), .on_epoch_end = epoch_end};
 *
 * A function that takes options takes NULL, too: then all of them have their defaults. If the
 * comment of a function says that its struct needs no size, LK_SIZE may be left out: the header
 * fills it in. Everywhere else a struct_size of 0 is refused. A field that is set but that this
 * library is too old to know is always refused. docs/compatibility.md says what may change from
 * one version to the next. */
#ifndef LOCKSTEP_SIZED_H
#define LOCKSTEP_SIZED_H

#include <stddef.h>

/* The first entry of such a struct's initialiser. */
#define LK_SIZE(type) .struct_size = sizeof(type)

/* A pointer to options with these fields, which live as long as the block around the call:
 * lk_loader_begin(loader, LK_OPTIONS(lk_pass_options, .epoch = 3), NULL). */
#define LK_OPTIONS(type, ...) (&(const type){LK_SIZE(type), __VA_ARGS__})

/* The rest is for the headers themselves: structs that need no size. LK_TAKES_SIZED_(type) declares
 * type_at_, which returns the struct that it is given or a copy with its size in `room`, and
 * type_of_, which does the same for a struct that is passed by value. LK_SIZED_ chooses between
 * them. */
#define LK_TAKES_SIZED_(type)                                                                                \
    static inline const type *type##_at_(const type *given, type *room)                                      \
    {                                                                                                        \
        if (!given || given->struct_size) return given;                                                      \
        *room = *given;                                                                                      \
        room->struct_size = sizeof *room;                                                                    \
        return room;                                                                                         \
    }                                                                                                        \
    static inline const type *type##_of_(type given, type *room)                                             \
    {                                                                                                        \
        *room = given;                                                                                       \
        room->struct_size = sizeof *room;                                                                    \
        return room;                                                                                         \
    }
#define LK_SIZED_(type, ...)                                                                                 \
    _Generic((__VA_ARGS__), type : type##_of_, default : type##_at_)((__VA_ARGS__), &(type){.struct_size = 0})

#endif
