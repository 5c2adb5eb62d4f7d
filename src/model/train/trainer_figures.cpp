// What a trainer says of itself: memory, formats, work of a step, and where numbers break.
#include <cmath>
#include <map>

#include "graph/grad/work.h"
#include "model/train/trainer.h"
#include "number/scalar.h"

namespace lumen::model {

double Trainer::work() const {
  std::vector<std::string> names;
  for (const Parameter& p : method_.trained()) names.push_back(p.name);
  return graph::training_work(method_.loss(), names) * static_cast<double>(recipe_.accumulate);
}

// Which gradients of the last step are not finite: where few are, the first of them is where it began.
std::string Trainer::broken_gradients() {
  run::Program& program = step_ ? *step_ : *apply_;
  std::string names;
  size_t count = 0;
  for (const Parameter& p : method_.trained()) {
    if (std::isfinite(scalar(program, (kSquares + p.name).c_str()))) continue;
    if (++count <= 3) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", p.name);
  }
  if (count == 0) return {};
  if (count == method_.trained().size() && count > 3)
    return fmt::format(" (all {} gradients are not: the loss is broken)", count);
  return fmt::format(" (gradient of {}{})", names, count > 3 ? fmt::format(" and {} others", count - 3) : "");
}

int64_t Trainer::trained_count() const {
  int64_t count = 0;
  for (const Parameter& p : method_.trained()) count += p.count();
  return count;
}

std::vector<Trainer::Held> Trainer::memory() const {
  Held trained{"trained weights"}, frozen{"frozen weights"}, moments{"optimizer"}, gradients{"gradients"}, data{"data"};
  for (const auto& [name, t] : tensors_) {
    Held& kind = is_trained(name)                ? trained
                 : model_.weights.contains(name) ? frozen
                 : name.starts_with(kGradient)   ? gradients
                 : is_optimizer_state(name)      ? moments
                                                 : data;
    kind.bytes += t->bytes();
  }
  Held values{"values of a step"}, evaluation{"values of an evaluation"};
  for (const auto& program : {step_, accumulate_, apply_})
    if (program) values.bytes += program->arena_bytes();
  if (evaluate_) evaluation.bytes = evaluate_->arena_bytes();
  std::vector<Held> out;
  for (Held* kind : {&trained, &frozen, &moments, &gradients, &values, &evaluation, &data})
    if (kind->bytes > 0) out.push_back(std::move(*kind));
  return out;
}

std::vector<Trainer::HeldIn> Trainer::formats() const {
  std::map<std::string, HeldIn> found;
  for (const auto& [name, t] : tensors_) {
    if (!is_trained(name) && !model_.weights.contains(name)) continue;
    const graph::Element& element = t->type().element;
    const std::string format = element.format ? element.format->name : std::string(scalar_name(element.scalar));
    HeldIn& held = found[format];
    held.format = format;
    ++held.tensors;
    held.numbers += graph::elements(t->type().shape).number();
    held.bytes += t->bytes();
  }
  std::vector<HeldIn> out;
  for (auto& [format, held] : found) out.push_back(std::move(held));
  return out;
}

}  // namespace lumen::model
