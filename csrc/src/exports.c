/* The functions that kernels may call, by name. */
#include <math.h>
#include <string.h>

#include "internal.h"

typedef void (*any_function)(void);

typedef struct export {
    const char *name;
    any_function address;
} export;

#define SAME(name) {#name, (any_function)(name)}
#define BOTH(name) SAME(name), SAME(name##f)

static const export EXPORTS[] = {
    SAME(weft_parallel_for),
    SAME(weft_scratch),
    SAME(weft_scratch_release),
    SAME(weft_must_stop),
    SAME(memcpy),
    SAME(memset),
    SAME(memmove),
    SAME(memcmp),
    BOTH(acos),
    BOTH(acosh),
    BOTH(asin),
    BOTH(asinh),
    BOTH(atan),
    BOTH(atan2),
    BOTH(atanh),
    BOTH(cbrt),
    BOTH(ceil),
    BOTH(copysign),
    BOTH(cos),
    BOTH(cosh),
    BOTH(erf),
    BOTH(erfc),
    BOTH(exp),
    BOTH(exp2),
    BOTH(expm1),
    BOTH(fabs),
    BOTH(floor),
    BOTH(fma),
    BOTH(fmax),
    BOTH(fmin),
    BOTH(fmod),
    BOTH(frexp),
    BOTH(hypot),
    BOTH(ldexp),
    BOTH(lgamma),
    BOTH(log),
    BOTH(log10),
    BOTH(log1p),
    BOTH(log2),
    BOTH(lrint),
    BOTH(lround),
    BOTH(nearbyint),
    BOTH(pow),
    BOTH(remainder),
    BOTH(rint),
    BOTH(round),
    BOTH(sin),
    BOTH(sinh),
    BOTH(sqrt),
    BOTH(tan),
    BOTH(tanh),
    BOTH(tgamma),
    BOTH(trunc),
    /* Processors without an instruction for it; not every C library has it. Rounding is to even unless a program has
       changed the mode, which kernels do not allow for. */
    {"roundeven", (any_function)rint},
    {"roundevenf", (any_function)rintf},
    {"__extendhfsf2", (any_function)weft_half_to_float},
    {"__truncsfhf2", (any_function)weft_float_to_half},
    {"__truncdfhf2", (any_function)weft_double_to_half},
    {"__truncsfbf2", (any_function)weft_float_to_bfloat},
    {"__truncdfbf2", (any_function)weft_double_to_bfloat},
};

int32_t weft_has_export(const char *name) { return weft_export_address(name) != NULL; }

void *weft_export_address(const char *name) {
    for (size_t i = 0; i < sizeof EXPORTS / sizeof EXPORTS[0]; i++) {
        if (strcmp(EXPORTS[i].name, name) == 0) {
            void *address;
            memcpy(&address, &EXPORTS[i].address, sizeof address);
            return address;
        }
    }
    return NULL;
}
