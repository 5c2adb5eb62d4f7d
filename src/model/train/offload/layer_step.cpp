#include "model/train/offload/layer_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "graph/ir/text.h"

namespace lumen::model::train {
namespace {

// The compile options of a whole model's evaluation.
run::CompileOptions evaluation_options(const Method& method) {
  run::CompileOptions options;
  options.symbols = method.options().symbols;
  return options;
}

}  // namespace

LayerStep::LayerStep(run::Engine& engine, const Method& method, LayerPlan plan, std::shared_ptr<ParameterStore> store,
                     TensorOf tensor, std::unique_ptr<TensorPager> kept)
    : engine_(engine),
      method_(method),
      plan_(std::move(plan)),
      tensor_(std::move(tensor)),
      store_(std::move(store)),
      kept_(std::move(kept)) {
  LUMEN_CHECK(!kept_ || plan_.keeps_outside);
}

// Compiles the largest program first; the others reuse its memory for values.
void LayerStep::compile_all(const std::vector<std::pair<const graph::Graph*, std::shared_ptr<run::Program>*>>& work,
                            const run::CompileOptions& options) {
  struct Kind {
    const graph::Graph* graph;
    std::string key;
    int64_t bytes;
  };
  const auto key_of = [&](const graph::Graph& g) {
    return fmt::format("{} {}", scalar_name(options.products.scalar), graph::print(g));
  };
  std::vector<Kind> kinds;
  for (const auto& [g, unused] : work) {
    std::string key = key_of(*g);
    const auto same = [&](const Kind& k) { return k.key == key; };
    if (by_text_.contains(key) || std::any_of(kinds.begin(), kinds.end(), same)) continue;
    kinds.push_back({g, std::move(key), engine_.arena_bytes(*g, options)});
  }
  std::stable_sort(kinds.begin(), kinds.end(), [](const Kind& a, const Kind& b) { return a.bytes > b.bytes; });
  for (const Kind& kind : kinds) {
    run::CompileOptions own = options;
    own.lender = lender_;
    const std::shared_ptr<run::Program> program = by_text_[kind.key] = engine_.compile(*kind.graph, own);
    if (!lender_) lender_ = program;
  }
  for (const auto& [g, to] : work) *to = by_text_.at(key_of(*g));
}

void LayerStep::compile() {
  std::vector<std::pair<const graph::Graph*, std::shared_ptr<run::Program>*>> work;
  programs_.resize(plan_.parts.size());
  for (size_t k = 0; k < programs_.size(); ++k) {
    LayerPlan::Part& at = plan_.parts[k];
    for (auto [g, to] : {std::pair(&at.forward, &programs_[k].forward),
                         {&at.backward, &programs_[k].backward},
                         {&at.more, &programs_[k].more}})
      if (*g) work.emplace_back(&**g, to);
  }
  compile_all(work, part_options(method_));
  for (size_t k = 0; k < programs_.size(); ++k)
    for (const auto* program : {&programs_[k].forward, &programs_[k].backward})
      if (*program) make_tensors(plan_.parts[k], k, **program);
}

// Creates states that stay on the device, and seeds, before the first step.
void LayerStep::make_tensors(const LayerPlan::Part& at, size_t part, const run::Program& program) {
  for (const std::string& input : program.input_names())
    if (input.starts_with(graph::kHistoryState) || input.starts_with(graph::kLargestState) ||
        input.starts_with(graph::kProductSeed))
      (void)tensor_(known_as(at, input), program.input_type(input));
}

run::DeviceTensorRef LayerStep::between(const std::string& name, int carried) {
  run::DeviceTensorRef& tensor = between_[name];
  if (!tensor) tensor = std::make_shared<run::DeviceTensor>(engine_.device(), plan_.carried[carried].type);
  return tensor;
}

// Tensors carried between layers: kept for the backward pass, or until the next layer has read them.
run::DeviceTensorRef LayerStep::handed(int carried, Pass pass) {
  if (pass == Pass::evaluation) return between(plan_.gradient_name(carried), carried);
  if (!plan_.keeps_outside) return between(plan_.kept_name(carried), carried);
  const size_t reader = plan_.carried[carried].to;
  const std::vector<int>& in = plan_.parts[reader].part.in;
  const std::string input = graph::carried_in(std::find(in.begin(), in.end(), carried) - in.begin());
  if (plan_.has_kept(reader, input)) return kept_->tensor(plan_.paged_name(reader, input));
  return between(plan_.gradient_name(carried), carried);
}

// The name outside of a part's graph of a parameter, its gradient, its largest magnitude, or a seed of its layer.
std::string LayerStep::known_as(const LayerPlan::Part& at, const std::string& input) const {
  if (input == std::string(graph::kProductSeed) + ".layer")
    return fmt::format("{}.{}", graph::kProductSeed, at.part.layer);
  for (const char* prefix : {"", recipe::kGradient, graph::kLargestState, graph::kHistoryState}) {
    if (!input.starts_with(prefix)) continue;
    const std::string rest = input.substr(std::string_view(prefix).size());
    const size_t operand = prefix == graph::kHistoryState ? std::min(rest.rfind('.'), rest.size()) : rest.size();
    const auto found = at.names.find(rest.substr(0, operand));
    if (found != at.names.end()) return prefix + found->second + rest.substr(operand);
  }
  return input;
}

void LayerStep::bind(const LayerPlan::Part& at, size_t number, run::Program& program, Pass pass) {
  std::map<std::string, run::DeviceTensorRef> known;
  const std::vector<std::string> inputs = program.input_names();
  const auto hand = [&](const std::string& input, const std::function<run::DeviceTensorRef()>& tensor) {
    if (std::find(inputs.begin(), inputs.end(), input) != inputs.end()) known[input] = tensor();
  };
  const auto gradient = [&](int carried) { return between(plan_.gradient_name(carried), carried); };
  for (size_t i = 0; i < at.part.in.size(); ++i) {
    hand(graph::carried_in(i), [&] { return handed(at.part.in[i], pass); });
    hand(leaving(i), [&] { return gradient(at.part.in[i]); });
  }
  for (size_t i = 0; i < at.part.out.size(); ++i) {
    hand(kept(i), [&] { return handed(at.part.out[i], pass); });
    hand(arriving(i), [&] { return gradient(at.part.out[i]); });
  }
  for (const auto& [input, unused] : at.kept)
    if (is_paged(number) && !known.contains(input))
      hand(input, [&] { return kept_->tensor(plan_.paged_name(number, input)); });
  for (const std::string& input : inputs) {
    if (const auto k = known.find(input); k != known.end()) {
      program.bind(input, k->second);
      continue;
    }
    const std::string name = known_as(at, input);
    const run::DeviceTensorRef stored = store_->tensor(number, name);
    program.bind(input, stored ? stored : tensor_(name, program.input_type(input)));
  }
}

// Runs work of this process. After a failure it is skipped where other ranks still wait for this one's exchanges.
void LayerStep::attempt(const std::function<void()>& work) {
  if (!store_->must_finish()) return work();
  if (failure_) return;
  try {
    work();
  } catch (const Error& error) {
    failure_ = error;
  }
}

void LayerStep::end_pass(std::optional<Error>* failure) {
  std::optional<Error> own = std::exchange(failure_, std::nullopt);
  const std::optional<Error> of_store = store_->end_pass();
  if (!own) own = of_store;
  if (failure)
    *failure = own;
  else if (own)
    throw Error(*own);
}

void LayerStep::forward(const LayerPlan::Part& at, size_t k, run::Program& program, Pass pass) {
  const bool keeps = pass == Pass::forward;
  store_->prefetch(k);
  if (k + 1 < plan_.parts.size()) store_->prefetch(k + 1);
  // Slots for this part's kept activations, and for those of the next part that this one writes.
  if (keeps && k == 0 && is_paged(k)) kept_->acquire_for_write(k);
  if (keeps && is_paged(k + 1)) kept_->acquire_for_write(k + 1);
  store_->acquire(k);
  attempt([&] {
    bind(at, k, program, pass);
    program.run();
  });
  store_->release(k);
  if (keeps && is_paged(k)) kept_->release(k, true);
}

void LayerStep::backward(size_t k, run::Program& program, bool first) {
  const LayerPlan::Part& at = plan_.parts[k];
  store_->prefetch(k);
  if (k > 0) store_->prefetch(k - 1);
  store_->open_gradients(k, first);
  const bool is_last = k + 1 == plan_.parts.size();  // whose activations are still resident
  if (is_paged(k) && !is_last) kept_->acquire(k);
  if (k > 0 && is_paged(k - 1)) kept_->prefetch(k - 1);
  store_->acquire(k);
  attempt([&] {
    bind(at, k, program, Pass::backward);
    program.run();
    for (const arch::Parameter& p : method_.trained()) {
      if (std::find(at.part.parameters.begin(), at.part.parameters.end(), p.name) == at.part.parameters.end()) continue;
      if (!plan_.sums_elsewhere)
        program.result(recipe::kSquares + at.part.name_of(p.name))->download(&squares_[p.name], sizeof(float));
    }
  });
  store_->release(k);
  store_->close_gradients(k);
  if (is_paged(k)) kept_->release(k, false);
}

double LayerStep::run(bool first, std::optional<Error>* failure) {
  const size_t last = plan_.parts.size() - 1;
  for (size_t k = 0; k < last; ++k) forward(plan_.parts[k], k, *programs_[k].forward, Pass::forward);
  float loss = 0;
  for (size_t k = last + 1; k-- > 0;) {
    run::Program& program = first || !programs_[k].more ? *programs_[k].backward : *programs_[k].more;
    backward(k, program, first);
    if (k == last) attempt([&] { program.result("loss")->download(&loss, sizeof loss); });
  }
  end_pass(failure);
  return loss;
}

float LayerStep::norm() const {
  bool begun = false;
  float total = 0;
  for (const arch::Parameter& p : method_.trained()) {
    const float square = squares_.at(p.name);
    total = begun ? total + square : square;
    begun = true;
  }
  return std::sqrt(total);
}

float clip_of(float norm, double max_norm) {
  if (max_norm <= 0) return 1;
  return std::min(1.0F, static_cast<float>(max_norm) / (norm + 1e-12F));
}

void LayerStep::finish() {
  programs_.clear();
  evaluated_.clear();
  by_text_.clear();
  between_.clear();
  kept_ = nullptr;
  lender_ = nullptr;
}

void LayerStep::compile_evaluation() {
  std::vector<std::pair<const graph::Graph*, std::shared_ptr<run::Program>*>> work;
  evaluated_.resize(plan_.evaluated.size());
  for (size_t k = 0; k < evaluated_.size(); ++k)
    work.emplace_back(&*plan_.evaluated[k].forward, &evaluated_[k].forward);
  compile_all(work, evaluation_options(method_));
}

run::DeviceTensorRef LayerStep::losses() {
  if (evaluated_.empty()) compile_evaluation();
  for (size_t k = 0; k < evaluated_.size(); ++k)
    forward(plan_.evaluated[k], k, *evaluated_[k].forward, Pass::evaluation);
  end_pass();
  return evaluated_.back().forward->result(arch::kResult);
}

int64_t LayerStep::own_bytes() const {
  int64_t bytes = 0;
  for (const auto& [unused, program] : by_text_) bytes += program->own_bytes();
  return bytes;
}

int64_t LayerStep::between_bytes() const {
  int64_t bytes = 0;
  for (const auto& [unused, tensor] : between_) bytes += tensor->bytes();
  if (kept_) bytes += kept_->slot_bytes();
  return bytes;
}

std::string LayerStep::explain() const {
  std::string out;
  for (const auto& [unused, program] : by_text_) out += program->explain();
  return out;
}

}  // namespace lumen::model::train
