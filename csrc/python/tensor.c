/* _native.Tensor: typed memory that speaks the buffer protocol and DLPack. */
#include "binding.h"

#include <string.h>

#include "dlpack.h"

/* ---- element types ----------------------------------------------------------------------------------------------- */

static const element_type ELEMENTS[] = {
    {"float32", DLPACK_FLOAT, 32, 4, "f", "f"},
    {"int64", DLPACK_INT, 64, 8, "ql", "q"},
    {"int32", DLPACK_INT, 32, 4, "il", "i"},
    {"bool", DLPACK_BOOL, 8, 1, "?", "?"},
    {"float16", DLPACK_FLOAT, 16, 2, "e", "e"},
    {"float64", DLPACK_FLOAT, 64, 8, "d", "d"},
    {"int8", DLPACK_INT, 8, 1, "b", "b"},
    {"int16", DLPACK_INT, 16, 2, "h", "h"},
    {"uint8", DLPACK_UINT, 8, 1, "B", "B"},
    {"uint16", DLPACK_UINT, 16, 2, "H", "H"},
    {"uint32", DLPACK_UINT, 32, 4, "IL", "I"},
    {"uint64", DLPACK_UINT, 64, 8, "QL", "Q"},
    {"bfloat16", DLPACK_BFLOAT, 16, 2, "", "H"},
    {"float8_e4m3fn", DLPACK_FLOAT8_E4M3FN, 8, 1, "", "B"},
    {"float8_e4m3fnuz", DLPACK_FLOAT8_E4M3FNUZ, 8, 1, "", "B"},
    {"float8_e5m2", DLPACK_FLOAT8_E5M2, 8, 1, "", "B"},
    {"float8_e5m2fnuz", DLPACK_FLOAT8_E5M2FNUZ, 8, 1, "", "B"},
    {"float8_e8m0fnu", DLPACK_FLOAT8_E8M0FNU, 8, 1, "", "B"},
    {"float8_e3m4", DLPACK_FLOAT8_E3M4, 8, 1, "", "B"},
    {"float8_e4m3", DLPACK_FLOAT8_E4M3, 8, 1, "", "B"},
    {"float8_e4m3b11fnuz", DLPACK_FLOAT8_E4M3B11FNUZ, 8, 1, "", "B"},
    {"int1", 0, 0, 1, "", "b"},
    {"uint1", 0, 0, 1, "", "B"},
    {"float6_e2m3fn", 0, 0, 1, "", "B"},
    {"float6_e3m2fn", 0, 0, 1, "", "B"},
    {"int2", 0, 0, 1, "", "b"},
    {"int4", 0, 0, 1, "", "b"},
    {"uint2", 0, 0, 1, "", "B"},
    {"uint4", 0, 0, 1, "", "B"},
    {"float4_e2m1fn", 0, 0, 1, "", "B"},
};
enum { ELEMENT_COUNT = sizeof ELEMENTS / sizeof ELEMENTS[0] };

const element_type *element_by_name(const char *name) {
    for (int i = 0; i < ELEMENT_COUNT; i++)
        if (strcmp(ELEMENTS[i].name, name) == 0) return &ELEMENTS[i];
    PyErr_Format(PyExc_TypeError, "unknown dtype '%s'", name);
    return NULL;
}

const element_type *element_by_dlpack(int code, int bits) {
    for (int i = 0; i < ELEMENT_COUNT; i++)
        if (ELEMENTS[i].dlpack_bits == bits && ELEMENTS[i].dlpack_code == code && bits) return &ELEMENTS[i];
    PyErr_Format(PyExc_BufferError, "DLPack type code %d with %d bits is not supported", code, bits);
    return NULL;
}

int element_matches(const element_type *element, const char *format, Py_ssize_t itemsize) {
    if (!format) format = "B";
    if (*format == '@' || *format == '=' || *format == '<') format++; /* the machine is little-endian */
    return itemsize == element->bytes && format[0] && !format[1] && strchr(element->formats, format[0]);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static TensorObject *new_tensor(PyTypeObject *type, const element_type *element, int ndim, const int64_t *shape) {
    TensorObject *t = (TensorObject *)type->tp_alloc(type, 0);
    if (!t) return NULL;
    t->element = element;
    t->ndim = ndim;
    t->shape = PyMem_Calloc(2 * (size_t)ndim + 1, sizeof(Py_ssize_t));
    if (!t->shape) {
        Py_DECREF(t);
        PyErr_NoMemory();
        return NULL;
    }
    t->strides = t->shape + ndim;
    t->nbytes = element->bytes;
    for (int d = ndim - 1; d >= 0; d--) {
        t->shape[d] = (Py_ssize_t)shape[d];
        t->strides[d] = t->nbytes;
        if (shape[d] < 0 || (shape[d] && t->nbytes > PY_SSIZE_T_MAX / shape[d])) {
            Py_DECREF(t);
            PyErr_SetString(PyExc_ValueError, "the shape is out of range");
            return NULL;
        }
        t->nbytes *= (Py_ssize_t)shape[d];
    }
    return t;
}

PyObject *tensor_from_memory(void *owned, const element_type *element, int ndim, const int64_t *shape) {
    TensorObject *t = new_tensor(&TensorType, element, ndim, shape);
    if (!t) {
        weft_free(owned);
        return NULL;
    }
    t->owned = owned;
    t->data = owned;
    return (PyObject *)t;
}

enum { MAX_DIMENSIONS = 64 };

/* Reads a sequence of integers; returns the number of dimensions, or -1. */
static int read_shape(PyObject *sequence, int64_t *shape) {
    PyObject *fast = PySequence_Tuple(sequence); /* of its own: __index__ of an item may change the sequence */
    if (!fast) return -1;
    Py_ssize_t count = PyTuple_GET_SIZE(fast);
    if (count > MAX_DIMENSIONS) {
        PyErr_SetString(PyExc_ValueError, "too many dimensions");
        count = -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        shape[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(fast, i));
        if (shape[i] == -1 && PyErr_Occurred()) count = -1;
    }
    Py_DECREF(fast);
    return (int)count;
}

static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"shape", "dtype", NULL};
    PyObject *sequence;
    const char *dtype;
    int64_t shape[MAX_DIMENSIONS];
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Os:Tensor", names, &sequence, &dtype)) return NULL;
    const element_type *element = element_by_name(dtype);
    int ndim = element ? read_shape(sequence, shape) : -1;
    if (ndim < 0) return NULL;
    TensorObject *t = new_tensor(type, element, ndim, shape);
    if (!t) return NULL;
    t->data = t->owned = weft_alloc(t->nbytes);
    if (t->owned) return (PyObject *)t;
    Py_DECREF(t);
    return PyErr_NoMemory();
}

/* Tensor(shape, dtype) in the memory of a device. */
static PyObject *tensor_on(PyObject *cls, PyObject *args) {
    PyObject *sequence;
    DeviceObject *device;
    const char *dtype;
    int64_t shape[MAX_DIMENSIONS];
    if (!PyArg_ParseTuple(args, "O!Os:on", &DeviceType, &device, &sequence, &dtype)) return NULL;
    const element_type *element = element_by_name(dtype);
    int ndim = element ? read_shape(sequence, shape) : -1;
    if (ndim < 0) return NULL;
    TensorObject *t = new_tensor((PyTypeObject *)cls, element, ndim, shape);
    if (!t) return NULL;
    t->device = Py_NewRef((PyObject *)device);
    weft_error error;
    int32_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = weft_device_allocate(device->device, t->nbytes, &t->owned, &error);
    Py_END_ALLOW_THREADS;
    t->data = t->owned;
    if (!status) return (PyObject *)t;
    Py_DECREF(t);
    raise_device_error(&error);
    return NULL;
}

/* Copies the elements of another tensor with the same number of bytes. Both are compact; their devices may differ. */
static PyObject *tensor_fill(TensorObject *t, PyObject *other) {
    if (!PyObject_TypeCheck(other, &TensorType)) return PyErr_Format(PyExc_TypeError, "fill(tensor)");
    TensorObject *from = (TensorObject *)other;
    if (from->nbytes != t->nbytes || t->readonly || !tensor_is_contiguous(t) || !tensor_is_contiguous(from))
        return PyErr_Format(PyExc_ValueError, "the tensors do not fit");
    weft_device *there = t->device ? ((DeviceObject *)t->device)->device : NULL;
    weft_device *here = from->device ? ((DeviceObject *)from->device)->device : NULL;
    weft_error error;
    int32_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = weft_device_copy(there, t->data, here, from->data, t->nbytes, &error);
    if (!status && there) status = weft_device_synchronize(there, &error);
    Py_END_ALLOW_THREADS;
    if (!status) Py_RETURN_NONE;
    raise_device_error(&error);
    return NULL;
}

static PyObject *tensor_wrap(PyObject *cls, PyObject *args) {
    PyObject *buffer, *sequence;
    const char *dtype;
    int64_t shape[MAX_DIMENSIONS];
    if (!PyArg_ParseTuple(args, "OOs:wrap", &buffer, &sequence, &dtype)) return NULL;
    const element_type *element = element_by_name(dtype);
    int ndim = element ? read_shape(sequence, shape) : -1;
    if (ndim < 0) return NULL;
    TensorObject *t = new_tensor((PyTypeObject *)cls, element, ndim, shape);
    if (!t) return NULL;
    if (PyObject_GetBuffer(buffer, &t->view, PyBUF_SIMPLE)) {
        Py_DECREF(t);
        return NULL;
    }
    t->data = t->view.buf;
    t->readonly = t->view.readonly;
    if (t->view.len == t->nbytes) return (PyObject *)t;
    PyErr_Format(PyExc_ValueError, "the buffer holds %zd bytes, the shape needs %zd", t->view.len, t->nbytes);
    Py_DECREF(t);
    return NULL;
}

static void tensor_dealloc(TensorObject *t) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace); /* a deleter may run Python, which must not meet the exception of the caller */
    if (t->managed && t->versioned) {
        DLManagedTensorVersioned *managed = t->managed;
        if (managed->deleter) managed->deleter(managed);
    } else if (t->managed) {
        DLManagedTensor *managed = t->managed;
        if (managed->deleter) managed->deleter(managed);
    }
    if (t->view.obj) PyBuffer_Release(&t->view);
    PyErr_Restore(type, value, trace);
    if (t->device) weft_device_free(((DeviceObject *)t->device)->device, t->owned);
    else weft_free(t->owned);
    Py_XDECREF(t->device);
    PyMem_Free(t->shape);
    Py_TYPE(t)->tp_free((PyObject *)t);
}

int tensor_is_contiguous(const TensorObject *t) {
    Py_ssize_t expected = t->element->bytes;
    if (t->nbytes == 0) return 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (t->shape[d] != 1 && t->strides[d] != expected) return 0;
        expected *= t->shape[d];
    }
    return 1;
}

/* ---- buffer protocol --------------------------------------------------------------------------------------------- */

static int tensor_getbuffer(PyObject *self, Py_buffer *view, int flags) {
    TensorObject *t = (TensorObject *)self;
    view->obj = NULL;
    if (t->device) {
        PyErr_SetString(PyExc_BufferError, "the tensor is not in main memory");
        return -1;
    }
    if ((flags & PyBUF_WRITABLE) && t->readonly) {
        PyErr_SetString(PyExc_BufferError, "the tensor is read-only");
        return -1;
    }
    int contiguous = tensor_is_contiguous(t);
    if (((flags & PyBUF_STRIDES) != PyBUF_STRIDES || (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS) && !contiguous) {
        PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous");
        return -1;
    }
    if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !contiguous) {
        PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous");
        return -1;
    }
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && (t->ndim > 1 || !contiguous)) {
        PyErr_SetString(PyExc_BufferError, "the tensor is not in column-major order");
        return -1;
    }
    *view = (Py_buffer){.buf = t->data, .obj = self, .len = t->nbytes, .itemsize = t->element->bytes};
    view->readonly = t->readonly;
    view->ndim = (flags & PyBUF_ND) ? t->ndim : 1;
    view->format = (flags & PyBUF_FORMAT) ? (char *)t->element->export_format : NULL;
    view->shape = (flags & PyBUF_ND) ? t->shape : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? t->strides : NULL;
    Py_INCREF(self);
    return 0;
}

static PyBufferProcs tensor_buffer = {tensor_getbuffer, NULL};

/* ---- DLPack ------------------------------------------------------------------------------------------------------ */

/* Owned by an exported DLPack tensor: the structure, shape and strides, and a reference to the tensor. */
typedef struct exported {
    union {
        DLManagedTensor plain;
        DLManagedTensorVersioned versioned;
    } managed;
    PyObject *tensor;
    int64_t numbers[]; /* shape, strides */
} exported;

static void free_exported(exported *e) {
    PyGILState_STATE state;
    if (!binding_lock(&state)) return; /* the process ends and takes the tensor with it */
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace); /* a finalizer must not meet the exception of its caller */
    Py_DECREF(e->tensor);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(state);
    free(e);
}

static void delete_plain(DLManagedTensor *self) { free_exported(self->manager_ctx); }
static void delete_versioned(DLManagedTensorVersioned *self) { free_exported(self->manager_ctx); }

static void drop_capsule(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        DLManagedTensor *managed = PyCapsule_GetPointer(capsule, "dltensor");
        managed->deleter(managed);
    } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        managed->deleter(managed);
    }
}

static exported *export_tensor(TensorObject *t, DLTensor *dl) {
    exported *e = malloc(sizeof *e + 2 * (size_t)t->ndim * sizeof(int64_t));
    if (!e) {
        PyErr_NoMemory();
        return NULL;
    }
    for (int d = 0; d < t->ndim; d++) {
        e->numbers[d] = t->shape[d];
        e->numbers[t->ndim + d] = t->strides[d] / t->element->bytes;
    }
    e->tensor = Py_NewRef((PyObject *)t);
    *dl = (DLTensor){.data = t->data,
                     .device = {DLPACK_CPU, 0},
                     .ndim = t->ndim,
                     .dtype = {t->element->dlpack_code, t->element->dlpack_bits, 1},
                     .shape = e->numbers,
                     .strides = e->numbers + t->ndim};
    return e;
}

static PyObject *make_capsule(TensorObject *t, int versioned) {
    DLTensor dl;
    exported *e = export_tensor(t, &dl);
    if (!e) return NULL;
    PyObject *capsule;
    if (versioned) {
        e->managed.versioned = (DLManagedTensorVersioned){
            {1, 0}, e, delete_versioned, t->readonly ? DLPACK_READ_ONLY : 0, dl};
        capsule = PyCapsule_New(&e->managed.versioned, "dltensor_versioned", drop_capsule);
    } else {
        e->managed.plain = (DLManagedTensor){dl, e, delete_plain};
        capsule = PyCapsule_New(&e->managed.plain, "dltensor", drop_capsule);
    }
    if (!capsule) free_exported(e);
    return capsule;
}

static PyObject *tensor_dlpack(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
    TensorObject *t = (TensorObject *)self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &max_version, &device, &copy))
        return NULL;
    if (t->device) return PyErr_Format(PyExc_BufferError, "the tensor is not in main memory");
    int versioned = 0;
    if (max_version != Py_None) {
        long major, minor;
        if (!PyArg_ParseTuple(max_version, "ll", &major, &minor)) return NULL;
        versioned = major >= 1;
    }
    if (device != Py_None) {
        long kind, number;
        if (!PyArg_ParseTuple(device, "ll", &kind, &number)) return NULL;
        if (kind != DLPACK_CPU) return PyErr_Format(PyExc_BufferError, "the tensor is in main memory");
    }
    if (copy == Py_True) return PyErr_Format(PyExc_BufferError, "copying is left to the consumer");
    if (t->readonly && !versioned) return PyErr_Format(PyExc_BufferError, "the tensor is read-only");
    if (!t->element->dlpack_bits)
        return PyErr_Format(PyExc_BufferError, "dtype %s cannot be exchanged through DLPack", t->element->name);
    return make_capsule(t, versioned);
}

static PyObject *tensor_dlpack_device(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return Py_BuildValue("(ii)", DLPACK_CPU, 0);
}

static int import_layout(TensorObject *t, const DLTensor *dl) {
    for (int d = 0; d < t->ndim && dl->strides; d++) t->strides[d] = (Py_ssize_t)dl->strides[d] * t->element->bytes;
    t->data = dl->data ? (char *)dl->data + dl->byte_offset : NULL;
    return 0;
}

static PyObject *tensor_from_capsule(PyObject *cls, PyObject *capsule) {
    int versioned = PyCapsule_IsValid(capsule, "dltensor_versioned");
    if (!versioned && !PyCapsule_IsValid(capsule, "dltensor"))
        return PyErr_Format(PyExc_BufferError, "not a DLPack capsule, or one used before");
    void *managed = PyCapsule_GetPointer(capsule, versioned ? "dltensor_versioned" : "dltensor");
    const DLTensor *dl = &((DLManagedTensor *)managed)->dl_tensor;
    if (versioned) {
        DLManagedTensorVersioned *v = managed;
        if (v->version.major != 1)
            return PyErr_Format(PyExc_BufferError, "DLPack version %u is not supported", (unsigned)v->version.major);
        dl = &v->dl_tensor;
    }
    int32_t home = dl->device.device_type;
    if (home != DLPACK_CPU && home != DLPACK_CUDA_HOST && home != DLPACK_ROCM_HOST)
        return PyErr_Format(PyExc_BufferError, "the tensor is not in main memory (DLPack device %d)",
                            (int)home);
    if (dl->dtype.lanes != 1 || dl->ndim < 0 || dl->ndim > MAX_DIMENSIONS)
        return PyErr_Format(PyExc_BufferError, "a DLPack tensor of vectors, or of too many dimensions");
    const element_type *element = element_by_dlpack(dl->dtype.code, dl->dtype.bits);
    if (!element) return NULL;
    TensorObject *t = new_tensor((PyTypeObject *)cls, element, dl->ndim, dl->shape);
    if (!t) return NULL;
    import_layout(t, dl);
    if (PyCapsule_SetName(capsule, versioned ? "used_dltensor_versioned" : "used_dltensor")) {
        Py_DECREF(t);
        return NULL;
    }
    t->managed = managed;
    t->versioned = versioned;
    t->readonly = versioned && (((DLManagedTensorVersioned *)managed)->flags & DLPACK_READ_ONLY);
    return (PyObject *)t;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static PyObject *numbers_tuple(const Py_ssize_t *numbers, int count) {
    PyObject *tuple = PyTuple_New(count);
    for (int d = 0; tuple && d < count; d++) {
        PyObject *number = PyLong_FromSsize_t(numbers[d]);
        if (!number) Py_CLEAR(tuple);
        else PyTuple_SET_ITEM(tuple, d, number);
    }
    return tuple;
}

static PyObject *get_shape(TensorObject *t, void *u) { (void)u; return numbers_tuple(t->shape, t->ndim); }
static PyObject *get_strides(TensorObject *t, void *u) { (void)u; return numbers_tuple(t->strides, t->ndim); }
static PyObject *get_dtype(TensorObject *t, void *u) { (void)u; return PyUnicode_InternFromString(t->element->name); }
static PyObject *get_nbytes(TensorObject *t, void *u) { (void)u; return PyLong_FromSsize_t(t->nbytes); }
static PyObject *get_address(TensorObject *t, void *u) { (void)u; return PyLong_FromVoidPtr(t->data); }
static PyObject *get_readonly(TensorObject *t, void *u) { (void)u; return PyBool_FromLong(t->readonly); }
static PyObject *get_home(TensorObject *t, void *u) { (void)u; return Py_NewRef(t->device ? t->device : Py_None); }
static PyObject *get_contiguous(TensorObject *t, void *u) { (void)u; return PyBool_FromLong(tensor_is_contiguous(t)); }

static PyGetSetDef tensor_attributes[] = {
    {"shape", (getter)get_shape, NULL, "Extents.", NULL},
    {"strides", (getter)get_strides, NULL, "Distances in bytes.", NULL},
    {"dtype", (getter)get_dtype, NULL, "Name of the element type.", NULL},
    {"nbytes", (getter)get_nbytes, NULL, "Bytes of the elements.", NULL},
    {"address", (getter)get_address, NULL, "Address of the first element.", NULL},
    {"home", (getter)get_home, NULL, "The open device in whose memory the elements are; None: the main memory.", NULL},
    {"readonly", (getter)get_readonly, NULL, "Whether the memory must not be changed.", NULL},
    {"contiguous", (getter)get_contiguous, NULL, "Whether the elements are compact in row-major order.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef tensor_methods[] = {
    {"on", tensor_on, METH_VARARGS | METH_CLASS, "on(device, shape, dtype): uninitialized memory of an open device."},
    {"fill", (PyCFunction)tensor_fill, METH_O, "fill(tensor): take over the bytes of another tensor."},
    {"wrap", tensor_wrap, METH_VARARGS | METH_CLASS, "wrap(buffer, shape, dtype): a view of a compact Python buffer."},
    {"from_capsule", tensor_from_capsule, METH_O | METH_CLASS, "from_capsule(capsule): take over a DLPack tensor."},
    {"__dlpack__", (PyCFunction)(void (*)(void))tensor_dlpack, METH_VARARGS | METH_KEYWORDS, "DLPack export."},
    {"__dlpack_device__", tensor_dlpack_device, METH_NOARGS, "DLPack device: (1, 0), main memory."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject TensorType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "weft.runtime._native.Tensor",
    .tp_basicsize = sizeof(TensorObject),
    .tp_dealloc = (destructor)tensor_dealloc,
    .tp_as_buffer = &tensor_buffer,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_doc = "Tensor(shape, dtype): compact uninitialized memory, aligned to 64 bytes.",
    .tp_methods = tensor_methods,
    .tp_getset = tensor_attributes,
    .tp_new = tensor_new,
};
