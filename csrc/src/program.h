/* The register program as the executor sees it, decoded from an array of 64-bit words (weft/runtime/encode.py writes it):
 *
 *   header       magic, encoding version, registers, symbols, expressions, inputs, outputs, buffers, kernels, constants,
 *                functions, host operators, devices, instructions, size of the arena in main memory (expression)
 *   expressions  each: number of words, then postfix words: PUSH value | LOAD register | operation
 *   devices      each: size of the arena there (expression); the devices are numbered from 1 on
 *   inputs       each: element size (0: passed as a value), space, dimensions, then an expression for each dimension
 *   outputs      the same
 *   buffers      each: kind, index, offset (expression), nbytes (expression), element type, space
 *   kernels      each: device
 *   functions    each: first instruction, first buffer and the one after the last, first register and the one after the
 *                last, parameters n, captured m, results, n + m buffers
 *   instructions each: opcode and operands (see `opcode`)
 *
 * A space is the memory of a device, by the device's number; 0 is the main memory and the CPU.
 *
 * Registers 0 … symbols-1 are bound from the shapes of inputs before a run; the others are set by instructions. An
 * expression is *stable* if it reads only the former; its value is computed once for each set of symbols.
 *
 * A function owns a range of buffers and of registers: its window, which holds one activation at a time. A call of a
 * function that is active already saves the window and gives it back on return. */
#ifndef WEFT_PROGRAM_H
#define WEFT_PROGRAM_H

#include "internal.h"

enum { PROGRAM_MAGIC = 0x54464557, PROGRAM_VERSION = WEFT_PROGRAM_VERSION, MAX_STACK = 64, MAX_RANK = WEFT_MAX_RANK };

typedef enum size_op {
    EVAL_PUSH,
    EVAL_LOAD,
    EVAL_ADD,
    EVAL_SUB,
    EVAL_MUL,
    EVAL_FLOORDIV,
    EVAL_FLOORMOD,
    EVAL_MIN,
    EVAL_MAX,
    EVAL_EQ,
    EVAL_NE,
    EVAL_LT,
    EVAL_LE,
    EVAL_GT,
    EVAL_GE,
    EVAL_AND,
    EVAL_OR,
    EVAL_NOT,
    EVAL_OPS
} size_op;

typedef enum buffer_kind {
    BUFFER_INPUT,
    BUFFER_OUTPUT,
    BUFFER_CONSTANT,
    BUFFER_ARENA,
    BUFFER_DYNAMIC,
    BUFFER_OBJECT, /* holds a weft_value; if that is a tensor, kernels see its elements */
    BUFFER_KINDS
} buffer_kind;

/* Element types that a size can be read from; the value is bytes, plus SIGNED. */
enum { ELEMENT_OTHER = 0, ELEMENT_SIGNED = 16 };

typedef enum opcode {
    OP_CALL,        /* kernel, buffers n, sizes m, n buffers, m expressions */
    OP_COPY,        /* source, target, nbytes */
    OP_SET,         /* register, expression */
    OP_READ,        /* register, buffer, element */
    OP_ALLOCATE,    /* buffer, nbytes */
    OP_FREE,        /* buffer */
    OP_CHECK,       /* expression */
    OP_JUMP,        /* instruction */
    OP_JUMP_UNLESS, /* instruction, expression */
    OP_COPY_PART,   /* source, target, nbytes, source offset, target offset */
    OP_RESERVE,     /* buffer, nbytes */
    OP_TAKE,        /* object, input */
    OP_GIVE,        /* object, output */
    OP_TENSOR,      /* object, nbytes, dimensions n, n expressions */
    OP_VIEW,        /* object, buffer, nbytes, dimensions n, n expressions */
    OP_BOX,         /* object, expression */
    OP_CONSTRUCT,   /* object, tag, fields n, n objects */
    OP_FIELD,       /* object, object, number */
    OP_TAG,         /* register, object */
    OP_EXTENT,      /* register, object, axis */
    OP_SHARE,       /* object, object it shall hold too: target, source */
    OP_INVOKE,      /* function or -1, closure object or -1, tail, arguments n, results m, n + m objects */
    OP_RETURN,      /* results n, n objects */
    OP_HOST,        /* operator, arguments n, results m, n + m objects */
    OP_LAUNCH,      /* kernel, buffers n, sizes m, n buffers, m expressions, 7 expressions: grid, block, shared bytes */
    OP_TRANSFER,    /* the same as OP_COPY_PART, where one of the buffers at least is not in main memory */
    OP_CHECK_RANGE, /* buffer, elements (expression), columns n, n least and n largest values (expressions) */
    OPCODES
} opcode;

typedef struct expression {
    const int64_t *words;
    int32_t count;
    bool stable;
} expression;

typedef struct tensor_spec {
    int64_t element_bytes;
    int32_t ndim;
    bool stable, is_value;
    int32_t space;
    const int64_t *dims; /* expression numbers */
} tensor_spec;

typedef struct buffer_spec {
    buffer_kind kind;
    int32_t index, offset, nbytes, element, space;
    int32_t slot_begin, slot_end; /* into slot_list: the call arguments that hold this buffer */
} buffer_spec;

typedef struct instruction {
    uint8_t op;
    bool careful; /* an operand is volatile or may be without memory: take the checking path */
    int32_t a, b; /* register, buffer, instruction or kernel; see `opcode` */
    int64_t c;    /* expression or element */
    int32_t d, e; /* offsets of a copy: expressions; results of an invocation; tail */
    int32_t buffer_count, size_count;
    int32_t first_slot, first_size;   /* into the frame's slots and sizes */
    const int64_t *buffers, *sizes;   /* operands: buffer and expression numbers */
    weft_kernel kernel;
    const int64_t *launch; /* of OP_LAUNCH: expression numbers */
} instruction;

typedef struct function {
    int32_t entry, first_buffer, end_buffer, first_register, end_register;
    int32_t parameter_count, captured_count, result_count;
    const int64_t *parameters; /* buffers: the parameters, then what is captured */
    int32_t *kept;             /* the buffers that an activation owns: those without a fixed place */
    int32_t kept_count;
} function;

typedef struct program {
    int64_t *words; /* owned copy; the decoded parts point into it */
    int32_t registers, symbols, arena;
    int32_t expression_count, input_count, output_count, buffer_count, kernel_count, constant_count, instruction_count;
    int32_t slot_count, size_count, function_count, host_count, device_count;
    const int64_t *arenas;         /* of the devices: expression numbers */
    const int64_t *kernel_devices; /* of the kernels */
    expression *expressions;
    tensor_spec *inputs, *outputs;
    buffer_spec *buffers;
    instruction *instructions;
    function *functions;
    int32_t *slot_list;
} program;

/* Decodes and checks everything that can be checked before a run. On failure the program is left freed. */
int32_t weft_program_decode(program *p, const int64_t *words, size_t count, const weft_parts *parts, weft_error *error);
void weft_program_free(program *p);

/* Whether an instruction has its arguments laid out in the slots and sizes of a frame. */
WEFT_INLINE bool weft_has_arguments(const instruction *i) { return i->op == OP_CALL || i->op == OP_LAUNCH; }

/* Evaluates over registers. False if it overflows or divides by zero. */
bool weft_size_evaluate(const expression *e, const int64_t *registers, int64_t *value);

#endif
