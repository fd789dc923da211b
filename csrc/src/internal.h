/* Shared by the parts of the runtime; not part of the public interface. */
#ifndef WEFT_INTERNAL_H
#define WEFT_INTERNAL_H

#include <stdbool.h>

#include "weft_runtime.h"

#if defined(__GNUC__)
#define WEFT_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define WEFT_INLINE static inline __attribute__((always_inline))
#define WEFT_LIKELY(x) __builtin_expect(!!(x), 1)
#else
#define WEFT_PRINTF(f, a)
#define WEFT_INLINE static inline
#define WEFT_LIKELY(x) (x)
#endif

enum { WEFT_ALIGN = 64 };

/* Fills `error` (may be NULL) and returns `status`. */
int32_t weft_fail(weft_error *error, int32_t status, const char *format, ...) WEFT_PRINTF(3, 4);

/* Like weft_alloc; requests huge pages for large blocks. */
void *weft_alloc_large(int64_t bytes);

/* Blocks of at least so many bytes are aligned to huge pages, and kept when they are freed (see blocks.c). */
enum { WEFT_LARGE_BLOCK = 4 << 20 };

/* A block that was kept, of at least `bytes` and not much more; NULL if there is none. */
void *weft_take_block(size_t bytes, size_t align);

/* Whether a block that is to be freed is kept; that of other allocators may be asked about, too. */
bool weft_keep_block(void *memory, size_t align);

/* Frees what is kept. Returns whether there was any. */
bool weft_free_blocks(void);

/* Frees the scratch memory of all threads that is not in use. */
void weft_trim_scratch(void);

/* For small blocks: not aligned to 64 bytes. Freed by weft_free. */
void *weft_alloc_small(int64_t bytes);

/* Whether the runtime loads code for the processor that it was compiled for. */
bool weft_loads_code(void);

/* Address of a function that kernels may use, NULL if there is none. */
void *weft_export_address(const char *name);

/* Half-precision conversions that compiled code calls if the processor has no instruction (see half.c). */
float weft_half_to_float(float bits);
float weft_float_to_half(float value);
float weft_double_to_half(double value);
float weft_float_to_bfloat(float value);
float weft_double_to_bfloat(double value);

#endif
