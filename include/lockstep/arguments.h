/* Named arguments and lists: how the macros of the other headers pass them on.
 *
 *     lk_linear(784, 10, .no_bias = true)      lk_linear_with(784, 10, &(lk_linear_options){...})
 *     lk_callbacks(first, second)              {(lk_callback *const[]){first, second, LK_END}, 2}
 *
 * A macro mentions each of its arguments once. So the text of nested calls grows with their
 * number alone, and an argument with a side effect has it once. Nothing here has a life or a
 * thread rule. */
#ifndef LOCKSTEP_ARGUMENTS_H
#define LOCKSTEP_ARGUMENTS_H

#include <lockstep/sized.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A zero that is meant, for a number whose plain zero stands for the default: `.momentum =
 * LK_ZERO`. Every option whose default is not zero, and for which zero makes sense, is a
 * floating-point number. */
#define LK_ZERO (-0.0)

/* What the list macros put behind the last item. It is the address of nothing. */
#define LK_END ((void *)(intptr_t)-1)

/* Counts the items in front of the one that begins with LK_END. An item is a pointer, or a struct
 * whose first member is one, of `item_nbytes`. */
int lk_count_to_end(const void *items, size_t item_nbytes);

/* The rest is for the headers themselves. A call has 0 to 4 arguments in front of its named ones.
 * The macros that have such arguments end their own list with a comma: then `...` is never left
 * out, which ISO C does not allow, but at most empty. */
#define LK_CALL0_(function, options, ...)          function(LK_OPTIONS(options, __VA_ARGS__))
#define LK_CALL1_(function, options, a, ...)       function((a), LK_OPTIONS(options, __VA_ARGS__))
#define LK_CALL2_(function, options, a, b, ...)    function((a), (b), LK_OPTIONS(options, __VA_ARGS__))
#define LK_CALL3_(function, options, a, b, c, ...) function((a), (b), (c), LK_OPTIONS(options, __VA_ARGS__))
#define LK_CALL4_(function, options, a, b, c, d, ...)                                                        \
    function((a), (b), (c), (d), LK_OPTIONS(options, __VA_ARGS__))

/* NAME_to_end(items): the list {items, count}, or NAME_with(items, count), of items that LK_END
 * ends. */
#define LK_LIST_TO_END_(list, item)                                                                          \
    static inline list list##_to_end(item const *items)                                                      \
    {                                                                                                        \
        list result;                                                                                         \
        result.items = items;                                                                                \
        result.count = lk_count_to_end(items, sizeof *items);                                                \
        return result;                                                                                       \
    }
#define LK_CALL_TO_END_(result, name, item)                                                                  \
    static inline result name##_to_end(item const *items)                                                    \
    {                                                                                                        \
        return name##_with(items, lk_count_to_end(items, sizeof *items));                                    \
    }

#ifdef __cplusplus
}
#endif
#endif
