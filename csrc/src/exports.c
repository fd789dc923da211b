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

#if defined(__arm__)
/* What compilers call on 32-bit Arm for arithmetic without an instruction (Run-time ABI for the Arm Architecture, sections
 * 4.1 and 4.2), and for memory. Their arguments are in core registers whatever the calling convention is; only their
 * addresses matter here. */
#define ARM_HELPERS(each)                                                                                               \
    each(__aeabi_idiv) each(__aeabi_idivmod) each(__aeabi_uidiv) each(__aeabi_uidivmod) each(__aeabi_ldivmod)           \
    each(__aeabi_uldivmod) each(__aeabi_lmul) each(__aeabi_llsl) each(__aeabi_llsr) each(__aeabi_lasr)                  \
    each(__aeabi_l2f) each(__aeabi_l2d) each(__aeabi_ul2f) each(__aeabi_ul2d) each(__aeabi_f2lz) each(__aeabi_f2ulz)    \
    each(__aeabi_d2lz) each(__aeabi_d2ulz) each(__aeabi_memcpy) each(__aeabi_memcpy4) each(__aeabi_memcpy8)             \
    each(__aeabi_memmove) each(__aeabi_memmove4) each(__aeabi_memmove8) each(__aeabi_memset) each(__aeabi_memset4)      \
    each(__aeabi_memset8) each(__aeabi_memclr) each(__aeabi_memclr4) each(__aeabi_memclr8)                              \
    each(__gnu_h2f_ieee) each(__gnu_f2h_ieee)
#define DECLARED(name) void name(void);
#define LISTED(name) SAME(name),
ARM_HELPERS(DECLARED)
#endif

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
#if defined(__arm__)
    ARM_HELPERS(LISTED)
#endif
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
