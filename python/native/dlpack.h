// DLPack as libraries hand arrays to each other: its structures, which are an ABI, and capsules of Python around them.
#pragma once

#include <Python.h>

#include <cstdint>

namespace lumen::dlpack {

// Kinds of devices are those of lumen.h.
struct Device {
  int32_t kind;
  int32_t id;
};

struct Dtype {
  static constexpr uint8_t kInt = 0, kFloat = 2;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  bool is(uint8_t of, uint8_t size) const { return code == of && bits == size && lanes == 1; }
};

struct Tensor {
  void* data;
  Device device;
  int32_t rank;
  Dtype dtype;
  int64_t* shape;
  int64_t* strides;  // in numbers; null: dense
  uint64_t byte_offset;
};

struct Managed {
  static constexpr const char* kName = "dltensor";
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

// From version 1 on.
struct Versioned {
  static constexpr const char* kName = "dltensor_versioned";
  static constexpr uint64_t kIsCopied = 2;
  uint32_t major, minor;
  void* context;
  void (*deleter)(Versioned*);
  uint64_t flags;
  Tensor tensor;
};

// A capsule that gives the tensor back unless somebody has taken it.
template <typename T>
PyObject* capsule_of(T* managed) {
  return PyCapsule_New(managed, T::kName, [](PyObject* capsule) {
    if (!PyCapsule_IsValid(capsule, T::kName)) return;
    auto* const left = static_cast<T*>(PyCapsule_GetPointer(capsule, T::kName));
    if (left->deleter) left->deleter(left);
  });
}

// What a capsule holds that nobody has taken; null: it is none.
inline const Tensor* tensor_of(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, Managed::kName))
    return &static_cast<Managed*>(PyCapsule_GetPointer(capsule, Managed::kName))->tensor;
  if (!PyCapsule_IsValid(capsule, Versioned::kName)) return nullptr;
  const auto* const versioned = static_cast<Versioned*>(PyCapsule_GetPointer(capsule, Versioned::kName));
  return versioned->major == 1 ? &versioned->tensor : nullptr;
}

}  // namespace lumen::dlpack
