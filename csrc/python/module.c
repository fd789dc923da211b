/* The extension module weft.runtime._native. */
#include "binding.h"

#include <pthread.h>
#include <string.h>

static unsigned long main_thread;

int binding_is_main_thread(void) { return PyThread_get_thread_ident() == main_thread; }

PyObject *binding_text(const char *text) { return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace"); }

/* The thread that forks is the main thread of the child. */
static void after_fork_in_child(void) { main_thread = PyThread_get_thread_ident(); }

static int find_main_thread(void) {
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
    main_thread = ident ? PyLong_AsUnsignedLong(ident) : 0;
    Py_XDECREF(threading);
    Py_XDECREF(thread);
    Py_XDECREF(ident);
    static int hooked;
    if (!hooked) hooked = pthread_atfork(NULL, NULL, after_fork_in_child) == 0;
    return PyErr_Occurred() ? -1 : 0;
}

int binding_lock(PyGILState_STATE *state) {
#if PY_VERSION_HEX >= 0x030d0000
    const int ending = Py_IsFinalizing();
#else
    const int ending = _Py_IsFinalizing();
#endif
    if (!Py_IsInitialized() || (ending && !PyGILState_Check())) return 0;
    *state = PyGILState_Ensure();
    return 1;
}

static PyObject *cpu_features(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return PyUnicode_FromString(weft_cpu_features());
}

static PyObject *worker_count(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return PyLong_FromLong(weft_worker_count());
}

static PyObject *scratch_bytes(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return PyLong_FromLongLong(weft_scratch_bytes());
}

static PyObject *allocated_blocks(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return PyLong_FromLongLong(weft_allocated_blocks());
}

static PyObject *has_export(PyObject *self, PyObject *name) {
    (void)self;
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    if (!text) return PyErr_Occurred() ? NULL : (PyErr_SetString(PyExc_TypeError, "a name is a text"), NULL);
    return PyBool_FromLong(weft_has_export(text));
}

static PyMethodDef functions[] = {
    {"scratch_bytes", scratch_bytes, METH_NOARGS, "Bytes of scratch memory that this thread has taken and not released."},
    {"allocated_blocks", allocated_blocks, METH_NOARGS, "Blocks of memory that the runtime has allocated and not freed."},
    {"cpu_features", cpu_features, METH_NOARGS, "Features of this processor: LLVM names, separated by commas."},
    {"worker_count", worker_count, METH_NOARGS, "Worker threads alive."},
    {"has_export", has_export, METH_O, "has_export(name): whether kernels may call a function of that name."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "weft.runtime._native", "Binding of the Weft C runtime.", -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *m = find_main_thread() ? NULL : PyModule_Create(&module);
    if (m && (PyModule_AddType(m, &TensorType) || PyModule_AddType(m, &CodeType) || PyModule_AddType(m, &ExecutableType) || PyModule_AddType(m, &ValueType) ||
              PyModule_AddType(m, &DeviceType) ||
              PyModule_AddIntConstant(m, "ABI_VERSION", WEFT_ABI_VERSION) ||
              PyModule_AddIntConstant(m, "PROGRAM_VERSION", WEFT_PROGRAM_VERSION)))
        Py_CLEAR(m);
    return m;
}
