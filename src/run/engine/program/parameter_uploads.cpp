#include "run/engine/program/parameter_uploads.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/file/leave.h"
#include "base/log.h"

namespace lumen::run {
namespace {

constexpr int64_t kPiece = int64_t{4} << 20;  // bytes
// One thread reads pages of a file at half the speed of a bus or less; eight threads are faster than any bus.
constexpr int kMostThreads = 8;

}  // namespace

ParameterUploads::~ParameterUploads() {
  next_ = pieces_.size();
  carriers_.clear();
}

DeviceTensorRef ParameterUploads::add(graph::Type type, const void* bytes, std::shared_ptr<const void> keeper) {
  if (device_.reads_host_memory()) return DeviceTensor::parameter(device_, std::move(type), bytes, std::move(keeper));
  auto tensor = std::make_shared<DeviceTensor>(device_, std::move(type));
  const auto* from = reinterpret_cast<const std::byte*>(bytes);
  auto* to = reinterpret_cast<std::byte*>(tensor->data());
  for (int64_t done = 0; done < tensor->bytes(); done += kPiece)
    pieces_.push_back({to + done, from + done, std::min(kPiece, tensor->bytes() - done)});
  tensors_.push_back(tensor);
  keepers_.push_back(std::move(keeper));
  return tensor;
}

void ParameterUploads::begin() {
  int64_t bytes = 0;
  for (const Piece& p : pieces_) bytes += p.bytes;
  const int64_t carriers = std::min<int64_t>({threads_, kMostThreads, bytes / kWorthThreads * 2});
  for (int64_t i = 0; i < carriers; ++i) {
    lanes_.push_back(device_.make_lane());
    if (lanes_.back()) continue;
    lanes_.pop_back();
    break;
  }
  if (lanes_.empty()) {
    for (const Piece& p : pieces_) device_.copy_in(p.to, p.from, p.bytes);
    return;
  }
  device_.synchronize();  // so that memory is allocated and zeroed before the lanes write it
  for (const auto& lane : lanes_) {
    Thread carrier = Thread::where_possible([this, &lane] { carry(*lane); });
    if (!carrier.is_running()) break;
    carriers_.push_back(std::move(carrier));
  }
  if (carriers_.empty()) carry(*lanes_.front());
}

void ParameterUploads::carry(Device::Lane& lane) {
  try {
    const std::shared_ptr<std::byte> locked = device_.allocate_locked(kPiece);
    for (size_t i = next_++; i < pieces_.size(); i = next_++) {
      const Piece& p = pieces_[i];
      std::memcpy(locked.get(), p.from, p.bytes);
      lane.in(p.to, locked.get(), p.bytes);
      // These pages are not read again soon: otherwise the process would have to unmap all of them at exit.
      leave_to_file({reinterpret_cast<const uint8_t*>(p.from), size_t(p.bytes)});
      lane.wait();
    }
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    next_ = pieces_.size();
  }
}

void ParameterUploads::wait() {
  const std::scoped_lock lock(waiting_);
  carriers_.clear();
  lanes_.clear();
  keepers_.clear();
  tensors_.clear();
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace lumen::run
