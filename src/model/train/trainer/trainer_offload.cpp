// Tensor storage: on the device, or offloaded.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/threads/team.h"
#include "model/train/trainer/step_kinds.h"
#include "number/formula/scalar.h"

namespace lumen::model::train {
namespace {

template <class T>
std::span<uint8_t> bytes_of(std::span<T> numbers) {
  return {reinterpret_cast<uint8_t*>(numbers.data()), numbers.size_bytes()};
}
template <class T>
std::span<const uint8_t> bytes_of(std::span<const T> numbers) {
  return {reinterpret_cast<const uint8_t*>(numbers.data()), numbers.size_bytes()};
}

}  // namespace

// Parameters of layers are paged to the device while the step goes through the layers.
void Trainer::begin_layers() {
  const run::Device& device = engine_.device();
  const recipe::OffloadSettings settings = recipe::offload_settings(recipe_.offload);
  if (settings.layers && !offloads_layers(device, recipe_))
    note("parameters stay where they are: this device's memory is the host's");
  if (settings.activations && !offloads_activations(device, recipe_))
    note("activations stay where they are: this device's memory is the host's");
  if (grid_.data) return begin_layers_among_ranks();
  if (!goes_by_layers(device, recipe_)) return;
  const LayersLie lie = offloads_layers(device, recipe_) ? LayersLie::outside : LayersLie::here;
  LayerPlan plan = plan_layers(model_, method_, recipe_, lie, offloads_activations(device, recipe_));
  std::shared_ptr<ParameterStore> store = std::make_shared<ResidentParameters>();
  if (lie == LayersLie::outside) store = outside_ = std::make_shared<OffloadedParameters>(engine_, recipe_, plan);
  std::unique_ptr<TensorPager> kept = open_kept(engine_, recipe_, plan.kept);
  pass_ = std::make_unique<LayerPass>(*this, std::move(plan), std::move(store), std::move(kept));
}

run::DeviceTensorRef Trainer::tensor_or_visitor(const std::string& name, const graph::Type& type) {
  return outside_ && outside_->has(name) ? outside_->tensor(name) : tensor(name, type);
}

// Optimizer states are paged to the device while updates are computed. Does nothing where that would save no memory.
void Trainer::begin_updates() {
  const std::vector<arch::Parameter>& trained = method_.trained();
  std::unique_ptr<TensorPager> states;
  if (recipe::offload_settings(recipe_.offload).moments)
    states = open_states(engine_, recipe_,
                         paged_states(trained, update_groups(trained, method_.optimizer()), method_.optimizer()));
  if (!states && !pass_->always_updates_apart()) return;
  pass_->compile_before_updates();
  updates_ = std::make_unique<GroupedUpdates>(
      engine_, method_, trained, updates_clear(engine_.device(), recipe_), std::move(states), pass_->lender(),
      [this](const std::string& name, const graph::Type& type) { return tensor_or_visitor(name, type); });
}

// All updates, group by group; the gradients must be complete.
void Trainer::update(double norm) {
  set_scalar(recipe::kClip, pass_->clip(norm));
  std::function<void(int, int)> turn;
  if (outside_) turn = [this](int from, int to) { outside_->turn(from, to); };
  updates_->run(recipe::rounding_seed(recipe_.seed, done_), turn);
}

TensorPager* Trainer::store(const std::string& name) const {
  if (outside_ && outside_->parameters() && outside_->parameters()->find(name)) return outside_->parameters();
  TensorPager* const states = updates_ ? updates_->states() : nullptr;
  return states && states->find(name) ? states : nullptr;
}

graph::Type Trainer::type_of(const std::string& name) const {
  if (lies_in_parts(name)) return type_in_parts(name);
  const TensorPager* const pager = store(name);
  if (pager) return pager->find(name)->type;
  const graph::Type& own = tensors_.at(name)->type();
  return tensor_parts_ ? tensor_parts_->whole_type(name, own) : own;
}

std::map<std::string, graph::Type> Trainer::all_types() const {
  std::map<std::string, graph::Type> out;
  if (has_parts_of_parameters()) out = ranked_->parameters();
  for (const auto& [name, t] : tensors_)
    out.emplace(name, tensor_parts_ ? tensor_parts_->whole_type(name, t->type()) : t->type());
  const auto add = [&](const TensorPager& pager) {
    for (const PageGroup& g : pager.groups())
      for (const PagedTensor& v : g.tensors) out.emplace(v.name, v.type);
  };
  if (outside_ && outside_->parameters()) add(*outside_->parameters());
  if (updates_ && updates_->states()) add(*updates_->states());
  return out;
}

void Trainer::fetch(const std::string& name, std::span<uint8_t> to) const {
  if (lies_in_parts(name)) {
    const std::vector<uint8_t> whole = ranked_ ? ranked_->whole_state(name, true) : gathered_.at(name);
    LUMEN_CHECK(whole.size() == to.size());
    std::copy(whole.begin(), whole.end(), to.begin());
    return;
  }
  const auto own = [&](std::span<uint8_t> bytes) { tensors_.at(name)->download(bytes.data(), std::ssize(bytes)); };
  if (TensorPager* const pager = store(name)) return pager->read(name, to);
  if (!is_in_parts(name)) return own(to);
  std::vector<uint8_t> part(tensors_.at(name)->bytes());
  own(part);
  const std::vector<uint8_t> whole = tensor_parts_->gathered(name, type_of(name), part);
  std::copy(whole.begin(), whole.end(), to.begin());
}

void Trainer::store(const std::string& name, std::span<const uint8_t> from) {
  if (lies_in_parts(name)) return ranked_->put_state(name, from);
  if (TensorPager* const pager = store(name)) return pager->write(name, from);
  if (!is_in_parts(name)) return tensors_.at(name)->upload(from.data(), std::ssize(from));
  const std::vector<uint8_t> part = tensor_parts_->own_part(name, type_of(name), from);
  tensors_.at(name)->upload(part.data(), std::ssize(part));
}

void Trainer::put_values(const std::string& name, const graph::Shape& shape, std::span<const float> numbers,
                         const graph::Element& as) {
  const graph::Type whole{shape, as};
  if (!store(name) && !lies_in_parts(name))
    (void)tensor(name, tensor_parts_ ? tensor_parts_->own_type(name, whole) : whole);
  store(name, encoded(numbers, whole));
}

// Converts numbers to the bytes of a tensor type, and back.
std::vector<uint8_t> Trainer::encoded(std::span<const float> numbers, const graph::Type& type) const {
  const graph::Element& as = type.element;
  if (as == graph::Element{}) {
    const std::span<const uint8_t> bytes = bytes_of(numbers);
    return {bytes.begin(), bytes.end()};
  }
  if (as.format) {
    const int64_t columns = type.shape.back().number(), rows = std::ssize(numbers) / columns;
    return engine_.encode(as.format, numbers.data(), rows, columns);
  }
  LUMEN_CHECK(scalar_bytes(as.scalar) == sizeof(uint16_t));
  std::vector<uint16_t> halves(numbers.size());
  const auto round = as.scalar == Scalar::bf16 ? f32_to_bf16 : f32_to_f16;
  const auto count = std::ssize(numbers);
  parallel_for(0, count, {.is_worth = count > 65536}, [&](int64_t i) { halves[i] = round(numbers[i]); });
  const std::span<const uint8_t> bytes = bytes_of(std::span<const uint16_t>(halves));
  return {bytes.begin(), bytes.end()};
}

std::vector<float> Trainer::decoded(std::span<const uint8_t> bytes, const graph::Type& type) const {
  const graph::Element& as = type.element;
  std::vector<float> out(graph::elements(type.shape).number());
  if (as.format) {
    const int64_t columns = type.shape.back().number();
    return engine_.decode(as.format, bytes.data(), std::ssize(out) / columns, columns);
  }
  if (as == graph::Element{}) {
    std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
    return out;
  }
  std::vector<uint16_t> halves(out.size());
  std::memcpy(halves.data(), bytes.data(), halves.size() * sizeof(uint16_t));
  const auto widen = as.scalar == Scalar::bf16 ? bf16_to_f32 : f16_to_f32;
  const auto count = std::ssize(out);
  parallel_for(0, count, {.is_worth = count > 65536}, [&](int64_t i) { out[i] = widen(halves[i]); });
  return out;
}

std::vector<float> Trainer::values(const std::string& name) const {
  const graph::Type type = type_of(name);
  if (type.element == graph::Element{}) {
    std::vector<float> out(graph::elements(type.shape).number());
    fetch(name, bytes_of(std::span(out)));
    return out;
  }
  std::vector<uint8_t> bytes(graph::byte_size(type));
  fetch(name, bytes);
  return decoded(bytes, type);
}

// Stores a parameter in the recipe's type; returns the stored values where that is not f32. The rounding error is kept
// until its state exists (begin_rests).
std::vector<float> Trainer::put_held(const std::string& name, const graph::Shape& shape,
                                     std::span<const float> numbers) {
  const auto& trained = method_.trained();
  const auto p = std::find_if(trained.begin(), trained.end(), [&](const arch::Parameter& t) { return t.name == name; });
  if (p == trained.end() || !method_.held().has(name)) {
    put_values(name, shape, numbers);
    return {};
  }
  const recipe::Optimizer& optimizer = method_.optimizer();
  const graph::Element& as = method_.held().type;
  std::vector<float> kept, rest(optimizer.compensates(*p) ? numbers.size() : 0);
  if (optimizer.held().is_exact) {
    kept.resize(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) std::tie(kept[i], rest[i]) = recipe::halves_of(numbers[i]);
  } else {
    kept = decoded(encoded(numbers, {shape, as}), {shape, as});
    for (size_t i = 0; i < rest.size(); ++i) rest[i] = numbers[i] - kept[i];
  }
  if (!rest.empty())
    rests_[recipe::optimizer_state(recipe::kRest, name)] = encoded(rest, {shape, optimizer.held().rest_of(*p)});
  put_values(name, shape, kept, as);
  return kept;
}

// Initializes the compensation states with the rounding errors of the initial weights.
void Trainer::begin_rests() {
  for (const auto& [name, bytes] : rests_) {
    if (!ranked_ || !ranked_->states().contains(name)) {
      store(name, bytes);
      continue;
    }
    const graph::Type& type = ranked_->states().at(name);
    ranked_->put_state(
        name, tensor_parts_ ? tensor_parts_->own_part(name, tensor_parts_->whole_type(name, type), bytes) : bytes);
  }
  rests_.clear();
}

// Sets compensation states to zero.
void Trainer::clear_rests() {
  for (const arch::Parameter& p : method_.trained()) {
    if (!method_.optimizer().compensates(p)) continue;
    const std::vector<float> none(p.count());
    rests_[recipe::optimizer_state(recipe::kRest, p.name)] =
        encoded(none, {p.shape, method_.optimizer().held().rest_of(p)});
  }
  begin_rests();
}

}  // namespace lumen::model::train
