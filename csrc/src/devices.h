/* Devices, for the parts of the runtime. */
#ifndef WEFT_DEVICES_H
#define WEFT_DEVICES_H

#include "internal.h"
#include "weft_device.h"

enum { WEFT_KIND_BYTES = 32 };

/* The CPU as a device: the memory is the main memory, kernels are relocatable objects. */
extern const weft_device_table weft_cpu_table;

#endif
