/* Conversions between float and the 16-bit formats. Compiled code calls them, by the names of the compiler's support
 * library, if the processor has no instruction. The 16-bit value is passed in the low bits of a floating-point register.
 * A float parameter with these bits has the same calling convention on x86-64 and AArch64, so the C compiler does not
 * need _Float16. All functions round to nearest even (IEEE 754 section 4.3.1). */
#include <string.h>

#include "internal.h"

static uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float weft_half_to_float(float bits) {
    uint32_t half = float_bits(bits) & 0xffff;
    uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 31, fraction = half & 0x3ff;
    if (exponent == 31) return bits_float(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0));
    if (exponent) return bits_float(sign | (exponent + 112) << 23 | fraction << 13);
    float value = (float)fraction * 0x1p-24f; /* subnormal or zero: exact */
    return sign ? -value : value;
}

/* Rounds the number `negative ? -1 : 1` * fraction * 2^(exponent - 63), with the top bit of fraction set, to the format
 * with `mantissa` fraction bits and exponents from `lowest`. */
static uint32_t round_to(uint64_t fraction, int exponent, int mantissa, int lowest, uint32_t infinity) {
    int drop = 63 - mantissa;
    bool subnormal = exponent < lowest;
    if (subnormal) drop += lowest - exponent;
    if (drop > 64) return 0;
    uint64_t kept = drop == 64 ? 0 : fraction >> drop;
    uint64_t half = 1ull << (drop - 1), rest = drop == 64 ? fraction : fraction & ((1ull << drop) - 1);
    if (rest > half || (rest == half && (kept & 1))) kept++;
    /* The implicit bit and a carry out of the fraction are both added to the exponent field. */
    uint64_t field = subnormal ? 0 : (uint64_t)(exponent - lowest);
    uint64_t bits = (field << mantissa) + kept;
    return bits >= infinity ? infinity : (uint32_t)bits;
}

static uint32_t narrow(double value, int mantissa, int lowest, uint32_t infinity) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = (uint32_t)(bits >> 63) << 15;
    int exponent = (int)(bits >> 52 & 0x7ff);
    uint64_t fraction = bits & 0xfffffffffffffull;
    if (exponent == 0x7ff) {
        if (!fraction) return sign | infinity;
        return sign | infinity | 1u << (mantissa - 1) | (uint32_t)(fraction >> (52 - mantissa));
    }
    if (exponent == 0) return sign; /* zero, or a double far below both formats */
    return sign | round_to((fraction | 1ull << 52) << 11, exponent - 1023, mantissa, lowest, infinity);
}

float weft_double_to_half(double value) { return bits_float(narrow(value, 10, -14, 0x7c00)); }
float weft_float_to_half(float value) { return weft_double_to_half((double)value); }
float weft_double_to_bfloat(double value) { return bits_float(narrow(value, 7, -126, 0x7f80)); }
float weft_float_to_bfloat(float value) {
    uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bits_float((bits >> 16 | 0x40) & 0xffff);
    return bits_float((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
