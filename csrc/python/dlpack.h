/* The DLPack exchange structures, version 1.0 (https://dmlc.github.io/dlpack). */
#ifndef WEFT_DLPACK_H
#define WEFT_DLPACK_H

#include <stdint.h>

typedef struct DLDevice {
    int32_t device_type;
    int32_t device_id;
} DLDevice;

typedef struct DLDataType {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;

typedef struct DLTensor {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: compact row-major */
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLPackVersion {
    uint32_t major, minor;
} DLPackVersion;

typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

enum { DLPACK_CPU = 1, DLPACK_CUDA_HOST = 3, DLPACK_ROCM_HOST = 11 }; /* main memory, pinned or not */
enum { DLPACK_INT = 0, DLPACK_UINT = 1, DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4, DLPACK_BOOL = 6 };
enum {
    DLPACK_FLOAT8_E3M4 = 7,
    DLPACK_FLOAT8_E4M3 = 8,
    DLPACK_FLOAT8_E4M3B11FNUZ = 9,
    DLPACK_FLOAT8_E4M3FN = 10,
    DLPACK_FLOAT8_E4M3FNUZ = 11,
    DLPACK_FLOAT8_E5M2 = 12,
    DLPACK_FLOAT8_E5M2FNUZ = 13,
    DLPACK_FLOAT8_E8M0FNU = 14
};
enum { DLPACK_READ_ONLY = 1 };

#endif
