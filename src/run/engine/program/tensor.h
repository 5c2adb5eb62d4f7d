// Tensors on a device.
#pragma once

#include <memory>

#include "graph/ir/type.h"
#include "run/device/device.h"

namespace lumen::run {

// Parameters may lie where a file has them; what is computed is aligned as the device aligns.
constexpr int kParameterAlignment = 32;

// Memory on a device with a type. Shared ownership: programs and sessions keep what they use.
class DeviceTensor {
 public:
  DeviceTensor(Device& device, graph::Type type, Pages pages = Pages::huge);
  // Part of memory somebody else allocated; `memory` keeps it alive.
  DeviceTensor(Device& device, graph::Type type, std::shared_ptr<void> memory, void* data);
  // A parameter's bytes: where they lie when the device can read them there, a copy otherwise. Never written.
  static std::shared_ptr<DeviceTensor> parameter(Device& device, graph::Type type, const void* bytes,
                                                 std::shared_ptr<const void> keeper);
  ~DeviceTensor();
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;
  const graph::Type& type() const { return type_; }
  int64_t bytes() const { return bytes_; }
  void* data() { return data_; }
  void upload(const void* from, int64_t bytes);  // whole tensor, in its element's own bytes
  void download(void* to, int64_t bytes) const;
  void clear();  // all bytes become 0
  void copy_rows(int64_t from, int64_t to,
                 int64_t count);  // of the last axis, counted over the whole tensor; not of formats with tiles

 private:
  Device& device_;
  graph::Type type_;
  int64_t bytes_;
  std::shared_ptr<void> memory_;  // null: this tensor's own
  void* data_;
};
using DeviceTensorRef = std::shared_ptr<DeviceTensor>;

}  // namespace lumen::run
