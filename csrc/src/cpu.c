/* Features of this processor, by their LLVM names. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

static char features[2048];
static pthread_once_t features_once = PTHREAD_ONCE_INIT;

static void add(const char *name) {
    size_t used = strlen(features);
    snprintf(features + used, sizeof features - used, "%s%s", used ? "," : "", name);
}

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

typedef enum { LEAF_1_C, LEAF_1_D, LEAF_7_B, LEAF_7_C, LEAF_7_D, LEAF_7_1_A, LEAF_7_1_D, AVX10, LEAF_X1_C, LEAVES } leaf;

/* Register state that the operating system must save (bits of XCR0) for a feature to be usable. */
enum { NO_STATE = 0, AVX_STATE = 0x6, AVX512_STATE = 0xe6, AMX_STATE = 0x60000 };

static const struct {
    const char *name;
    uint8_t leaf, bit;
    uint32_t state;
} X86[] = {
    {"cx8", LEAF_1_D, 8, NO_STATE},
    {"cmov", LEAF_1_D, 15, NO_STATE},
    {"mmx", LEAF_1_D, 23, NO_STATE},
    {"fxsr", LEAF_1_D, 24, NO_STATE},
    {"sse", LEAF_1_D, 25, NO_STATE},
    {"sse2", LEAF_1_D, 26, NO_STATE},
    {"sse3", LEAF_1_C, 0, NO_STATE},
    {"pclmul", LEAF_1_C, 1, NO_STATE},
    {"ssse3", LEAF_1_C, 9, NO_STATE},
    {"fma", LEAF_1_C, 12, AVX_STATE},
    {"cx16", LEAF_1_C, 13, NO_STATE},
    {"sse4.1", LEAF_1_C, 19, NO_STATE},
    {"sse4.2", LEAF_1_C, 20, NO_STATE},
    {"crc32", LEAF_1_C, 20, NO_STATE},
    {"movbe", LEAF_1_C, 22, NO_STATE},
    {"popcnt", LEAF_1_C, 23, NO_STATE},
    {"aes", LEAF_1_C, 25, NO_STATE},
    {"xsave", LEAF_1_C, 27, NO_STATE},
    {"avx", LEAF_1_C, 28, AVX_STATE},
    {"f16c", LEAF_1_C, 29, AVX_STATE},
    {"rdrnd", LEAF_1_C, 30, NO_STATE},
    {"fsgsbase", LEAF_7_B, 0, NO_STATE},
    {"bmi", LEAF_7_B, 3, NO_STATE},
    {"avx2", LEAF_7_B, 5, AVX_STATE},
    {"bmi2", LEAF_7_B, 8, NO_STATE},
    {"avx512f", LEAF_7_B, 16, AVX512_STATE},
    {"avx512dq", LEAF_7_B, 17, AVX512_STATE},
    {"rdseed", LEAF_7_B, 18, NO_STATE},
    {"adx", LEAF_7_B, 19, NO_STATE},
    {"avx512ifma", LEAF_7_B, 21, AVX512_STATE},
    {"clflushopt", LEAF_7_B, 23, NO_STATE},
    {"clwb", LEAF_7_B, 24, NO_STATE},
    {"avx512cd", LEAF_7_B, 28, AVX512_STATE},
    {"sha", LEAF_7_B, 29, NO_STATE},
    {"avx512bw", LEAF_7_B, 30, AVX512_STATE},
    {"avx512vl", LEAF_7_B, 31, AVX512_STATE},
    {"avx512vbmi", LEAF_7_C, 1, AVX512_STATE},
    {"avx512vbmi2", LEAF_7_C, 6, AVX512_STATE},
    {"gfni", LEAF_7_C, 8, NO_STATE},
    {"vaes", LEAF_7_C, 9, AVX_STATE},
    {"vpclmulqdq", LEAF_7_C, 10, AVX_STATE},
    {"avx512vnni", LEAF_7_C, 11, AVX512_STATE},
    {"avx512bitalg", LEAF_7_C, 12, AVX512_STATE},
    {"avx512vpopcntdq", LEAF_7_C, 14, AVX512_STATE},
    {"avx512vp2intersect", LEAF_7_D, 8, AVX512_STATE},
    {"amx-bf16", LEAF_7_D, 22, AMX_STATE},
    {"avx512fp16", LEAF_7_D, 23, AVX512_STATE},
    {"amx-tile", LEAF_7_D, 24, AMX_STATE},
    {"amx-int8", LEAF_7_D, 25, AMX_STATE},
    {"sha512", LEAF_7_1_A, 0, AVX_STATE},
    {"sm3", LEAF_7_1_A, 1, AVX_STATE},
    {"sm4", LEAF_7_1_A, 2, AVX_STATE},
    {"avxvnni", LEAF_7_1_A, 4, AVX_STATE},
    {"avx512bf16", LEAF_7_1_A, 5, AVX512_STATE},
    {"amx-fp16", LEAF_7_1_A, 21, AMX_STATE},
    {"avxifma", LEAF_7_1_A, 23, AVX_STATE},
    {"avxvnniint8", LEAF_7_1_D, 4, AVX_STATE},
    {"avxneconvert", LEAF_7_1_D, 5, AVX_STATE},
    {"amx-complex", LEAF_7_1_D, 8, AMX_STATE},
    {"avxvnniint16", LEAF_7_1_D, 10, AVX_STATE},
    {"avx10.1", AVX10, 0, AVX512_STATE},
    {"avx10.2", AVX10, 1, AVX512_STATE},
    {"sahf", LEAF_X1_C, 0, NO_STATE},
    {"lzcnt", LEAF_X1_C, 5, NO_STATE},
    {"sse4a", LEAF_X1_C, 6, NO_STATE},
    {"prfchw", LEAF_X1_C, 8, NO_STATE},
    {"xop", LEAF_X1_C, 11, AVX_STATE},
    {"fma4", LEAF_X1_C, 16, AVX_STATE},
    {"tbm", LEAF_X1_C, 21, NO_STATE},
};

static uint32_t saved_state(uint32_t leaf_1_c) {
    if (!(leaf_1_c >> 27 & 1)) return 0;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    (void)high;
#if defined(__linux__)
    /* A process must request permission to use tile registers; without it, their use raises a signal. */
    if ((low & AMX_STATE) == AMX_STATE && syscall(SYS_arch_prctl, 0x1023, 18)) low &= ~(uint32_t)AMX_STATE;
#else
    low &= ~(uint32_t)AMX_STATE;
#endif
    return low;
}

static void find_features(void) {
    uint32_t words[LEAVES] = {0}, a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) words[LEAF_1_C] = c, words[LEAF_1_D] = d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        words[LEAF_7_B] = b, words[LEAF_7_C] = c, words[LEAF_7_D] = d;
        if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) words[LEAF_7_1_A] = a, words[LEAF_7_1_D] = d;
    }
    /* Of AVX10 the processor tells its highest version; a bit for each version up to it, as the table wants. */
    if (words[LEAF_7_1_D] >> 19 & 1 && __get_cpuid_count(0x24, 0, &a, &b, &c, &d))
        words[AVX10] = (1u << ((b & 0xff) < 31 ? b & 0xff : 31)) - 1;
    if (__get_cpuid(0x80000001, &a, &b, &c, &d)) words[LEAF_X1_C] = c;
    uint32_t state = saved_state(words[LEAF_1_C]);
    for (size_t i = 0; i < sizeof X86 / sizeof X86[0]; i++)
        if (words[X86[i].leaf] >> X86[i].bit & 1 && (state & X86[i].state) == X86[i].state) add(X86[i].name);
    add("64bit");
}

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

static const struct {
    const char *name;
    unsigned long kind;
    uint8_t bit;
} ARM64[] = {
    {"fp-armv8", AT_HWCAP, 0}, {"neon", AT_HWCAP, 1},      {"aes", AT_HWCAP, 3},   {"sha2", AT_HWCAP, 6},
    {"crc", AT_HWCAP, 7},      {"lse", AT_HWCAP, 8},       {"fullfp16", AT_HWCAP, 10}, {"rdm", AT_HWCAP, 12},
    {"dotprod", AT_HWCAP, 20}, {"sve", AT_HWCAP, 22},      {"fp16fml", AT_HWCAP, 23}, {"sve2", AT_HWCAP2, 1},
    {"i8mm", AT_HWCAP2, 13},   {"bf16", AT_HWCAP2, 14},    {"sme", AT_HWCAP2, 23},
};

static void find_features(void) {
    for (size_t i = 0; i < sizeof ARM64 / sizeof ARM64[0]; i++)
        if (getauxval(ARM64[i].kind) >> ARM64[i].bit & 1) add(ARM64[i].name);
}

#elif defined(__aarch64__)
static void find_features(void) {
    add("fp-armv8");
    add("neon");
}

#elif defined(__arm__) && defined(__linux__)
#include <sys/auxv.h>

static const struct {
    const char *name;
    unsigned long kind;
    uint8_t bit;
} ARM32[] = {
    {"vfp2", AT_HWCAP, 6},       {"neon", AT_HWCAP, 12},     {"vfp3", AT_HWCAP, 13},      {"vfp3d16", AT_HWCAP, 14},
    {"vfp4", AT_HWCAP, 16},      {"fp16", AT_HWCAP, 16},     {"hwdiv-arm", AT_HWCAP, 17}, {"hwdiv", AT_HWCAP, 18},
    {"d32", AT_HWCAP, 19},       {"fullfp16", AT_HWCAP, 23}, {"dotprod", AT_HWCAP, 24},   {"fp16fml", AT_HWCAP, 25},
    {"bf16", AT_HWCAP, 26},      {"i8mm", AT_HWCAP, 27},     {"aes", AT_HWCAP2, 0},       {"sha2", AT_HWCAP2, 3},
    {"crc", AT_HWCAP2, 4},
};

/* The fourth version of the floating-point unit converts half precision (fp16); of earlier ones it is not known. */
static void find_features(void) {
    for (size_t i = 0; i < sizeof ARM32 / sizeof ARM32[0]; i++)
        if (getauxval(ARM32[i].kind) >> ARM32[i].bit & 1) add(ARM32[i].name);
}

#elif defined(__riscv) && defined(__linux__)
#include <sys/auxv.h>

/* Extensions of one letter: bit 0 is A. */
static void find_features(void) {
    for (const char *letter = "imafdcv"; *letter; letter++)
        if (getauxval(AT_HWCAP) >> (*letter - 'a') & 1) add((const char[]){*letter, 0});
}

#else
static void find_features(void) {}
#endif

const char *weft_cpu_features(void) {
    pthread_once(&features_once, find_features);
    return features;
}
