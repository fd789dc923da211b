/* The matrix-tile unit of x86-64 in software, counted: a handler of SIGILL that carries out
 * ldtilecfg, tilerelease, tilezero, tileloadd(t1), tilestored, tdp{bssd,bsud,busd,buud} and tdpbf16ps, and counts them.
 * Where a CPU has the unit, tests replace the first byte of these instructions by 06, which is none in 64-bit mode.
 * Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2 (VEX encodings and operations). */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

enum { LOADS, STORES, PRODUCTS, ZEROS, CONFIGURATIONS, RELEASES, COUNTERS };
static _Atomic int64_t counts[COUNTERS];

typedef struct { uint8_t rows; uint16_t bytes; uint8_t data[16][64]; } tile;
static __thread tile tiles[8];
static struct sigaction previous;

void tile_unit_counts(int64_t *out) {
    for (int i = 0; i < COUNTERS; i++) out[i] = atomic_exchange(&counts[i], 0);
}

static const int ORDER[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                              REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

typedef struct { int pp, w, x, b, r, vvvv, opcode, mod, reg, rm, scale, index; const uint8_t *end; uint64_t address; } insn;

static uint64_t at(const greg_t *regs, int number) { return (uint64_t)regs[ORDER[number]]; }

/* VEX.128 map 0F38 only; returns 0 where the bytes are something else. */
static int decode(const uint8_t *p, const greg_t *regs, insn *i) {
    if ((p[0] != 0xC4 && p[0] != 0x06) || (p[1] & 31) != 2 || (p[2] & 4)) return 0;
    i->r = !(p[1] & 0x80), i->x = !(p[1] & 0x40), i->b = !(p[1] & 0x20);
    i->w = p[2] >> 7, i->vvvv = (~p[2] >> 3) & 15, i->pp = p[2] & 3, i->opcode = p[3];
    if (i->w) return 0;
    i->mod = p[4] >> 6, i->reg = (p[4] >> 3 & 7) | i->r << 3, i->rm = p[4] & 7;
    i->end = p + 5, i->index = -1, i->address = 0;
    if (i->mod == 3) { i->rm |= i->b << 3; return 1; }
    int base = i->rm | i->b << 3, none = 0;
    if (i->rm == 4) {
        uint8_t sib = *i->end++;
        i->scale = sib >> 6, i->index = (sib >> 3 & 7) | i->x << 3, base = (sib & 7) | i->b << 3;
        if (i->index == 4) i->index = -1;
        none = (sib & 7) == 5 && i->mod == 0;
    } else if (i->rm == 5 && i->mod == 0) {
        int32_t d; memcpy(&d, i->end, 4); i->end += 4;
        i->address = (uint64_t)i->end + (int64_t)d;
        return 1;
    }
    i->address = none ? 0 : at(regs, base);
    if (i->mod == 1) i->address += (int64_t)(int8_t)*i->end++;
    if (i->mod == 2 || none) { int32_t d; memcpy(&d, i->end, 4); i->end += 4; i->address += (int64_t)d; }
    return 1;
}

static float widen(uint16_t h) {
    uint32_t u = (uint32_t)h << 16; float f;
    if (!(u & 0x7F800000)) u &= 0x80000000; /* denormals are zeros */
    memcpy(&f, &u, 4);
    return f;
}

static void product_halves(tile *c, const tile *a, const tile *b) {
    for (int m = 0; m < c->rows; m++)
        for (int n = 0; n < c->bytes / 4; n++) {
            float sums[2] = {0, 0}, total;
            for (int k = 0; k < a->bytes / 4; k++)
                for (int e = 0; e < 2; e++) {
                    uint16_t x, y;
                    memcpy(&x, &a->data[m][4 * k + 2 * e], 2), memcpy(&y, &b->data[k][4 * n + 2 * e], 2);
                    sums[e] = __builtin_fmaf(widen(x), widen(y), sums[e]);
                }
            memcpy(&total, &c->data[m][4 * n], 4);
            total += sums[0] + sums[1];
            memcpy(&c->data[m][4 * n], &total, 4);
        }
}

static void product_bytes(tile *c, const tile *a, const tile *b, int a_signed, int b_signed) {
    for (int m = 0; m < c->rows; m++)
        for (int n = 0; n < c->bytes / 4; n++) {
            uint32_t total; memcpy(&total, &c->data[m][4 * n], 4);
            for (int k = 0; k < a->bytes / 4; k++)
                for (int e = 0; e < 4; e++) {
                    int x = a->data[m][4 * k + e], y = b->data[k][4 * n + e];
                    total += (uint32_t)((a_signed ? (int8_t)x : x) * (b_signed ? (int8_t)y : y));
                }
            memcpy(&c->data[m][4 * n], &total, 4);
        }
}

static void configure(const uint8_t *memory) {
    for (int t = 0; t < 8; t++) {
        memset(&tiles[t], 0, sizeof tiles[t]);
        memcpy(&tiles[t].bytes, memory + 16 + 2 * t, 2);
        tiles[t].rows = memory[48 + t];
    }
    counts[CONFIGURATIONS]++;
}

/* Copy between a tile and rows of memory; what lies beyond the shape of the tile becomes zero in a load. */
static void transfer(tile *t, const insn *i, const greg_t *regs, int load) {
    uint64_t stride = i->index < 0 ? 0 : at(regs, i->index) << i->scale;
    if (load) memset(t->data, 0, sizeof t->data);
    for (int row = 0; row < t->rows; row++) {
        void *place = (void *)(i->address + (uint64_t)row * stride);
        if (load) memcpy(t->data[row], place, t->bytes);
        else memcpy(place, t->data[row], t->bytes);
    }
    counts[load ? LOADS : STORES]++;
}

static int execute(const insn *i, const greg_t *regs) {
    tile *c = &tiles[i->reg & 7];
    if (i->opcode == 0x49 && i->mod != 3 && i->pp == 0) return configure((const uint8_t *)i->address), 1;
    if (i->opcode == 0x49 && i->mod == 3 && i->pp == 0) return memset(tiles, 0, sizeof tiles), counts[RELEASES]++, 1;
    if (i->opcode == 0x49 && i->mod == 3 && i->pp == 3) return memset(c->data, 0, sizeof c->data), counts[ZEROS]++, 1;
    if (i->opcode == 0x4B && i->mod != 3 && (i->pp == 3 || i->pp == 1)) return transfer(c, i, regs, 1), 1;
    if (i->opcode == 0x4B && i->mod != 3 && i->pp == 2) return transfer(c, i, regs, 0), 1;
    if ((i->opcode != 0x5E && i->opcode != 0x5C) || i->mod != 3) return 0;
    const tile *a = &tiles[i->rm & 7], *b = &tiles[i->vvvv & 7];
    if (!c->rows || a->bytes / 4 != b->rows || a->rows != c->rows || b->bytes != c->bytes) return 0;
    if (i->opcode == 0x5E) product_bytes(c, a, b, i->pp >= 2, i->pp & 1);
    else if (i->pp == 2) product_halves(c, a, b);
    else return 0;
    counts[PRODUCTS]++;
    return 1;
}

static void handle(int number, siginfo_t *info, void *context) {
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    insn i;
    if (decode((const uint8_t *)regs[REG_RIP], regs, &i) && execute(&i, regs)) {
        regs[REG_RIP] = (greg_t)i.end;
        return;
    }
    sigaction(SIGILL, &previous, 0); /* not ours: the instruction faults again, for whoever was there before */
    (void)number, (void)info;
}

int tile_unit_start(void) {
    struct sigaction ours = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};
    for (int i = 0; i < COUNTERS; i++) counts[i] = 0;
    return sigaction(SIGILL, &ours, &previous);
}

int tile_unit_stop(void) { return sigaction(SIGILL, &previous, 0); }
