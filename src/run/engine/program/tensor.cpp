#include "run/engine/program/tensor.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/ordinal.h"

namespace lumen::run {

DeviceTensor::DeviceTensor(Device& device, graph::Type type, Pages pages)
    : device_(device), type_(std::move(type)), bytes_(graph::byte_size(type_)), data_(device.allocate(bytes_, pages)) {}

DeviceTensor::DeviceTensor(Device& device, graph::Type type, std::shared_ptr<void> memory, void* data)
    : device_(device),
      type_(std::move(type)),
      bytes_(graph::byte_size(type_)),
      memory_(std::move(memory)),
      data_(data) {}

DeviceTensorRef DeviceTensor::parameter(Device& device, graph::Type type, const void* bytes,
                                        std::shared_ptr<const void> keeper) {
  const bool readable = device.reads_host_memory() && reinterpret_cast<uintptr_t>(bytes) % kParameterAlignment == 0;
  if (!readable || !keeper) {
    auto copy = std::make_shared<DeviceTensor>(device, std::move(type));
    copy->upload(bytes, copy->bytes());
    return copy;
  }
  // Programs write states only, and refuse to write memory that is bound twice.
  return std::make_shared<DeviceTensor>(device, std::move(type), std::const_pointer_cast<void>(keeper),
                                        const_cast<void*>(bytes));
}

DeviceTensor::~DeviceTensor() {
  if (!memory_) device_.release(data_);
}

void DeviceTensor::upload(const void* from, int64_t bytes) {
  LUMEN_CHECK(bytes == bytes_, "{} bytes for {} of {}", bytes, graph::print(type_), bytes_);
  device_.copy_in(data_, from, bytes);
}

void DeviceTensor::download(void* to, int64_t bytes) const {
  LUMEN_CHECK(bytes == bytes_, "{} bytes for {} of {}", bytes, graph::print(type_), bytes_);
  device_.copy_out(to, data_, bytes);
}

void DeviceTensor::clear() {
  static const std::array<uint8_t, 1 << 20> zeros{};
  for (int64_t done = 0; done < bytes_; done += zeros.size())
    device_.copy_in(static_cast<uint8_t*>(data_) + done, zeros.data(), std::min<int64_t>(zeros.size(), bytes_ - done));
}

void DeviceTensor::copy_rows(int64_t from, int64_t to, int64_t count) {
  const int64_t columns = type_.shape.empty() ? 1 : type_.shape.back().number();
  const int64_t rows = graph::elements(type_.shape).number() / columns;
  LUMEN_CHECK(from >= 0 && to >= 0 && count >= 0 && from + count <= rows && to + count <= rows);
  std::vector<uint8_t> bytes;
  const auto copy = [&](int64_t section, int64_t stride) {
    if (stride == 0) return;
    auto* const base = static_cast<uint8_t*>(data_) + section;
    bytes.resize(count * stride);
    device_.copy_out(bytes.data(), base + from * stride, count * stride);
    device_.copy_in(base + to * stride, bytes.data(), count * stride);
  };
  if (!type_.element.format) {
    copy(0, bytes_ / rows);
    return;
  }
  const Format& f = *type_.element.format;
  LUMEN_CHECK(f.tile_bytes == 0 && f.tensor_bytes == 0, "rows of {} do not stand alone", f.name);
  const BlobLayout layout = blob_layout(f, rows, columns);
  copy(0, layout.row_stride);
  copy(layout.section[ordinal(Level::row)], f.row_bytes);
}

}  // namespace lumen::run
