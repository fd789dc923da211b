/* Relocations of 64-bit RISC-V (RISC-V ELF Specification, "Relocations").
 *
 * An address within reach is made of two instructions, auipc for its high 20 bits and one with a field of 12 bits. The
 * relocation of the second names the first, whose own relocation says where to: the loader finds it (`partner`). */
#include <string.h>

#include "relocate.h"

enum {
    R_NONE = 0,
    R_32 = 1,
    R_64 = 2,
    R_BRANCH = 16,
    R_JAL = 17,
    R_CALL = 18,
    R_CALL_PLT = 19,
    R_GOT_HI20 = 20,
    R_PCREL_HI20 = 23,
    R_PCREL_LO12_I = 24,
    R_PCREL_LO12_S = 25,
    R_HI20 = 26,
    R_LO12_I = 27,
    R_LO12_S = 28,
    R_ADD8 = 33,
    R_ADD16 = 34,
    R_ADD32 = 35,
    R_ADD64 = 36,
    R_SUB8 = 37,
    R_SUB16 = 38,
    R_SUB32 = 39,
    R_SUB64 = 40,
    R_ALIGN = 43,
    R_RVC_BRANCH = 44,
    R_RVC_JUMP = 45,
    R_RELAX = 51,
    R_SUB6 = 52,
    R_SET6 = 53,
    R_SET8 = 54,
    R_SET16 = 55,
    R_SET32 = 56,
    R_32_PCREL = 57,
    R_PLT32 = 59
};

static bool needs_got(uint32_t type) { return type == R_GOT_HI20; }
static bool is_absolute_32(uint32_t type) { return type == R_HI20 || type == R_32; }
static bool names_partner(uint32_t type) { return type == R_PCREL_LO12_I || type == R_PCREL_LO12_S; }
static bool is_partner(uint32_t type) { return type == R_PCREL_HI20 || type == R_GOT_HI20; }

/* auipc t1, 0; ld t1, 16(t1); jr t1; nop; .quad target */
static void write_stub(unsigned char *place, uint64_t target) {
    static const uint32_t jump[] = {0x00000317u, 0x01033303u, 0x00030067u, 0x00000013u};
    memcpy(place, jump, sizeof jump);
    memcpy(place + sizeof jump, &target, sizeof target);
}

static bool fits(int64_t value, int bits) { return value >= -((int64_t)1 << (bits - 1)) && value < (int64_t)1 << (bits - 1); }

/* Bits `from` to `from + count - 1` of `value`, moved to bit `to`. */
static uint32_t bits(uint64_t value, int from, int count, int to) {
    return (uint32_t)(value >> from & (((uint64_t)1 << count) - 1)) << to;
}

/* Replaces the bits of `mask` in an instruction of `width` bytes. */
static relocation_result patch(const relocation *r, uint64_t at, uint32_t mask, uint32_t value, size_t width) {
    if (r->room < at + width) return OUT_OF_ROOM;
    uint32_t word = 0;
    memcpy(&word, r->place + at, width);
    word = (word & ~mask) | (value & mask);
    memcpy(r->place + at, &word, width);
    return RELOCATED;
}

/* The upper 20 bits, rounded so that the signed lower 12 make up the rest. */
static relocation_result high_20(const relocation *r, int64_t value) {
    if (!fits(value + 0x800, 32)) return OUT_OF_RANGE;
    return patch(r, 0, 0xfffff000u, (uint32_t)((uint64_t)value + 0x800), 4);
}

static relocation_result low_12_i(const relocation *r, uint64_t at, uint64_t value) {
    return patch(r, at, 0xfff00000u, bits(value, 0, 12, 20), 4);
}

static relocation_result low_12_s(const relocation *r, uint64_t value) {
    return patch(r, 0, 0xfe000f80u, bits(value, 5, 7, 25) | bits(value, 0, 5, 7), 4);
}

static relocation_result branch(const relocation *r, int64_t value) {
    if (value & 1 || !fits(value, 13)) return OUT_OF_RANGE;
    uint64_t v = (uint64_t)value;
    return patch(r, 0, 0xfe000f80u, bits(v, 12, 1, 31) | bits(v, 5, 6, 25) | bits(v, 1, 4, 8) | bits(v, 11, 1, 7), 4);
}

static relocation_result jump(const relocation *r, int64_t value) {
    if (value & 1 || !fits(value, 21)) return OUT_OF_RANGE;
    uint64_t v = (uint64_t)value;
    return patch(r, 0, 0xfffff000u, bits(v, 20, 1, 31) | bits(v, 1, 10, 21) | bits(v, 11, 1, 20) | bits(v, 12, 8, 12), 4);
}

static relocation_result short_branch(const relocation *r, int64_t value) {
    if (value & 1 || !fits(value, 9)) return OUT_OF_RANGE;
    uint64_t v = (uint64_t)value;
    uint32_t field = bits(v, 8, 1, 12) | bits(v, 3, 2, 10) | bits(v, 6, 2, 5) | bits(v, 1, 2, 3) | bits(v, 5, 1, 2);
    return patch(r, 0, 0x1c7cu, field, 2);
}

static relocation_result short_jump(const relocation *r, int64_t value) {
    if (value & 1 || !fits(value, 12)) return OUT_OF_RANGE;
    uint64_t v = (uint64_t)value;
    uint32_t field = bits(v, 11, 1, 12) | bits(v, 4, 1, 11) | bits(v, 8, 2, 9) | bits(v, 10, 1, 8) | bits(v, 6, 1, 7) |
                     bits(v, 7, 1, 6) | bits(v, 1, 3, 3) | bits(v, 5, 1, 2);
    return patch(r, 0, 0x1ffcu, field, 2);
}

/* auipc and jalr, or auipc and a load, side by side. */
static relocation_result call(const relocation *r, int64_t value) {
    if (r->room < 8) return OUT_OF_ROOM;
    relocation_result high = high_20(r, value);
    return high ? high : low_12_i(r, 4, (uint64_t)value);
}

static relocation_result data(const relocation *r, uint64_t value, size_t width) {
    if (r->room < width) return OUT_OF_ROOM;
    memcpy(r->place, &value, width); /* little-endian */
    return RELOCATED;
}

static relocation_result signed_32(const relocation *r, uint64_t value) {
    return (int64_t)value == (int32_t)value ? data(r, value, 4) : OUT_OF_RANGE;
}

/* Adds to what is there: differences of labels are made of an addition and a subtraction. */
static relocation_result add(const relocation *r, uint64_t value, size_t width) {
    if (r->room < width) return OUT_OF_ROOM;
    uint64_t old = 0;
    memcpy(&old, r->place, width);
    return data(r, old + value, width);
}

/* The low six bits of a byte. */
static relocation_result six_bits(const relocation *r, uint64_t value, bool subtract) {
    if (r->room < 1) return OUT_OF_ROOM;
    uint8_t old = r->place[0], low = (uint8_t)(subtract ? old - value : value);
    r->place[0] = (uint8_t)((old & 0xc0) | (low & 0x3f));
    return RELOCATED;
}

static relocation_result apply_data(const relocation *r, uint64_t target) {
    switch (r->type) {
    case R_32: return target == (uint32_t)target ? data(r, target, 4) : OUT_OF_RANGE;
    case R_64: return data(r, target, 8);
    case R_32_PCREL: return signed_32(r, target - r->place_address);
    case R_PLT32: return signed_32(r, r->stub + (uint64_t)r->addend - r->place_address);
    case R_ADD8: return add(r, target, 1);
    case R_ADD16: return add(r, target, 2);
    case R_ADD32: return add(r, target, 4);
    case R_ADD64: return add(r, target, 8);
    case R_SUB8: return add(r, 0 - target, 1);
    case R_SUB16: return add(r, 0 - target, 2);
    case R_SUB32: return add(r, 0 - target, 4);
    case R_SUB64: return add(r, 0 - target, 8);
    case R_SUB6: return six_bits(r, target, true);
    case R_SET6: return six_bits(r, target, false);
    case R_SET8: return data(r, target, 1);
    case R_SET16: return data(r, target, 2);
    case R_SET32: return data(r, target, 4);
    default: return UNKNOWN_RELOCATION;
    }
}

/* The distance that the partner of a relocation reaches over. */
static uint64_t partner_distance(const relocation *r) {
    const relocation *p = r->partner;
    uint64_t target = p->type == R_GOT_HI20 ? p->got : p->symbol;
    return target + (uint64_t)p->addend - p->place_address;
}

static relocation_result apply(const relocation *r) {
    const uint64_t target = r->symbol + (uint64_t)r->addend;
    const int64_t distance = (int64_t)(target - r->place_address);
    switch (r->type) {
    case R_NONE:
    case R_ALIGN: /* code is not shortened, so nothing need be taken away to align what follows */
    case R_RELAX: return RELOCATED;
    case R_BRANCH: return branch(r, distance);
    case R_JAL: return jump(r, (int64_t)(r->stub + (uint64_t)r->addend - r->place_address));
    case R_CALL:
    case R_CALL_PLT: return call(r, (int64_t)(r->stub + (uint64_t)r->addend - r->place_address));
    case R_RVC_BRANCH: return short_branch(r, distance);
    case R_RVC_JUMP: return short_jump(r, distance);
    case R_PCREL_HI20: return high_20(r, distance);
    case R_GOT_HI20: return high_20(r, (int64_t)(r->got + (uint64_t)r->addend - r->place_address));
    case R_PCREL_LO12_I: return low_12_i(r, 0, partner_distance(r));
    case R_PCREL_LO12_S: return low_12_s(r, partner_distance(r));
    case R_HI20: return high_20(r, (int64_t)target);
    case R_LO12_I: return low_12_i(r, 0, target);
    case R_LO12_S: return low_12_s(r, target);
    default: return apply_data(r, target);
    }
}

const relocator weft_riscv64_relocator = {
    ELF_RISCV, "64-bit RISC-V", &weft_elf_64, needs_got, is_absolute_32, write_stub, apply, names_partner, is_partner,
};
