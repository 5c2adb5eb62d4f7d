// Tensor parallelism: each rank has parts of matrices, of their gradients and states.
#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "model/train/ranks/cuts.h"
#include "model/train/trainer/trainer.h"

namespace lumen::model::train {
namespace {

// Parts are cut again among data-parallel groups, by rows; formats of states must fit the parts as they fit whole
// tensors.
void require_parts_of_parts(const Method& method, const recipe::Recipe& recipe, const TensorParts& parts, int groups) {
  const std::vector<arch::Parameter> here = method.trained_here();
  for (size_t i = 0; i < here.size(); ++i) {
    const std::vector<recipe::Optimizer::State> own = method.optimizer().states(here[i]),
                                                whole = method.optimizer().states(method.trained()[i]);
    for (size_t k = 0; k < whole.size(); ++k)
      if (!(own.at(k).type.element == whole[k].type.element))
        throw Error(Exit::usage,
                    fmt::format("--tensor-parallel and --shard {}: blocks of {} do not divide parts of '{}'",
                                recipe.shard, whole[k].type.element.format->name, here[i].name),
                    "leave out one of the two, or hold states in f32");
  }
  for (const Cut& cut : cut_parameters(here, method.optimizer(), groups))
    if (!cut.in_rows && parts.split_of(cut.whole.name))
      throw Error(Exit::usage,
                  fmt::format("--tensor-parallel and --shard {}: the optimizer computes '{}' as a whole", recipe.shard,
                              cut.whole.name),
                  "leave out one of the two, or choose an optimizer that computes element by element");
}

}  // namespace

void Trainer::begin_tensor_parts() {
  const graph::TensorSplit& partition = *method_.partition();
  note(method_.partition_text());
  if (!grid_.data)
    for (const auto& [key, value, none] : {std::tuple("shard", recipe_.shard, "none"),
                                           {"reduce_type", recipe_.reduce_type, "f32"},
                                           {"gather_type", recipe_.gather_type, "f32"}})
      if (value != none) note(fmt::format("ranks.{} = {} changes nothing: no other ranks share the batch", key, value));
  const auto require_cut = [&](const std::string& name, const graph::Type& type) {
    const auto split = partition.inputs.find(name);
    const std::string refusal =
        split == partition.inputs.end() ? "" : refusal_to_cut(type, split->second, partition.ranks);
    if (!refusal.empty())
      throw Error(Exit::usage, fmt::format("{} ranks cannot share '{}': {}", partition.ranks, name, refusal),
                  "formats with independent blocks that divide the parts can be shared");
  };
  if (has_adapter())
    for (const auto& [name, w] : model_.weights) require_cut(name, w.type);
  for (const arch::Parameter& p : method_.trained()) require_cut(p.name, method_.held().type_of(p));
  for (const arch::Parameter& p : method_.trained())
    for (const recipe::Optimizer::State& s : method_.optimizer().states(p))
      require_cut(recipe::optimizer_state(s.name, p.name), s.type);
  tensor_parts_ = std::make_unique<TensorParts>(grid_.tensor, partition);
  if (grid_.data && sharding_of(recipe_) != Sharding::none)
    require_parts_of_parts(method_, recipe_, *tensor_parts_, grid_.data->size());
  const int32_t rank = grid_.tensor->rank();
  tensor(graph::kTensorRank, {{}, {Scalar::i32, nullptr}})->upload(&rank, sizeof rank);
}

// A frozen weight, or this rank's part of it.
run::DeviceTensorRef Trainer::weight_tensor(const std::string& name, const arch::Weight& w) {
  if (!is_in_parts(name))
    return run::DeviceTensor::parameter(engine_.device(), w.type, w.bytes.data(), w.bytes.keeper());
  const std::vector<uint8_t> own = tensor_parts_->own_part(name, w.type, {w.bytes.data(), w.bytes.size()});
  auto out = std::make_shared<run::DeviceTensor>(engine_.device(), tensor_parts_->own_type(name, w.type));
  out->upload(own.data(), std::ssize(own));
  return out;
}

// Whether any rank is asked to stop, where all ranks must go on together.
bool Trainer::asked_now(const std::atomic<bool>* stop) const {
  double asked = stop && stop->load() ? 1 : 0;
  if (tensor_parts_) communicator_->all_reduce(std::span(&asked, 1));
  return asked > 0;
}

void Trainer::agree_among_all(const std::optional<Error>& failure) const {
  agree(*communicator_, failure);
}

// At the end one rank writes without the others, so it needs whole tensors.
void Trainer::gather_tensor_parts() {
  std::vector<std::string> names;
  for (const arch::Parameter& p : method_.trained()) {
    names.push_back(p.name);
    if (has_average()) names.push_back(recipe::average_of(p.name));
  }
  for (const std::string& name : names) {
    if (!is_in_parts(name)) continue;
    std::vector<uint8_t> whole(graph::byte_size(type_of(name)));
    fetch(name, whole);
    if (writes()) gathered_[name] = std::move(whole);
    tensors_.erase(name);
  }
}

// Parameters that are not finite in any rank's part.
std::vector<std::string> Trainer::of_all_parts(const std::vector<std::string>& broken) const {
  std::string mine;
  for (const arch::Parameter& p : method_.trained())
    mine += std::find(broken.begin(), broken.end(), p.name) == broken.end() ? '0' : '1';
  std::vector<std::string> out;
  const std::vector<std::string> all = tensor_parts_->group().all_gather(mine);
  for (size_t i = 0; i < mine.size(); ++i)
    if (std::any_of(all.begin(), all.end(), [&](const std::string& theirs) { return theirs[i] == '1'; }))
      out.push_back(method_.trained()[i].name);
  return out;
}

// For a program of a single process that needs the whole model.
run::DeviceTensorRef Trainer::whole_tensor(const std::string& name, const graph::Type& type) {
  if (!is_in_parts(name)) return tensor(name, type);
  auto out = std::make_shared<run::DeviceTensor>(engine_.device(), type);
  if (const auto found = gathered_.find(name); found != gathered_.end()) {
    out->upload(found->second.data(), std::ssize(found->second));
  } else {
    const arch::Weight& w = model_.weights.at(name);
    LUMEN_CHECK(std::ssize(w.bytes) >= out->bytes(), "'{}' is whole nowhere", name);
    out->upload(w.bytes.data(), out->bytes());
  }
  return out;
}

}  // namespace lumen::model::train
