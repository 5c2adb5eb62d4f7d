#include "model/train/offload/outside_lodging.h"

#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/printable.h"
#include "model/train/offload/offload.h"
#include "run/device/available.h"

namespace lumen::model {

OutsideLodging::OutsideLodging(run::Engine& engine, const Recipe& recipe, const LayerPlan& plan)
    : group_of_(plan.group_of), updates_clear_(plan.sums_elsewhere) {
  for (const LayerPlan::Part& at : plan.parts) layers_.push_back(at.part.layer);
  const OffloadPlace place = *offload_settings(recipe.offload).layers;
  const std::filesystem::path own = run_folder(recipe);
  const auto open = [&](const std::vector<VisitorGroup>& groups, size_t seats) -> std::unique_ptr<Visits> {
    if (all_bytes(groups) == 0) return nullptr;
    std::unique_ptr<Visits> visits = Visits::open(engine, place, own, groups, seats);
    LUMEN_CHECK(visits);
    return visits;
  };
  parameters_ = open(plan.parameters, kParameterSeats);
  gradients_ = open(plan.gradients, kGradientSeats);
  if (!parameters_ && !gradients_) return;
  note(fmt::format("{} of layers' parameters and {} of their gradients lie in {}",
                   size_text(all_bytes(plan.parameters)), size_text(all_bytes(plan.gradients)),
                   (parameters_ ? parameters_ : gradients_)->describe()));
}

bool OutsideLodging::has_bytes(const std::unique_ptr<Visits>& visits, int layer) const {
  return visits && layer >= 0 && visits->groups().at(group_of_.at(layer)).bytes > 0;
}

void OutsideLodging::call(size_t part) {
  if (moves(parameters_, part)) parameters_->call(group(part));
}

void OutsideLodging::come(size_t part) {
  if (moves(parameters_, part)) parameters_->come(group(part));
}

void OutsideLodging::leave(size_t part) {
  if (moves(parameters_, part)) parameters_->leave(group(part), false);
}

void OutsideLodging::call_gradients(size_t part) {
  if (moves(gradients_, part)) gradients_->call(group(part));
}

void OutsideLodging::open_gradients(size_t part, bool first) {
  if (!moves(gradients_, part)) return;
  if (first)
    gradients_->claim(group(part));
  else
    gradients_->come(group(part));
}

void OutsideLodging::close_gradients(size_t part) {
  if (moves(gradients_, part)) gradients_->leave(group(part), true);
}

run::DeviceTensorRef OutsideLodging::tensor(const std::string& name) {
  for (Visits* visits : {parameters_.get(), gradients_.get()})
    if (visits && visits->find(name)) return visits->tensor(name);
  return nullptr;
}

void OutsideLodging::turn(int from, int to) {
  if (has_bytes(parameters_, from)) parameters_->leave(group_of_.at(from), true);
  if (has_bytes(gradients_, from)) gradients_->leave(group_of_.at(from), updates_clear_);
  for (const auto* visits : {&parameters_, &gradients_}) {
    if (!has_bytes(*visits, to)) continue;
    const size_t next = group_of_.at(to) + 1;
    (*visits)->come(next - 1);
    if (next < (*visits)->groups().size() && (*visits)->groups()[next].bytes > 0) (*visits)->call(next);
  }
}

void OutsideLodging::clear_gradients() {
  if (!gradients_) return;
  for (const VisitorGroup& g : gradients_->groups())
    for (const Visitor& v : g.visitors) gradients_->write(v.name, std::vector<uint8_t>(graph::byte_size(v.type)));
}

}  // namespace lumen::model
