// Tensors on a device.
#pragma once

#include <memory>

#include "graph/ir/type.h"
#include "run/device/device.h"

namespace lumen::run {

// Parameters may be used in a file's memory; computed values have the device's alignment.
constexpr int kParameterAlignment = 32;

// Typed device memory. Shared ownership: programs and sessions keep the tensors they use.
class DeviceTensor {
 public:
  DeviceTensor(Device& device, graph::Type type, Pages pages = Pages::huge);
  // A part of other memory; `memory` keeps it alive.
  DeviceTensor(Device& device, graph::Type type, std::shared_ptr<void> memory, void* data);
  // A parameter's bytes: used in place if the device can read them there, otherwise copied. Never written.
  static std::shared_ptr<DeviceTensor> parameter(Device& device, graph::Type type, const void* bytes,
                                                 std::shared_ptr<const void> keeper);
  ~DeviceTensor();
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;
  const graph::Type& type() const { return type_; }
  int64_t bytes() const { return bytes_; }
  void* data() { return data_; }
  void upload(const void* from, int64_t bytes);  // the whole tensor, in its element type's bytes
  void download(void* to, int64_t bytes) const;
  void clear();  // all bytes become 0
  void copy_rows(int64_t from, int64_t to,
                 int64_t count);  // rows of the last axis, counted over the whole tensor; not for formats with tiles

 private:
  Device& device_;
  graph::Type type_;
  int64_t bytes_;
  std::shared_ptr<void> memory_;  // null: this tensor's own
  void* data_;
};
using DeviceTensorRef = std::shared_ptr<DeviceTensor>;

}  // namespace lumen::run
