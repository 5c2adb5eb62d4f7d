#include "model/train/offload/outside_lodging.h"

#include "base/check.h"
#include "base/log.h"
#include "model/train/offload/offload.h"
#include "run/device/available.h"

namespace lumen::model {

OutsideLodging::OutsideLodging(run::Engine& engine, const Recipe& recipe, const LayerPlan& plan)
    : group_of_(plan.group_of) {
  for (const LayerPlan::Part& at : plan.parts) layers_.push_back(at.part.layer);
  const OffloadPlace place = *offload_settings(recipe.offload).layers;
  const std::filesystem::path own = run_folder(recipe);
  parameters_ = Visits::open(engine, place, own, plan.parameters, kParameterSeats);
  gradients_ = Visits::open(engine, place, own, plan.gradients, kGradientSeats);
  LUMEN_CHECK(parameters_ && gradients_);
  note(fmt::format("{} of layers' parameters and {} of their gradients lie in {}",
                   run::print_amount(all_bytes(plan.parameters)), run::print_amount(all_bytes(plan.gradients)),
                   parameters_->describe()));
}

void OutsideLodging::call(size_t part) {
  if (is_layer(part)) parameters_->call(group(part));
}

void OutsideLodging::come(size_t part) {
  if (is_layer(part)) parameters_->come(group(part));
}

void OutsideLodging::leave(size_t part) {
  if (is_layer(part)) parameters_->leave(group(part), false);
}

void OutsideLodging::open_gradients(size_t part, bool first) {
  if (!is_layer(part)) return;
  if (first)
    gradients_->claim(group(part));
  else
    gradients_->come(group(part));
}

void OutsideLodging::close_gradients(size_t part) {
  if (is_layer(part)) gradients_->leave(group(part), true);
}

run::DeviceTensorRef OutsideLodging::tensor(const std::string& name) {
  for (Visits* visits : {parameters_.get(), gradients_.get()})
    if (visits->find(name)) return visits->tensor(name);
  return nullptr;
}

void OutsideLodging::turn(int from, int to) {
  const auto group = [&](int layer) { return group_of_.at(layer); };
  if (from >= 0) {
    parameters_->leave(group(from), true);
    gradients_->leave(group(from), false);
  }
  if (to < 0) return;
  for (Visits* visits : {parameters_.get(), gradients_.get()}) {
    visits->come(group(to));
    if (group(to) + 1 < visits->groups().size()) visits->call(group(to) + 1);
  }
}

}  // namespace lumen::model
