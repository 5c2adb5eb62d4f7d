// The CPU as a device: threads, and launches that run kernels on them. Opened through run/device/device.h.
//
// May include: base, base/threads, run/device.
#pragma once
