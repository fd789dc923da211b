/* Shared by the parts of the Python extension module weft.runtime._native. */
#ifndef WEFT_BINDING_H
#define WEFT_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "weft_device.h"

/* An element type: its name in Weft, its DLPack type, and the struct-module characters that mean the same (the first is
 * used for export; types that the buffer protocol does not know are exported as unsigned integers and accepted only
 * through Tensor, so they have no characters to accept). */
typedef struct element_type {
    const char *name;
    uint8_t dlpack_code, dlpack_bits; /* bits 0: not exported through DLPack */
    uint8_t bytes;
    const char *formats;
    const char *export_format;
} element_type;

const element_type *element_by_name(const char *name);
const element_type *element_by_dlpack(int code, int bits);
/* True if a buffer with this struct format holds such elements in native byte order. */
int element_matches(const element_type *element, const char *format, Py_ssize_t itemsize);

/* A block of typed memory: its own, borrowed from a Python buffer, or from a DLPack producer. */
typedef struct TensorObject {
    PyObject_HEAD
    char *data;
    const element_type *element;
    int ndim;
    int readonly;
    Py_ssize_t *shape, *strides; /* strides in bytes */
    Py_ssize_t nbytes;
    void *owned;       /* memory from weft_alloc, or of the device */
    PyObject *device;  /* a DeviceObject in whose memory `data` lies; NULL: the main memory */
    Py_buffer view;    /* held where view.obj is set */
    PyObject *capsule; /* consumed DLPack tensor */
    void *managed;     /* DLManagedTensor or DLManagedTensorVersioned to give back */
    int versioned;
} TensorObject;

typedef struct ValueObject {
    PyObject_HEAD
    weft_value *value;
} ValueObject;

/* An open device. */
typedef struct DeviceObject {
    PyObject_HEAD
    weft_device *device;
    PyObject *weak_references;
} DeviceObject;

extern PyTypeObject TensorType, CodeType, ExecutableType, ValueType, DeviceType;

/* The exception that a device written in Python raised on this thread, or NULL; the caller owns the reference. */
PyObject *take_device_exception(void);
/* Sets the exception of weft.runtime for an error that a device reported; its cause is the device's own exception. */
void raise_device_error(const weft_error *error);

/* A Python text of a text in C. C cuts texts that are too long, also in the middle of a letter: what is no UTF-8 is
 * replaced by U+FFFD. */
PyObject *binding_text(const char *text);
/* Whether the calling thread is the one that handles signals. */
int binding_is_main_thread(void);
/* Takes the interpreter's lock; 0 if the interpreter is shutting down, so that nothing of Python may be touched. */
int binding_lock(PyGILState_STATE *state);

/* A Python object for a value. Takes over the reference to the value, also if it fails. */
PyObject *value_object(weft_value *value);

int tensor_is_contiguous(const TensorObject *tensor);
/* Takes over the memory `owned`, also if it fails. */
PyObject *tensor_from_memory(void *owned, const element_type *element, int ndim, const int64_t *shape);

typedef struct CodeObject {
    PyObject_HEAD
    weft_code *code;
} CodeObject;

#endif
