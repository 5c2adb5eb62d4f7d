#include "run/engine/panels/panels.h"

namespace lumen::run {

Panels::Panels(const CompileContext& context, ChosenSteps chosen, const Shape& shape, CompileReport* report)
    : device_(context.device),
      threads_(context.threads),
      direction_(shape.direction),
      instead_(std::move(chosen.instead)) {
  values_bytes_ = shape.rows * shape.columns * sizeof(float);
  blob_bytes_ = blob_layout(*shape.format, shape.rows, shape.columns).total;
  importance_bytes_ = shape.weighed ? shape.columns * int64_t{sizeof(float)} : 0;
  blob_at_ = aligned(values_bytes_);
  importance_at_ = blob_at_ + aligned(blob_bytes_);
  const int64_t scratch_at = importance_at_ + aligned(importance_bytes_);
  status_at_ = scratch_at;
  for (const int64_t bytes : chosen.steps.scratch) status_at_ += aligned(bytes);
  bytes_ = status_at_ + aligned(sizeof(LaunchStatus));
  if (instead_) return;
  const BufferAddress values{BufferAddress::In::arena, 0}, blob{BufferAddress::In::arena, blob_at_};
  launches_ = compile_steps(context, chosen.steps,
                            {direction_ == Direction::encode ? values : blob,
                             direction_ == Direction::encode ? blob : values,
                             {BufferAddress::In::arena, importance_at_}},
                            scratch_at, report);
  for (Launch& launch : launches_)
    if (!device_->is_asynchronous()) launch.launch_config.small = true;  // threads work on panels, not on parts of them
}

Panels::Place Panels::place() const {
  Place out;
  out.of_ = this;
  out.memory_ = allocate_shared(device_, bytes_);
  auto* base = static_cast<std::byte*>(out.memory_.get());
  if (!device_->reads_host_memory()) {
    out.host_.resize(status_at_);
    base = out.host_.data();
  }
  out.values_ = reinterpret_cast<float*>(base);
  out.blob_ = reinterpret_cast<uint8_t*>(base + blob_at_);
  out.importance_ = reinterpret_cast<float*>(base + importance_at_);
  return out;
}

void Panels::Place::launch(std::byte* base) {
  Device& device = *of_->device_;
  if (of_->instead_) {
    void* const values[] = {of_->direction_ == Direction::encode ? base : base + of_->blob_at_,
                            of_->direction_ == Direction::encode ? base + of_->blob_at_ : base,
                            base + of_->importance_at_};
    of_->instead_->launch(values);
    return of_->instead_->finish();
  }
  LaunchStatus status;
  const bool waits = device.is_asynchronous();
  LaunchStatus* const shared = waits ? reinterpret_cast<LaunchStatus*>(base + of_->status_at_) : &status;
  std::vector<void*> buffers;
  for (const Launch& launch : of_->launches_) {
    buffers.clear();
    for (const BufferAddress& at : launch.addresses) buffers.push_back(base + at.at);
    device.launch(launch.kernel, buffers, launch.launch_config, shared);
  }
  device.synchronize();
  if (waits) device.copy_out(&status, shared, sizeof status);
  if (status.code != 0) throw guard_error({}, -1, status);
}

void Panels::Place::convert() {
  Device& device = *of_->device_;
  auto* base = static_cast<std::byte*>(memory_.get());
  const bool is_apart = !host_.empty(), encodes = of_->direction_ == Direction::encode;
  if (is_apart && encodes) device.copy_in(base, host_.data(), of_->values_bytes_);
  if (is_apart && encodes && of_->importance_bytes_ > 0)
    device.copy_in(base + of_->importance_at_, importance_, of_->importance_bytes_);
  if (is_apart && !encodes) device.copy_in(base + of_->blob_at_, blob_, of_->blob_bytes_);
  launch(base);
  if (is_apart && encodes) device.copy_out(blob_, base + of_->blob_at_, of_->blob_bytes_);
  if (is_apart && !encodes) device.copy_out(host_.data(), base, of_->values_bytes_);
}

}  // namespace lumen::run
