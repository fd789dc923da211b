/* Evaluates size expressions: postfix, with 64-bit integers; overflow and division by zero are detected. */
#include "program.h"

static bool add_sizes(int64_t a, int64_t b, int64_t *r) {
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) return false;
    *r = a + b;
    return true;
}

static bool subtract_sizes(int64_t a, int64_t b, int64_t *r) {
    if (b < 0 ? a > INT64_MAX + b : a < INT64_MIN + b) return false;
    *r = a - b;
    return true;
}

static bool multiply_sizes(int64_t a, int64_t b, int64_t *r) {
#if defined(__GNUC__)
    return !__builtin_mul_overflow(a, b, r);
#else
    if (a && b && ((a == -1 && b == INT64_MIN) || (b == -1 && a == INT64_MIN) || (a != -1 && b != -1 && (a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a) : (b > 0 ? a < INT64_MIN / b : b < INT64_MAX / a)))))
        return false;
    *r = a * b;
    return true;
#endif
}

static bool divide_sizes(int64_t a, int64_t b, bool remainder, int64_t *r) {
    if (b == 0 || (a == INT64_MIN && b == -1)) return false;
    int64_t quotient = a / b, rest = a % b;
    if (rest && (rest < 0) != (b < 0)) quotient--, rest += b;
    *r = remainder ? rest : quotient;
    return true;
}

static bool apply(size_op op, int64_t a, int64_t b, int64_t *r) {
    switch (op) {
    case EVAL_ADD: return add_sizes(a, b, r);
    case EVAL_SUB: return subtract_sizes(a, b, r);
    case EVAL_MUL: return multiply_sizes(a, b, r);
    case EVAL_FLOORDIV: return divide_sizes(a, b, false, r);
    case EVAL_FLOORMOD: return divide_sizes(a, b, true, r);
    case EVAL_MIN: *r = a < b ? a : b; return true;
    case EVAL_MAX: *r = a > b ? a : b; return true;
    case EVAL_EQ: *r = a == b; return true;
    case EVAL_NE: *r = a != b; return true;
    case EVAL_LT: *r = a < b; return true;
    case EVAL_LE: *r = a <= b; return true;
    case EVAL_GT: *r = a > b; return true;
    case EVAL_GE: *r = a >= b; return true;
    case EVAL_AND: *r = a && b; return true;
    case EVAL_OR: *r = a || b; return true;
    default: return false;
    }
}

bool weft_size_evaluate(const expression *e, const int64_t *registers, int64_t *value) {
    int64_t stack[MAX_STACK];
    int depth = 0;
    for (const int64_t *w = e->words, *end = w + e->count; w < end; w++) {
        if (*w == EVAL_PUSH) {
            stack[depth++] = *++w;
        } else if (*w == EVAL_LOAD) {
            stack[depth++] = registers[*++w];
        } else if (*w == EVAL_NOT) {
            stack[depth - 1] = !stack[depth - 1];
        } else {
            depth--;
            if (!apply((size_op)*w, stack[depth - 1], stack[depth], &stack[depth - 1])) return false;
        }
    }
    *value = stack[0];
    return true;
}
