#include "model/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>

#include "base/check.h"
#include "base/error.h"
#include "model/train/guard.h"
#include "number/scalar.h"

namespace lumen::model {
namespace {

constexpr const char* kTokens = "tokens";
constexpr const char* kTargets = "targets";
constexpr const char* kWeights = "weights";
constexpr const char* kBrokenHint =
    "the model that training begins with is broken, or --precision names a type that does not hold its values";
constexpr const char* kDivergedHint =
    "begin again from a good state with a lower learning rate, a longer warm-up or a smaller max_grad_norm";

graph::Type f32_scalar() {
  return {{}, {Scalar::f32, nullptr}};
}

std::string element_name(const Weight& w) {
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

// Mean of losses by the weights of their positions.
struct LossSum {
  double total = 0, weight = 0;
  void add(const std::vector<float>& losses, const Batch& batch) {
    for (size_t i = 0; i < losses.size(); ++i) {
      const double w = batch.weights.empty() ? 1.0 : batch.weights[i];
      if (w == 0) continue;
      total += w * losses[i];
      weight += w;
    }
  }
  double mean() const { return total / weight; }
};

double mean_loss(const std::vector<float>& losses, const Batch& batch) {
  LossSum sum;
  sum.add(losses, batch);
  return sum.mean();
}

// Rows that count nothing, so that there are as many as a program was compiled for.
void fill_up(Batch& batch, int64_t rows) {
  const auto size = static_cast<size_t>(rows * batch.length);
  batch.rows = rows;
  batch.tokens.resize(size, 0);
  batch.targets.resize(size, 0);
  batch.weights.resize(size, 0.0F);
  if (!batch.starts.empty()) batch.starts.resize(size, 0);
}

// The recipe's windows, or as many tokens as the model's context.
int64_t window_length(const Model& model, const Recipe& recipe) {
  if (recipe.length > 0) return recipe.length;
  if (!model.config.contains("context"))
    throw usage_error("the family '{}' has no key 'context': give --length", model.family->name());
  return model.integer("context");
}

}  // namespace

Trainer::Trainer(run::Engine& engine, Model model, Recipe recipe, const std::shared_ptr<const Dataset>& data)
    : Trainer(engine, model, recipe,
              window_batches(data, recipe.seed, recipe.batch, window_length(model, recipe), recipe.accumulate)) {}

Trainer::Trainer(run::Engine& engine, Model model, Recipe recipe, std::shared_ptr<const Batches> batches)
    : engine_(engine),
      model_(std::move(model)),
      recipe_(std::move(recipe)),
      batches_(std::move(batches)),
      optimizer_(model_.family->library(), recipe_.optimizer) {
  recipe_.length = window_length(model_, recipe_);
  for (const char* function : {"loss", "token_loss"})
    if (!model_.family->has_function(function))
      throw user_error("the family '{}' cannot be trained: it has no function '{}'", model_.family->name(), function);
  check_recipe(recipe_);
  for (const Parameter& p : model_.parameters) {
    if (!p.frozen) trained_.push_back(p);
  }
  const Scalar type = param_scalar(recipe_.param_type);
  held_ = holding_of(model_.parameters, type);
  std::map<std::string, int> decoded;
  for (auto& [name, w] : model_.weights) {
    const bool is_held = std::find(held_.names.begin(), held_.names.end(), name) != held_.names.end();
    std::vector<float> own;
    if (!w.is_f32()) {
      const FormatRef format = w.type.element.format;
      own = engine_.decode(format, w.bytes.data(), w.rows(), w.columns());
      if (!is_held || !is_plain(*format, type)) ++decoded[element_name(w)];
      w.type.element = {Scalar::f32, nullptr};
    } else if (is_held) {
      ++decoded[element_name(w)];
    }
    const std::span<const float> numbers = own.empty() ? w.f32() : std::span<const float>(own);
    require_finite(numbers, model_.name, name, "the model is damaged; train from another file of it");
    put_values(name, w.type.shape, numbers, is_held ? type : Scalar::f32);
    w.bytes = {};  // the tensors are the weights from here on
  }
  decoded_ = decoded_text(decoded, recipe_.param_type);

  run::CompileOptions options;
  options.symbols = {{"B", recipe_.batch}, {"T", recipe_.length}};
  options.products = product_type(recipe_.precision, model_.family->library().formats());
  // Rounding becomes part of the loss before it is differentiated: the optimizer then reads and writes the weights
  // themselves.
  graph::Graph loss = batches_->has_weights() ? weighted_loss(model_.family->function("token_loss", model_.config))
                                              : model_.family->function("loss", model_.config);
  assignments_ = fake_assignments(recipe_.quantize, model_);
  graph::assign_formats(loss, assignments_);
  learned_ = learned_fields(loss, assignments_);
  for (const LearnedField& f : learned_) {
    trained_.push_back(f.parameter);
    const std::vector<float> own = values(f.weight);
    put_values(f.parameter.name, f.parameter.shape,
               fitted_values(f, f32_weight(model_.weights.at(f.weight).type.shape, own)), Scalar::f32);
  }
  loss = graph::bind_symbols(loss, options.symbols);
  if (recipe_.accumulate == 1) {
    step_ = engine_.compile(training_step(loss, trained_, optimizer_, held_), options);
    bind_all(*step_);
  } else {
    // Weights sum to 1 over all batches of a step.
    const int parts = batches_->has_weights() ? 1 : static_cast<int>(recipe_.accumulate);
    accumulate_ = engine_.compile(accumulate_step(loss, trained_, parts, held_), options);
    run::CompileOptions apply_options;
    apply_options.symbols = options.symbols;
    apply_ = engine_.compile(apply_step(trained_, optimizer_, held_), apply_options);
    bind_all(*accumulate_);
    bind_all(*apply_);
  }
}

void Trainer::put_values(const std::string& name, const graph::Shape& shape, std::span<const float> numbers,
                         Scalar type) {
  const run::DeviceTensorRef to = tensor(name, {shape, {type, nullptr}});
  if (type == Scalar::f32) {
    to->upload(numbers.data(), static_cast<int64_t>(numbers.size_bytes()));
    return;
  }
  std::vector<uint16_t> halves(numbers.size());
  std::transform(numbers.begin(), numbers.end(), halves.begin(), f32_to_bf16);
  to->upload(halves.data(), static_cast<int64_t>(halves.size() * sizeof(uint16_t)));
}

std::vector<float> Trainer::values(const std::string& name) const {
  const run::DeviceTensor& from = *tensors_.at(name);
  const auto count = static_cast<size_t>(graph::elements(from.type().shape).number());
  std::vector<float> out(count);
  if (from.type().element.scalar == Scalar::f32) {
    from.download(out.data(), from.bytes());
    return out;
  }
  std::vector<uint16_t> halves(count);
  from.download(halves.data(), from.bytes());
  std::transform(halves.begin(), halves.end(), out.begin(), bf16_to_f32);
  return out;
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

void Trainer::set_scalar(const char* name, double value) {
  const float number = static_cast<float>(value);
  tensor(name, f32_scalar())->upload(&number, sizeof number);
}

double Trainer::scalar(run::Program& program, const char* name) {
  float number = 0;
  program.result(name)->download(&number, sizeof number);
  return number;
}

void Trainer::put_batch(const Batch& batch) {
  const graph::Shape shape{batch.rows, batch.length};
  const auto put = [&](const char* name, Scalar type, const auto& numbers) {
    LUMEN_CHECK(numbers.size() == static_cast<size_t>(batch.rows * batch.length));
    tensor(name, {shape, {type, nullptr}})
        ->upload(numbers.data(), static_cast<int64_t>(numbers.size() * sizeof(numbers[0])));
  };
  put(kTokens, Scalar::i32, batch.tokens);
  put(kTargets, Scalar::i32, batch.targets);
  if (batches_->has_weights()) put(kWeights, Scalar::f32, batch.weights);
}

Trainer::Step Trainer::step() {
  const auto start = std::chrono::steady_clock::now();
  Step result;
  result.rate = learning_rate(recipe_.schedule, done_);
  for (const auto& [name, value] : optimizer_.numbers(done_ + 1, result.rate)) set_scalar(name.c_str(), value);
  if (tensors_.contains(kRoundingSeed)) {
    const uint32_t seed = rounding_seed(recipe_.seed, done_);
    tensor(kRoundingSeed, {{}, {Scalar::u32, nullptr}})->upload(&seed, sizeof seed);
  }
  for (int64_t part = 0; part < recipe_.accumulate; ++part) {
    put_batch(batches_->training(done_, part));
    run::Program& program = step_ ? *step_ : *accumulate_;
    program.run();
    result.loss += scalar(program, "loss") / (batches_->has_weights() ? 1.0 : static_cast<double>(recipe_.accumulate));
  }
  if (apply_) apply_->run();
  result.norm = scalar(step_ ? *step_ : *apply_, "norm");
  result.tokens = recipe_.batch * recipe_.length * recipe_.accumulate;
  if (!std::isfinite(result.loss) || !std::isfinite(result.norm)) {
    diverged_ = true;
    throw Error(Exit::numeric,
                fmt::format("step {}: loss {} and gradient norm {} are not finite; training stopped", done_ + 1,
                            result.loss, result.norm),
                kDivergedHint);
  }
  ++done_;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

void Trainer::require_data() const {
  const auto vocabulary = model_.config.find("vocab");
  batches_->require(vocabulary == model_.config.end() ? std::numeric_limits<double>::infinity() : vocabulary->second);
}

// Rows x length losses of what put_batch put there.
run::Program& Trainer::evaluation() {
  if (!evaluate_) {
    run::CompileOptions options;
    options.symbols = {{"B", recipe_.batch}, {"T", recipe_.length}};
    graph::Graph losses = model_.family->function("token_loss", model_.config);
    if (held_.names.empty()) {
      options.assignments = assignments_;
    } else {
      graph::assign_formats(losses, assignments_);
      losses = hold(std::move(losses), held_);
    }
    evaluate_ = engine_.compile(losses, options);
    bind_all(*evaluate_);
  }
  return *evaluate_;
}

std::vector<float> Trainer::losses_of(const Batch& batch) {
  put_batch(batch);
  run::Program& program = evaluation();
  program.run();
  std::vector<float> losses(static_cast<size_t>(batch.rows * batch.length));
  program.result(kResult)->download(losses.data(), static_cast<int64_t>(losses.size() * sizeof(float)));
  return losses;
}

double Trainer::prove() {
  const Batch batch = batches_->training(done_, 0);
  const double loss = mean_loss(losses_of(batch), batch);
  if (std::isfinite(loss)) return loss;
  diverged_ = true;
  throw Error(Exit::numeric,
              done_ == 0
                  ? fmt::format("before the first step the loss is {}; training stopped", loss)
                  : fmt::format("after step {} the loss with the new weights is {}; training stopped", done_, loss),
              done_ == 0 ? kBrokenHint : kDivergedHint);
}

double Trainer::evaluate(int64_t rows, const std::atomic<bool>* stop) {
  const int64_t all = batches_->validation_rows();
  if (all < 1) require_data();
  rows = rows == 0 ? all : std::min(rows, all);
  LossSum sum;
  for (int64_t first = 0; first < rows; first += recipe_.batch) {
    if (stop && stop->load()) return -1;
    const int64_t count = std::min(recipe_.batch, rows - first);
    Batch batch = batches_->validation(first, count);
    batch.weights.resize(batch.tokens.size(), 1.0F);
    fill_up(batch, recipe_.batch);
    sum.add(losses_of(batch), batch);
  }
  const double loss = sum.mean();
  if (std::isfinite(loss)) return loss;
  diverged_ = true;
  throw Error(Exit::numeric, fmt::format("after step {} the validation loss is {}; training stopped", done_, loss),
              kDivergedHint);
}

void Trainer::finish() {
  step_ = accumulate_ = apply_ = evaluate_ = nullptr;
  std::erase_if(tensors_, [](const auto& t) { return is_optimizer_state(t.first); });
}

Model Trainer::model() const {
  Model copy = model_;
  for (auto& [name, w] : copy.weights) w = f32_weight(w.type.shape, values(name));
  return copy;
}

Model Trainer::rounded() const {
  Model out = model();
  for (const graph::FormatAssignment& a : assignments_) {
    Weight& w = out.weights.at(a.value);
    std::map<int, std::vector<float>> fields;
    for (const LearnedField& f : learned_) {
      if (f.weight != a.value) continue;
      fields[f.field] = values(f.parameter.name);
    }
    if (is_plain(*a.format, Scalar::f32)) continue;
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

std::string Trainer::explain() const {
  return step_ ? step_->explain() : accumulate_->explain() + apply_->explain();
}

}  // namespace lumen::model
