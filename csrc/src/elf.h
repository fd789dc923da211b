/* The parts of ELF (System V gABI, chapters 4 and 5) that relocatable objects use, read from files of 64 and of 32 bits
 * alike. They are defined here because some systems have no <elf.h>. */
#ifndef WEFT_ELF_H
#define WEFT_ELF_H

#include <stddef.h>
#include <stdint.h>

/* These are the records of 64-bit files, field by field; what 32-bit files say is widened to them. */
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

/* A relocation; where files keep addends in the places that they change, `addend` is 0. */
typedef struct elf_relocation {
    uint64_t offset;
    uint32_t symbol, type;
    int64_t addend;
} elf_relocation;

/* How files of one width hold these records: their sizes, and how each is read. */
typedef struct elf_format {
    const char *name;
    uint8_t class; /* in the identification */
    size_t header_bytes, section_bytes, symbol_bytes, relocation_bytes;
    uint32_t relocation_type; /* of sections of relocations */
    void (*read_header)(const unsigned char *at, elf_header *to);
    void (*read_section)(const unsigned char *at, elf_section *to);
    void (*read_symbol)(const unsigned char *at, elf_symbol *to);
    void (*read_relocation)(const unsigned char *at, elf_relocation *to);
} elf_format;

/* Files of 64 bits have addends beside their relocations, those of 32 bits in the code (all machines that the runtime
 * knows do so). */
extern const elf_format weft_elf_64, weft_elf_32;

enum { IDENT_BYTES = 16, IDENT_CLASS = 4 };
enum { ELF_RELOCATABLE = 1, ELF_ARM = 40, ELF_X86_64 = 62, ELF_AARCH64 = 183, ELF_RISCV = 243 };
enum { SECTION_SYMBOLS = 2, SECTION_STRINGS = 3, SECTION_RELA = 4, SECTION_NOBITS = 8, SECTION_REL = 9 };
enum { FLAG_WRITE = 1, FLAG_ALLOC = 2, FLAG_EXEC = 4, FLAG_TLS = 0x400, FLAG_COMPRESSED = 0x800 };
enum { INDEX_UNDEFINED = 0, INDEX_RESERVED = 0xff00, INDEX_ABSOLUTE = 0xfff1, INDEX_COMMON = 0xfff2 };
enum { RELOCATION_NONE = 0 }; /* on every machine */
enum { BIND_LOCAL = 0, BIND_GLOBAL = 1, BIND_WEAK = 2 };
enum { TYPE_NONE = 0, TYPE_OBJECT = 1, TYPE_FUNCTION = 2, TYPE_SECTION = 3, TYPE_TLS = 6, TYPE_IFUNC = 10 };

#endif
