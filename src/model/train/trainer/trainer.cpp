#include "model/train/trainer/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/check.h"
#include "base/error.h"
#include "base/stopwatch.h"
#include "graph/grad/work.h"
#include "graph/transform/segments.h"
#include "model/recipe/groups.h"
#include "model/recipe/objective/teacher.h"
#include "model/train/method/lora.h"
#include "model/train/method/recomputation.h"
#include "model/train/ranks/rank_batches.h"
#include "model/train/trainer/guard.h"
#include "model/train/trainer/step_kinds.h"
#include "number/formula/scalar.h"

namespace lumen::model::train {
namespace {

constexpr const char* kTokens = "tokens";
constexpr const char* kTargets = "targets";
constexpr const char* kDamagedHint = "the model is damaged; train from another file of it";
constexpr uint32_t kAdapterSalt = 0x10a0000;  // differs from the salt of fresh weights
constexpr uint32_t kDropoutRun = 0xd20b0075;  // differs from the seeds of rounding
constexpr uint32_t kProductRun = 0x0b9e4a2d;  // likewise, for operands of products
constexpr uint32_t kLayerRun = 0x85ebca6b;    // likewise, for other layers
constexpr uint32_t kRankRun = 0x9e3779b1;     // differs from the seeds of other ranks

graph::Type f32_scalar() {
  return {{}, {Scalar::f32, nullptr}};
}

std::string element_text(const graph::Element& element) {
  return element.format ? element.format->name : std::string(scalar_name(element.scalar));
}

std::string element_name(const arch::Weight& w) {
  return w.is_f32() ? "f32" : w.type.element.format->name;
}

// "training in f32: 15 tensors decoded from X, 2 from Y".
std::string decoded_text(const std::map<std::string, int>& counts, const std::string& type) {
  std::string text;
  for (const auto& [format, count] : counts)
    text += text.empty() ? fmt::format("{} tensor{} decoded from {}", count, count == 1 ? "" : "s", format)
                         : fmt::format(", {} from {}", count, format);
  return text.empty() ? text : fmt::format("training in {}: {}", type, text);
}

recipe::Recipe with_length(recipe::Recipe recipe, const arch::Model& model) {
  recipe.length = window_length(model, recipe);
  check_recipe(recipe);
  return recipe;
}

// A graph of the weight, an input named as the result, and the sums of its squares along the axis that low_rank_rows
// drops.
graph::Graph row_squares(const graph::Shape& shape, bool rows) {
  graph::Graph g;
  graph::Builder build(g);
  const graph::ValueId w = build.input(arch::kResult, graph::Role::parameter, {shape, {Scalar::f32, nullptr}});
  const graph::ValueId sums = build.reduce(build.mul(w, w), graph::Reduction::sum, {rows ? 0 : -1});
  g.results = {build.reshape(sums, graph::low_rank_rows(shape, rows))};
  g.result_names = {arch::kResult};
  return g;
}

}  // namespace

Trainer::Trainer(run::Engine& engine, arch::Model model, recipe::Recipe recipe,
                 const std::shared_ptr<const data::Dataset>& data)
    : Trainer(engine, model, recipe,
              window_batches(data, recipe.seed, recipe.batch, window_length(model, recipe), recipe.accumulate)) {}

Trainer::Trainer(run::Engine& engine, arch::Model model, recipe::Recipe recipe,
                 std::shared_ptr<const data::Batches> batches, std::shared_ptr<const arch::Model> teacher,
                 std::shared_ptr<run::Communicator> ranks)
    : engine_(engine),
      model_(std::move(model)),
      communicator_(ranks && ranks->size() > 1 ? std::move(ranks) : nullptr),
      grid_(grid_of(communicator_, recipe)),
      given_(with_length(std::move(recipe), model_)),
      recipe_(recipe_of_rank(given_, communicator_ ? communicator_->size() : 1)),
      all_batches_(std::move(batches)),
      batches_(grid_.data ? rank_batches(all_batches_, grid_.data->rank(), grid_.data->size()) : all_batches_),
      teacher_(std::move(teacher)),
      method_(model_, recipe_, {batches_->has_weights(), batches_->has_starts()}, teacher_.get()) {
  engine_.device().flush_subnormals(method_.has_short_products());
  if (grid_.tensor) begin_tensor_parts();
  if (teacher_) begin_teacher();
  begin_layers();
  if (method_.is_frozen())
    begin_adapter();
  else
    begin_weights();
  compile_steps();
  work_ = method_.operations() / (grid_.tensor ? grid_.tensor->size() : 1);
  begin_rests();
  begin_average();
  begin_bounds();
}

Trainer::~Trainer() = default;

void Trainer::compile_steps() {
  const Sharding sharding = grid_.data ? sharding_of(recipe_) : Sharding::none;
  if (!pass_) {
    auto whole = std::make_unique<WholePass>(*this);
    WholePass& programs = *whole;
    pass_ = std::move(whole);
    // Ranks that share batches offload in steps by layers only.
    if (!grid_.data) begin_updates();
    if (!updates_) programs.compile(sharding);  // paging may save nothing
  } else if (sharding == Sharding::none) {
    begin_updates();  // sharded ranks have begun updates of their parts
  }
  if (grid_.data && !ranked_)
    ranked_ = std::make_unique<RankedStep>(
        engine_, grid_.data, method_, recipe_,
        [this](const std::string& name, const graph::Type& type) { return tensor(name, type); }, pass_->program().get(),
        tensor_parts_.get());
  kind_ = make_step_kind();
}

void Trainer::begin_teacher() {
  teacher_hash_ = weights_hash(*teacher_).hex();
  for (const auto& [name, w] : teacher_->weights) {
    if (w.is_f32()) require_finite(w.f32(), teacher_->name, name, kDamagedHint);
    tensors_[recipe::teacher_input(name)] =
        run::DeviceTensor::parameter(engine_.device(), w.type, w.bytes.data(), w.bytes.keeper());
  }
}

// The mean of the weights is initialized with the weights.
void Trainer::begin_average() {
  if (ranked_) ranked_->begin(true);
  if (ranked_ && ranked_->holds_parts()) return;
  for (const arch::Parameter& p : method_.trained()) {
    const auto mean = tensors_.find(recipe::average_of(p.name));
    if (mean == tensors_.end()) continue;
    const run::DeviceTensorRef own = tensors_.at(p.name);
    std::vector<uint8_t> bytes(own->bytes());
    own->download(bytes.data(), own->bytes());
    mean->second->upload(bytes.data(), own->bytes());
  }
}

// Bounds of weights are initialized with their largest magnitude (graph::kLargestState).
void Trainer::begin_bounds() {
  const std::string prefix = graph::kLargestState;
  for (auto at = tensors_.lower_bound(prefix); at != tensors_.end() && at->first.starts_with(prefix); ++at) {
    float largest = 0;
    for (const float v : values(at->first.substr(prefix.size()))) largest = std::max(largest, std::fabs(v));
    at->second->upload(&largest, sizeof largest);
  }
}

void Trainer::exchange_average() {
  LUMEN_CHECK(has_average());
  if ((ranked_ && ranked_->holds_parts()) || !gathered_.empty()) return exchange_parts_of_average();
  for (const arch::Parameter& p : method_.trained())
    std::swap(tensors_.at(p.name), tensors_.at(recipe::average_of(p.name)));
  bind_again();
}

double Trainer::evaluate_average(int64_t rows, const std::atomic<bool>* stop) {
  exchange_average();
  const std::unique_ptr<Trainer, void (*)(Trainer*)> back(this, [](Trainer* t) { t->exchange_average(); });
  return evaluate(rows, stop);
}

// Creates tensors of all weights in the recipe's types; from here on these are the weights.
void Trainer::begin_weights() {
  const recipe::Holding& held = method_.held();
  std::map<std::string, int> decoded;
  for (auto& [name, w] : model_.weights) {
    std::vector<float> own;
    if (!w.is_f32()) {
      const FormatRef format = w.type.element.format;
      own = engine_.decode(format, w.bytes.data(), w.rows(), w.columns());
      const bool stays =
          held.type.format ? held.type.format->hash == format->hash : arch::is_plain(*format, held.type.scalar);
      if (!held.has(name) || !stays) ++decoded[element_name(w)];
      w.type.element = {Scalar::f32, nullptr};
    } else if (held.has(name)) {
      ++decoded[element_name(w)];
    }
    const std::span<const float> numbers = own.empty() ? w.f32() : std::span<const float>(own);
    require_finite(numbers, model_.name, name, kDamagedHint);
    const std::vector<float> kept = put_held(name, w.type.shape, numbers);
    if (lies_in_parts(name)) put_fields(name, arch::f32_weight(w.type.shape, kept.empty() ? numbers : kept));
    w.bytes = {};
  }
  decoded_ = decoded_text(decoded, recipe_.param_type);
  for (const auto& [name, w] : model_.weights)
    if (!lies_in_parts(name)) put_fields(name, {});
  clear_activation_scales();
}

// Learned fields of a weight, fitted by its format to `held`; empty `held`: to the current tensor.
void Trainer::put_fields(const std::string& weight, const arch::Weight& held) {
  for (const LearnedField& f : method_.learned()) {
    if (f.weight != weight) continue;
    const arch::Weight there =
        held.bytes.size() == 0 ? arch::f32_weight(model_.weights.at(weight).type.shape, values(weight)) : held;
    put_values(f.parameter.name, f.parameter.shape, fitted_values(f, there));
  }
  if (held.bytes.size() == 0)
    put_scales(weight, {});
  else
    put_scales(weight, held.f32());
}

// Weights as stored in their file, in place if the device can read them there, and the adapters.
void Trainer::begin_adapter() {
  base_ = weights_hash(model_);
  if (shipping()) round_unchanged(engine_, model_, *shipping());
  for (const auto& [name, w] : model_.weights) {
    if (w.is_f32()) require_finite(w.f32(), model_.name, name, kDamagedHint);
    tensors_[name] = weight_tensor(name, w);
  }
  put_squares();
  uint32_t salt = kAdapterSalt;
  for (const arch::Parameter& p : method_.trained()) {
    ++salt;
    if (p.role == kRoleMagnitude || p.init.empty()) continue;
    const arch::Weight w = initial_weight(*model_.family, model_.config, p, recipe_.seed, salt);
    (void)put_held(p.name, p.shape, w.f32());
  }
  begin_fields();
}

// Learned fields of an adapter's rounding, fitted by the formats to the weights without it.
void Trainer::begin_fields() {
  if (!shipping()) return;
  for (const LearnedField& f : shipping()->learned()) {
    const arch::Weight& w = model_.weights.at(f.weight);
    const arch::Weight floats =
        w.is_f32() ? w
                   : arch::f32_weight(w.type.shape,
                                      engine_.decode(w.type.element.format, w.bytes.data(), w.rows(), w.columns()));
    put_values(f.parameter.name, f.parameter.shape, fitted_values(f, floats));
  }
}

// Magnitudes begin as the square root of each weight row's sum of squares.
void Trainer::put_squares() {
  std::map<std::string, std::shared_ptr<run::Program>> programs;  // by type and kind
  for (const graph::LowRank& c : method_.changes()) {
    if (!c.magnitudes) continue;
    const arch::Weight& w = model_.weights.at(c.weight);
    std::shared_ptr<run::Program>& program = programs[fmt::format("{} {}", print(w.type), c.rows)];
    if (!program) {
      graph::Graph g = row_squares(w.type.shape, c.rows);
      run::CompileOptions options;
      if (!w.is_f32())
        options.assignments = {{graph::FormatAssignment::What::stored, arch::kResult, w.type.element.format}};
      program = engine_.compile(g, options);
    }
    program->bind(program->input_names().at(0), tensors_.at(c.weight));
    program->run();
    const graph::Shape rows = graph::low_rank_rows(w.type.shape, c.rows);
    std::vector<float> squares(graph::elements(rows).number());
    program->result(arch::kResult)->download(squares.data(), squares.size() * sizeof(float));
    put_values(graph::low_rank_squares(c.weight), rows, squares);
    std::transform(squares.begin(), squares.end(), squares.begin(), [](float x) { return std::sqrt(x); });
    put_values(graph::low_rank_magnitude(c.weight), rows, squares);
  }
}

Method::Work Trainer::recomputing(Method::Work work) {
  const int64_t others = recipe_.recompute == "auto" ? beside_offloaded(engine_, model_, method_, recipe_) : 0;
  recompute(&work, recipe_.recompute, engine_.device(), others);
  return work;
}

std::shared_ptr<run::Program> Trainer::compile(const Method::Work& work) {
  run::CompileOptions options = work.options;
  options.lender = pass_->program();
  if (tensor_parts_) options.exchange = tensor_parts_->exchange(recipe_.overlap);
  std::shared_ptr<run::Program> program = engine_.compile(work.graph, options);
  bind_all(*program);
  return program;
}

run::DeviceTensorRef Trainer::tensor(const std::string& name, const graph::Type& type) {
  auto& slot = tensors_[name];
  if (!slot) slot = std::make_shared<run::DeviceTensor>(engine_.device(), type);
  LUMEN_CHECK(slot->type() == type, "input {} is used with two types", name);
  return slot;
}

void Trainer::bind_all(run::Program& program) {
  for (const std::string& name : program.input_names()) program.bind(name, tensor(name, program.input_type(name)));
}

// After tensors have taken other tensors' places.
void Trainer::bind_again() {
  for (run::Program* program : pass_->bound()) bind_all(*program);
  for (const auto& program : {evaluate_, divergence_})
    if (program) bind_all(*program);
}

void Trainer::set_scalar(const char* name, double value) {
  const float number = static_cast<float>(value);
  tensor(name, f32_scalar())->upload(&number, sizeof number);
}

void Trainer::set_seed(const char* name, uint32_t seed) {
  tensor(name, {{}, {Scalar::u32, nullptr}})->upload(&seed, sizeof seed);
}

double Trainer::scalar(run::Program& program, const char* name) {
  float number = 0;
  program.result(name)->download(&number, sizeof number);
  return number;
}

void Trainer::put_batch(const data::Batch& batch) {
  const graph::Shape shape{batch.rows, batch.length};
  const auto put = [&](const char* name, Scalar type, const auto& numbers) {
    LUMEN_CHECK(numbers.size() == static_cast<size_t>(batch.rows * batch.length));
    tensor(name, {shape, {type, nullptr}})
        ->upload(numbers.data(), static_cast<int64_t>(numbers.size() * sizeof(numbers[0])));
  };
  put(kTokens, Scalar::i32, batch.tokens);
  put(kTargets, Scalar::i32, batch.targets);
  if (batches_->has_weights()) put(kWeights, Scalar::f32, batch.weights);
  if (batches_->has_starts()) put(graph::kStarts, Scalar::i32, batch.starts);
}

// The seed of stochastic rounding in the next updates. Ranks number the elements of their parts alike, so each rank
// needs another seed.
uint32_t Trainer::update_seed() const {
  const uint32_t rank = ranked_ && ranked_->holds_parts() ? grid_.data->rank() * kRankRun : 0;
  return recipe::rounding_seed(recipe_.seed ^ rank, done_);
}

void Trainer::begin_step(Step& result) {
  result.rate = learning_rate(recipe_.schedule, done_);
  for (const auto& [name, value] : method_.optimizer().numbers(done_ + 1, result.rate)) set_scalar(name.c_str(), value);
  if (tensors_.contains(recipe::kRoundingSeed)) set_seed(recipe::kRoundingSeed, update_seed());
  result.tokens = recipe_.batch * recipe_.length * recipe_.accumulate;
  if (const recipe::Objective* objective = method_.objective())
    for (const std::string& name : objective->metrics()) result.metrics.emplace_back(name, 0);
}

// Uploads one of the batches whose gradients this process adds to the step.
void Trainer::read_part(int64_t part) {
  // Every batch has its own dropout mask.
  const int64_t ranks = data_ranks(), rank = data_rank();
  if (recipe_.adapter.dropout > 0)
    set_seed(graph::kDropoutSeed,
             recipe::rounding_seed(recipe_.seed ^ kDropoutRun, done_ * recipe_.accumulate + part * ranks + rank));
  // One seed for each layer, and one for products outside of layers.
  for (const std::string& name : states_of(graph::kProductSeed)) {
    const size_t end = std::string_view(graph::kProductSeed).size();
    const uint32_t layer = name.size() == end ? 0 : std::stoul(name.substr(end + 1)) + 1;
    set_seed(name.c_str(), recipe::rounding_seed(recipe_.seed ^ (kProductRun + layer * kLayerRun),
                                                 done_ * recipe_.accumulate + part * ranks + rank));
  }
  put_training_batch(batches_->training(state_.batch_of(done_), part));
}

Trainer::Step Trainer::step() {
  const Stopwatch watch;
  Step result;
  begin_step(result);
  try {
    for (int64_t part = 0; part < given_.accumulate; ++part) kind_->run(result, part);
    kind_->finish(result);
  } catch (const run::RankLost&) {
    throw;
  } catch (const Error&) {
    kind_->give_up();
    throw;
  }
  ++done_;
  result.seconds = watch.seconds();
  return result;
}

void Trainer::require_finite_step(const Step& step) {
  if (std::isfinite(step.loss) && std::isfinite(step.norm)) return;
  const std::string broken = broken_gradients();
  diverged_ = true;
  throw Error(Exit::numeric,
              fmt::format("step {}: loss {} and gradient norm {} are not finite{}; training stopped", done_ + 1,
                          step.loss, step.norm, broken),
              kDivergedHint);
}

// The gradients of the last step that are not finite; when they are few, the first is where the fault began.
std::string Trainer::broken_gradients() {
  std::vector<std::string> broken = kind_->broken();
  if (tensor_parts_) broken = of_all_parts(broken);
  std::string names;
  size_t count = 0;
  for (const std::string& name : broken)
    if (++count <= 3) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", name);
  if (count == 0) return {};
  if (count == method_.trained().size() && count > 3)
    return fmt::format(" (all {} gradients are not: the loss is broken)", count);
  return fmt::format(" (gradient of {}{})", names, count > 3 ? fmt::format(" and {} others", count - 3) : "");
}

int64_t Trainer::trained_count() const {
  return recipe::moving_count(method_.trained());
}

std::vector<Trainer::Held> Trainer::memory() const {
  Held trained{"trained weights"}, frozen{"frozen weights"}, moments{"optimizer"}, teacher{"teacher"},
      gradients{"gradients"}, data{"data"};
  for (const auto& [name, t] : tensors_) {
    Held& kind = recipe::is_teacher_input(name)                                                       ? teacher
                 : is_trained(name)                                                                   ? trained
                 : model_.weights.contains(name)                                                      ? frozen
                 : name.starts_with(recipe::kGradient)                                                ? gradients
                 : t->type().shape.empty() || name == kTokens || name == kTargets || name == kWeights ? data
                                                                                                      : moments;
    kind.bytes += t->bytes();
  }
  Held values{"values of a step"}, evaluation{"values of an evaluation"}, exchanges{"exchanges"};
  if (ranked_) {
    exchanges.bytes += ranked_->exchange_bytes();
    moments.bytes += ranked_->slot_bytes();
  }
  pass_->add_memory(&trained, &gradients, &values);
  if (updates_) {
    values.bytes += updates_->own_bytes();
    if (updates_->states()) moments.bytes += updates_->states()->slot_bytes();
  }
  for (const auto& program : {evaluate_, divergence_})
    if (program) evaluation.bytes += program->own_bytes();
  std::vector<Held> out;
  for (Held* kind : {&trained, &frozen, &teacher, &moments, &gradients, &values, &evaluation, &exchanges, &data})
    if (kind->bytes > 0) out.push_back(std::move(*kind));
  return out;
}

std::vector<Trainer::HeldIn> Trainer::formats() const {
  std::map<std::string, HeldIn> found;
  for (const auto& [name, type] : all_types()) {
    if (!is_trained(name) && !model_.weights.contains(name)) continue;
    const std::string format = element_text(type.element);
    HeldIn& held = found[format];
    held.format = format;
    ++held.tensors;
    held.numbers += graph::elements(type.shape).number();
    held.bytes += graph::byte_size(type);
  }
  std::vector<HeldIn> out;
  for (auto& [format, held] : found) out.push_back(std::move(held));
  return out;
}

std::vector<Trainer::Trained> Trainer::trained() const {
  std::vector<Trained> out;
  for (const arch::Parameter& p : method_.trained()) {
    Trained one;
    for (const char c : p.name) {
      const bool is_digit = c >= '0' && c <= '9', in_number = is_digit && (one.what.empty() || one.what.back() == '.');
      if (in_number || (is_digit && one.what.back() == '*')) {
        if (one.what.empty() || one.what.back() != '*') one.what += '*';
      } else {
        one.what += c;
      }
    }
    one.format = element_text(type_of(p.name).element);
    const auto same = std::find_if(out.begin(), out.end(),
                                   [&](const Trained& t) { return t.what == one.what && t.format == one.format; });
    Trained& to = same == out.end() ? out.emplace_back(std::move(one)) : *same;
    ++to.tensors;
    to.numbers += p.count();
  }
  return out;
}

void require_tokens(const data::Batches& batches, const arch::Model& model) {
  const auto vocabulary = model.config.find("vocab");
  batches.require(vocabulary == model.config.end() ? std::numeric_limits<double>::infinity() : vocabulary->second);
}

void Trainer::require_data() const {
  require_rows();
  require_tokens(*batches_, model_);
  require_validation();
}

void Trainer::finish() {
  if (has_parts_of_parameters())
    gather_all();
  else if (ranked_ && ranked_->holds_parts() && has_average())
    for (const arch::Parameter& p : method_.trained()) {
      const std::string name = recipe::average_of(p.name);
      const std::vector<uint8_t> bytes = ranked_->whole_state(name, true);
      tensors_.erase(name);
      tensor(name, ranked_->states().at(name))->upload(bytes.data(), std::ssize(bytes));
    }
  if (tensor_parts_) gather_tensor_parts();
  ranked_ = nullptr;
  updates_ = nullptr;
  kind_ = make_step_kind();
  pass_->free_programs();
  evaluate_ = reference_ = objective_loss_ = divergence_ = logits_ = nullptr;
  std::erase_if(tensors_,
                [](const auto& t) { return recipe::is_optimizer_state(t.first) && !recipe::is_average(t.first); });
}

arch::Model Trainer::model() const {
  arch::Model copy = model_;
  if (method_.is_frozen()) return copy;
  for (auto& [name, w] : copy.weights) w = arch::f32_weight(w.type.shape, values(name));
  return copy;
}

arch::Adapter Trainer::adapter() const {
  LUMEN_CHECK(method_.is_frozen(), "a run that trains all weights has no adapter");
  arch::Adapter out;
  out.name = model_.name;
  out.by_root = recipe_.adapter.rs_lora;
  for (const graph::LowRank& c : method_.changes()) {
    const auto weight = [&](const std::string& name) { return arch::f32_weight(type_of(name).shape, values(name)); };
    arch::AdapterPart part{weight(graph::low_rank_a(c.weight)), weight(graph::low_rank_b(c.weight)), c.scale};
    if (c.magnitudes) part.magnitude = weight(graph::low_rank_magnitude(c.weight));
    out.parts.emplace(c.weight, std::move(part));
  }
  return out;
}

arch::Weight Trainer::shipped(const arch::Parameter& p) const {
  LUMEN_CHECK(shipping());
  const arch::Weight& base = model_.weights.at(p.name);
  if (!shipping()->is_changed(p.name)) return base;
  arch::Adapter one;
  one.name = model_.name;
  for (const graph::LowRank& c : method_.changes()) {
    if (c.weight != p.name) continue;
    arch::AdapterPart& part = one.parts[p.name];
    for (auto [to, name] : {std::pair(&part.a, graph::low_rank_a(p.name)), {&part.b, graph::low_rank_b(p.name)}})
      *to = arch::f32_weight(type_of(name).shape, values(name));
    part.scale = c.scale;
  }
  std::map<std::string, std::vector<float>> trained;
  const auto take = [&](const std::string& name) { trained[name] = values(name); };
  for (const LearnedField& f : shipping()->learned())
    if (f.weight == p.name) take(f.parameter.name);
  if (tensors_.contains(graph::group_magnitude(p.name))) take(graph::group_magnitude(p.name));
  return shipped_weight(engine_, p, base, one, *shipping(), trained);
}

void Trainer::logits(std::span<const text::TokenId> window, std::span<float> out) {
  know_activation_scales();
  if (outside_ || has_parts_of_parameters())
    throw usage_error("a step by layers: logits need all parameters on the device");
  const auto length = std::ssize(window);
  if (!logits_ || logits_length_ != length) {
    const Method::Work work = method_.logits(length);
    logits_ = engine_.compile(work.graph, work.options);
    logits_length_ = length;
    for (const std::string& name : logits_->input_names())
      if (name != kTokens) logits_->bind(name, whole_tensor(name, logits_->input_type(name)));
  }
  const auto tokens =
      std::make_shared<run::DeviceTensor>(engine_.device(), graph::Type{{1, length}, {Scalar::i32, nullptr}});
  tokens->upload(window.data(), tokens->bytes());
  logits_->bind(kTokens, tokens);
  logits_->run();
  logits_->result(arch::kResult)->download(out.data(), out.size_bytes());
}

arch::Model Trainer::rounded() const {
  arch::Model out = read_model();
  for (const graph::FormatAssignment& a : method_.roundings()) {
    arch::Weight& w = out.weights.at(a.value);
    std::map<int, std::vector<float>> fields;
    for (const LearnedField& f : method_.learned()) {
      if (f.weight != a.value) continue;
      fields[f.field] = values(f.parameter.name);
    }
    if (arch::is_plain(*a.format, Scalar::f32)) continue;
    if (fields.empty()) {
      const std::vector<float> numbers(w.f32().begin(), w.f32().end());
      w.type.element = {Scalar::f32, a.format};
      w.bytes = engine_.encode(a.format, numbers.data(), w.rows(), w.columns());
    } else {
      w = encode_with(a.format, w, fields);
    }
  }
  return out;
}

bool Trainer::snapshot_copies(run::Engine& engine, const recipe::Recipe& recipe) {
  if (recipe.adapter.trains()) return recipe.ship.ships();
  return !recipe.quantize.empty() || recipe.products.weight_scale == "learned" ||
         !engine.device().reads_host_memory() || offloads_layers(engine.device(), recipe) ||
         recipe.param_type != scalar_name(Scalar::f32);
}

Trainer::Snapshot Trainer::snapshot() const {
  Snapshot out;
  if (shipping()) {
    out.model = model_;
    for (const arch::Parameter& p : model_.parameters)
      if (shipping()->is_changed(p.name)) out.model.weights[p.name] = shipped(p);
    return out;
  }
  if (has_adapter()) out.adapters.push_back({adapter(), 1});
  if (has_adapter() || snapshot_copies(engine_, recipe_)) {
    out.model = rounded();
    return out;
  }
  out.model = model_;
  for (auto& [name, w] : out.model.weights) {
    const run::DeviceTensorRef& t = tensors_.at(name);
    w.bytes = arch::Bytes({static_cast<const uint8_t*>(t->data()), static_cast<size_t>(t->bytes())}, t);
  }
  return out;
}

std::string Trainer::explain() const {
  return pass_->explain() + (updates_ ? updates_->explain() : "");
}

}  // namespace lumen::model::train
