#include "model/train/offload/offloaded_parameters.h"

#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/printable.h"
#include "model/train/offload/offload.h"
#include "run/device/available.h"

namespace lumen::model::train {

OffloadedParameters::OffloadedParameters(run::Engine& engine, const recipe::Recipe& recipe, const LayerPlan& plan)
    : group_of_(plan.group_of), updates_clear_(plan.sums_elsewhere) {
  for (const LayerPlan::Part& at : plan.parts) layers_.push_back(at.part.layer);
  const recipe::OffloadPlace place = *recipe::offload_settings(recipe.offload).layers;
  const std::filesystem::path own = run_folder(recipe);
  const auto open = [&](const std::vector<PageGroup>& groups, size_t slots) -> std::unique_ptr<TensorPager> {
    if (all_bytes(groups) == 0) return nullptr;
    std::unique_ptr<TensorPager> pager = TensorPager::open(engine, place, own, groups, slots);
    LUMEN_CHECK(pager);
    return pager;
  };
  parameters_ = open(plan.parameters, kParameterSlots);
  gradients_ = open(plan.gradients, kGradientSlots);
  if (!parameters_ && !gradients_) return;
  note(fmt::format("{} of layers' parameters and {} of their gradients are in {}",
                   size_text(all_bytes(plan.parameters)), size_text(all_bytes(plan.gradients)),
                   (parameters_ ? parameters_ : gradients_)->describe()));
}

bool OffloadedParameters::has_bytes(const std::unique_ptr<TensorPager>& pager, int layer) const {
  return pager && layer >= 0 && pager->groups().at(group_of_.at(layer)).bytes > 0;
}

void OffloadedParameters::prefetch(size_t part) {
  if (moves(parameters_, part)) parameters_->prefetch(group(part));
}

void OffloadedParameters::acquire(size_t part) {
  if (moves(parameters_, part)) parameters_->acquire(group(part));
}

void OffloadedParameters::release(size_t part) {
  if (moves(parameters_, part)) parameters_->release(group(part), false);
}

void OffloadedParameters::prefetch_gradients(size_t part) {
  if (moves(gradients_, part)) gradients_->prefetch(group(part));
}

void OffloadedParameters::open_gradients(size_t part, bool first) {
  if (!moves(gradients_, part)) return;
  if (first)
    gradients_->acquire_for_write(group(part));
  else
    gradients_->acquire(group(part));
}

void OffloadedParameters::close_gradients(size_t part) {
  if (moves(gradients_, part)) gradients_->release(group(part), true);
}

run::DeviceTensorRef OffloadedParameters::tensor(const std::string& name) {
  for (TensorPager* pager : {parameters_.get(), gradients_.get()})
    if (pager && pager->find(name)) return pager->tensor(name);
  return nullptr;
}

void OffloadedParameters::turn(int from, int to) {
  if (has_bytes(parameters_, from)) parameters_->release(group_of_.at(from), true);
  if (has_bytes(gradients_, from)) gradients_->release(group_of_.at(from), updates_clear_);
  for (const auto* pager : {&parameters_, &gradients_}) {
    if (!has_bytes(*pager, to)) continue;
    const size_t next = group_of_.at(to) + 1;
    (*pager)->acquire(next - 1);
    if (next < (*pager)->groups().size() && (*pager)->groups()[next].bytes > 0) (*pager)->prefetch(next);
  }
}

void OffloadedParameters::clear_gradients() {
  if (!gradients_) return;
  for (const PageGroup& g : gradients_->groups())
    for (const PagedTensor& v : g.tensors) gradients_->write(v.name, std::vector<uint8_t>(graph::byte_size(v.type)));
}

}  // namespace lumen::model::train
