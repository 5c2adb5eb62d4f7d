// Training with several ranks.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "model/train/ranks/rank_layers.h"
#include "model/train/trainer/step_kinds.h"

namespace lumen::model::train {

void Trainer::meet() const {
  if (communicator_) communicator_->barrier();
}

const std::atomic<bool>* Trainer::asked_to_stop(const std::atomic<bool>* own) {
  if (!communicator_) return own;
  asked_ = own;
  return &all_asked_;
}

// Ranks run layer by layer in step: gradients are reduced once a layer's backward pass is done, and sharded parameters
// of a layer are gathered before it runs.
void Trainer::begin_layers_among_ranks() {
  const run::Device& device = engine_.device();
  if (!ranks_go_by_layers(device, recipe_)) return;
  const int rank = grid_.data->rank(), ranks = grid_.data->size();
  const std::vector<Cut> cuts = cut_parameters(method_.trained_here(), method_.optimizer(), ranks);
  LayerPlan plan = plan_rank_layers(device, model_, method_, recipe_, cuts, rank, ranks);
  if (offloads_layers(device, recipe_)) outside_ = std::make_shared<OffloadedParameters>(engine_, recipe_, plan);
  std::unique_ptr<TensorPager> kept = open_kept(engine_, recipe_, plan.kept);
  ranked_ = std::make_unique<RankedStep>(
      engine_, grid_.data, method_, recipe_,
      [this](const std::string& name, const graph::Type& type) { return tensor_or_visitor(name, type); }, plan,
      outside_);
  auto pass = std::make_unique<LayerPass>(*this, std::move(plan), ranked_->store(), std::move(kept));
  if (ranked_->holds_parts()) pass->compile_before_updates();  // otherwise begin_updates() does
  if (ranked_->holds_parameters()) pass->compile_evaluation();
  pass_ = std::move(pass);
}

bool Trainer::lies_in_parts(const std::string& name) const {
  return (ranked_ && ranked_->parameters().contains(name)) || gathered_.contains(name);
}

// The type of the whole tensor.
graph::Type Trainer::type_in_parts(const std::string& name) const {
  const std::vector<arch::Parameter>& all = method_.trained();
  const auto p = std::find_if(all.begin(), all.end(), [&](const arch::Parameter& one) {
    return one.name == name || recipe::average_of(one.name) == name;
  });
  LUMEN_CHECK(p != all.end(), "'{}' is in no parts", name);
  return method_.held().type_of(*p);
}

// Either all ranks exchange the data of a pass by layers, or none do.
void Trainer::agree_before_exchanges(const std::optional<Error>& failure) {
  if (has_parts_of_parameters()) ranked_->agree(failure);
  if (tensor_parts_) agree_among_all(failure);
}

// At the end one rank writes without the others, so it needs whole tensors.
void Trainer::gather_all() {
  for (const arch::Parameter& p : method_.trained()) {
    gathered_[p.name] = ranked_->whole_state(p.name);
    if (has_average()) gathered_[recipe::average_of(p.name)] = ranked_->whole_state(recipe::average_of(p.name));
    tensors_.erase(p.name);
    tensors_.erase(recipe::average_of(p.name));
  }
}

// The mean over all ranks' totals; an error in one rank is thrown in all.
double Trainer::mean_over_ranks(double total, double weight, const std::optional<Error>& failure) {
  if (!ranked_) {
    if (failure) throw Error(*failure);
    return total / weight;
  }
  ranked_->agree(failure);
  const std::vector<double> sums = ranked_->sum({total, weight});
  return sums[0] / sums[1];
}

// Reduces a step's numbers over all ranks, and whether any rank was asked to stop.
void Trainer::sum_over_ranks(Step& step) {
  std::vector<double> numbers = {step.loss, asked_ && asked_->load() ? 1.0 : 0.0};
  for (const auto& [name, value] : step.metrics) numbers.push_back(value);
  numbers = ranked_->sum(std::move(numbers));
  step.loss = numbers[0];
  // Ranks of other data-parallel groups may have been asked: that is shared among all ranks.
  const bool elsewhere = tensor_parts_ && asked_now(asked_);
  if (numbers[1] > 0 || elsewhere) all_asked_ = true;
  for (size_t i = 0; i < step.metrics.size(); ++i) step.metrics[i].second = numbers[2 + i];
}

std::vector<std::string> Trainer::states_of(const char* prefix) const {
  std::vector<std::string> out;
  for (auto at = tensors_.lower_bound(prefix); at != tensors_.end() && at->first.starts_with(prefix); ++at)
    out.push_back(at->first);
  return out;
}

namespace {

// The last number of a state.
run::DeviceTensorRef last_of(run::Engine& engine, const run::DeviceTensorRef& state) {
  auto* const end = reinterpret_cast<std::byte*>(state->data()) + state->bytes();
  return std::make_shared<run::DeviceTensor>(engine.device(), graph::Type{{1}, {Scalar::f32, nullptr}}, state,
                                             end - sizeof(float));
}

}  // namespace

// The maximum over a batch is the maximum over all ranks' shares.
void Trainer::share_histories() {
  const std::vector<std::string> names = states_of(graph::kHistoryState);
  if (names.empty()) return;
  std::vector<float> largest(names.size());
  for (size_t i = 0; i < names.size(); ++i)
    last_of(engine_, tensors_.at(names[i]))->download(&largest[i], sizeof(float));
  largest = largest_of(*communicator_, largest);
  for (size_t i = 0; i < names.size(); ++i) last_of(engine_, tensors_.at(names[i]))->upload(&largest[i], sizeof(float));
}

// Bounds are reduced over ranks: each rank knows only those of its parts of the weights.
void Trainer::share_bounds() {
  const std::vector<std::string> names = states_of(graph::kLargestState);
  if (names.empty()) return;
  std::vector<float> bounds(names.size(), 0);
  for (size_t i = 0; i < names.size(); ++i)
    if (ranked_->updates(names[i].substr(std::string(graph::kLargestState).size())))
      tensors_.at(names[i])->download(&bounds[i], sizeof(float));
  bounds = ranked_->largest(bounds);
  for (size_t i = 0; i < names.size(); ++i) tensors_.at(names[i])->upload(&bounds[i], sizeof(float));
}

// The loss of a rank's share is a mean over fewer positions than the batch has, so its gradients are larger by this
// factor. A checkpoint holds gradient histories as a single process has them.
float Trainer::gradient_scale(const std::string& state) const {
  const bool is_of_gradients = state.starts_with(graph::kHistoryState) && state.ends_with(".gradient");
  return is_of_gradients && method_.parts() > 1 ? data_ranks() : 1;
}

// Rounds histories to the values that a checkpoint stores, so that this run goes on exactly as a resumed one.
void Trainer::settle_histories() const {
  for (const std::string& name : states_of(graph::kHistoryState)) {
    const float scale = gradient_scale(name);
    if (scale == 1) continue;
    std::vector<float> numbers = values(name);
    for (float& x : numbers) x = x / scale * scale;
    tensors_.at(name)->upload(numbers.data(), std::ssize(numbers) * int64_t{sizeof(float)});
  }
}

// Averages that ranks hold in parts: gathered averages replace the weights, and are dropped again.
void Trainer::exchange_parts_of_average() {
  if (has_parts_of_parameters() || !gathered_.empty()) {
    for (const arch::Parameter& p : method_.trained()) {
      const std::string mean = recipe::average_of(p.name);
      if (tensors_.contains(p.name)) std::swap(tensors_.at(p.name), tensors_.at(mean));
      if (gathered_.contains(p.name)) std::swap(gathered_.at(p.name), gathered_.at(mean));
    }
    if (ranked_) ranked_->forget_parameters();
    return;
  }
  if (!averages_.empty()) {
    for (auto& [name, weight] : averages_) tensors_.at(name) = std::move(weight);
    averages_.clear();
  } else {
    for (const arch::Parameter& p : method_.trained()) {
      const std::string name = recipe::average_of(p.name);
      const std::vector<uint8_t> bytes = ranked_->whole_state(name, true);
      auto whole = std::make_shared<run::DeviceTensor>(engine_.device(), ranked_->states().at(name));
      whole->upload(bytes.data(), std::ssize(bytes));
      averages_[p.name] = std::exchange(tensors_.at(p.name), whole);
    }
  }
  bind_again();
}

}  // namespace lumen::model::train
