/* The parts of ELF64 (System V gABI, chapters 4 and 5) that relocatable objects use. They are defined here because some
 * systems have no <elf.h>. */
#ifndef WEFT_ELF_H
#define WEFT_ELF_H

#include <stdint.h>

typedef struct elf_header {
    uint8_t ident[16];
    uint16_t type, machine;
    uint32_t version;
    uint64_t entry, program_offset, section_offset;
    uint32_t flags;
    uint16_t header_size, program_entry_size, program_count, section_entry_size, section_count, names_index;
} elf_header;

typedef struct elf_section {
    uint32_t name, type;
    uint64_t flags, address, offset, size;
    uint32_t link, info;
    uint64_t align, entry_size;
} elf_section;

typedef struct elf_symbol {
    uint32_t name;
    uint8_t info, other;
    uint16_t section;
    uint64_t value, size;
} elf_symbol;

typedef struct elf_rela {
    uint64_t offset, info;
    int64_t addend;
} elf_rela;

enum { ELF_RELOCATABLE = 1, ELF_X86_64 = 62, ELF_AARCH64 = 183, ELF_RISCV = 243 };
enum { SECTION_SYMBOLS = 2, SECTION_STRINGS = 3, SECTION_RELA = 4, SECTION_NOBITS = 8, SECTION_REL = 9 };
enum { FLAG_WRITE = 1, FLAG_ALLOC = 2, FLAG_EXEC = 4, FLAG_TLS = 0x400, FLAG_COMPRESSED = 0x800 };
enum { INDEX_UNDEFINED = 0, INDEX_RESERVED = 0xff00, INDEX_ABSOLUTE = 0xfff1, INDEX_COMMON = 0xfff2 };
enum { BIND_LOCAL = 0, BIND_GLOBAL = 1, BIND_WEAK = 2 };
enum { TYPE_NONE = 0, TYPE_OBJECT = 1, TYPE_FUNCTION = 2, TYPE_SECTION = 3, TYPE_TLS = 6, TYPE_IFUNC = 10 };

#endif
