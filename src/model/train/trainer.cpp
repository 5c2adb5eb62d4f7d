#include "model/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace lumen::model {
namespace {

constexpr const char* kTokens = "tokens";
constexpr const char* kTargets = "targets";

graph::Type f32_scalar() {
  return {{}, {Scalar::f32, nullptr}};
}

bool is_moment(const std::string& name) {
  return name.starts_with(kFirstMoment) || name.starts_with(kSecondMoment);
}

TensorSpec spec_of(const std::string& name, const graph::Type& type) {
  TensorSpec spec;
  spec.name = name;
  for (const graph::Dim& d : type.shape) spec.shape.push_back(d.number());
  spec.element = type.element;
  return spec;
}

}  // namespace

int64_t training_bytes(const Model& model) {
  return model.weight_count() * 4 * 4;
}

Trainer::Trainer(run::Engine& engine, Model model, Recipe recipe, std::shared_ptr<const Dataset> data)
    : engine_(engine), model_(std::move(model)), recipe_(std::move(recipe)), data_(std::move(data)) {
  if (recipe_.length == 0) recipe_.length = model_.integer("context");
  for (const auto& [name, w] : model_.weights) {
    if (!w.is_f32()) {
      throw Error(
          Exit::user,
          fmt::format("parameter '{}' is held in format '{}'; training needs f32", name, w.type.element.format->name),
          "train the original model and name the format in the recipe's [[quantize]]");
    }
  }
  if (recipe_.batch < 1 || recipe_.accumulate < 1 || recipe_.length < 1) {
    throw usage_error("batch, accumulate and length must be at least 1");
  }
  for (const Parameter& p : model_.parameters) {
    if (!p.frozen) trained_.push_back(p);
  }
  for (const auto& [name, w] : model_.weights) {
    tensors_[name] = std::make_shared<run::DeviceTensor>(engine_.device(), w.type);
    tensors_[name]->upload(w.bytes.data(), static_cast<int64_t>(w.bytes.size()));
  }

  run::CompileOptions options;
  options.symbols = {{"B", recipe_.batch}, {"T", recipe_.length}};
  options.products = product_type(recipe_.precision, model_.family->library().formats());
  // Rounding becomes part of the loss before it is differentiated: the optimizer then reads and writes the weights
  // themselves.
  graph::Graph loss = model_.family->function("loss", model_.config);
  assignments_ = fake_assignments(recipe_.quantize, model_);
  graph::assign_formats(loss, assignments_);
  learned_ = learned_fields(loss, assignments_);
  for (const LearnedField& f : learned_) {
    trained_.push_back(f.parameter);
    const std::vector<float> values = fitted_values(f, model_.weights.at(f.weight));
    tensor(f.parameter.name, {f.parameter.shape, {Scalar::f32, nullptr}})
        ->upload(values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
  }
  loss = graph::bind_symbols(loss, options.symbols);
  if (recipe_.accumulate == 1) {
    step_ = engine_.compile(training_step(loss, trained_, recipe_.adam), options);
    bind_all(*step_);
  } else {
    accumulate_ = engine_.compile(accumulate_step(loss, trained_, static_cast<int>(recipe_.accumulate)), options);
    run::CompileOptions apply_options;
    apply_options.symbols = options.symbols;
    apply_ = engine_.compile(apply_step(trained_, recipe_.adam), apply_options);
    bind_all(*accumulate_);
    bind_all(*apply_);
  }
  for (auto& [name, w] : model_.weights) w.bytes = {};  // the tensors are the weights from here on
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

void Trainer::put_batch(const std::vector<TokenId>& batch, int64_t rows) {
  const int64_t length = recipe_.length;
  std::vector<int32_t> tokens(static_cast<size_t>(rows * length)), targets(tokens.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t t = 0; t < length; ++t) {
      tokens[static_cast<size_t>(r * length + t)] = batch[static_cast<size_t>(r * (length + 1) + t)];
      targets[static_cast<size_t>(r * length + t)] = batch[static_cast<size_t>(r * (length + 1) + t + 1)];
    }
  }
  const graph::Type type{{rows, length}, {Scalar::i32, nullptr}};
  const auto bytes = static_cast<int64_t>(tokens.size() * sizeof(int32_t));
  tensor(kTokens, type)->upload(tokens.data(), bytes);
  tensor(kTargets, type)->upload(targets.data(), bytes);
}

Trainer::Step Trainer::step() {
  const auto start = std::chrono::steady_clock::now();
  Step result;
  result.rate = learning_rate(recipe_.schedule, done_);
  const double t = static_cast<double>(done_ + 1);
  set_scalar(kLearningRate, result.rate);
  set_scalar(kCorrection1, 1 - std::pow(recipe_.adam.beta1, t));
  set_scalar(kCorrection2, 1 - std::pow(recipe_.adam.beta2, t));
  for (int64_t part = 0; part < recipe_.accumulate; ++part) {
    const auto index = static_cast<uint64_t>(done_ * recipe_.accumulate + part);
    put_batch(random_batch(data_->train(), recipe_.seed, index, recipe_.batch, recipe_.length), recipe_.batch);
    run::Program& program = step_ ? *step_ : *accumulate_;
    program.run();
    result.loss += scalar(program, "loss") / static_cast<double>(recipe_.accumulate);
  }
  if (apply_) apply_->run();
  result.norm = scalar(step_ ? *step_ : *apply_, "norm");
  result.tokens = recipe_.batch * recipe_.length * recipe_.accumulate;
  if (!std::isfinite(result.loss) || !std::isfinite(result.norm)) {
    throw Error(
        Exit::numeric,
        fmt::format("step {}: loss {} and gradient norm {} are not finite; training stopped", done_ + 1, result.loss,
                    result.norm),
        "continue from the last checkpoint (--resume) with a lower --learning-rate, a longer --warmup-steps or a "
        "smaller --max-grad-norm");
  }
  ++done_;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

double Trainer::evaluate(int64_t windows) {
  const std::vector<TokenId>& text = data_->validation();
  const int64_t all = window_count(text, recipe_.length);
  windows = windows == 0 ? all : std::min(windows, all);
  if (windows < 1) {
    throw user_error("the validation text has {} tokens, fewer than one window of {}", text.size(), recipe_.length + 1);
  }
  if (!evaluate_) {
    run::CompileOptions options;
    options.assignments = assignments_;
    options.symbols = {{"B", recipe_.batch}, {"T", recipe_.length}};
    evaluate_ = engine_.compile(model_.family->function("token_loss", model_.config), options);
    bind_all(*evaluate_);
  }
  std::vector<float> losses(static_cast<size_t>(recipe_.batch * recipe_.length));
  double total = 0;
  for (int64_t first = 0; first < windows; first += recipe_.batch) {
    // The last batch is filled up with windows that are not counted.
    const int64_t rows = std::min(recipe_.batch, windows - first);
    std::vector<TokenId> batch = window_batch(text, first, rows, recipe_.length);
    batch.resize(static_cast<size_t>(recipe_.batch * (recipe_.length + 1)), 0);
    put_batch(batch, recipe_.batch);
    evaluate_->run();
    evaluate_->result(kResult)->download(losses.data(), static_cast<int64_t>(losses.size() * sizeof(float)));
    for (int64_t i = 0; i < rows * recipe_.length; ++i) total += losses[static_cast<size_t>(i)];
  }
  return total / static_cast<double>(windows * recipe_.length);
}

void Trainer::finish() {
  step_ = accumulate_ = apply_ = evaluate_ = nullptr;
  std::erase_if(tensors_, [](const auto& t) { return is_moment(t.first); });
}

Model Trainer::model() const {
  Model copy = model_;
  for (auto& [name, w] : copy.weights) {
    std::vector<uint8_t> bytes(static_cast<size_t>(tensors_.at(name)->bytes()));
    tensors_.at(name)->download(bytes.data(), static_cast<int64_t>(bytes.size()));
    w.bytes = std::move(bytes);
  }
  return copy;
}

Model Trainer::rounded() const {
  Model out = model();
  for (const graph::FormatAssignment& a : assignments_) {
    Weight& w = out.weights.at(a.value);
    std::map<int, std::vector<float>> fields;
    for (const LearnedField& f : learned_) {
      if (f.weight != a.value) continue;
      std::vector<float>& values = fields[f.field];
      values.resize(static_cast<size_t>(f.parameter.count()));
      tensors_.at(f.parameter.name)->download(values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
    }
    if (is_plain(*a.format, Scalar::f32)) continue;
    if (fields.empty()) {
      const std::vector<float> values(w.f32().begin(), w.f32().end());
      w.type.element = {Scalar::f32, a.format};
      w.bytes = engine_.encode(a.format, values.data(), w.rows(), w.columns());
    } else {
      w = encode_with(a.format, w, fields);
    }
  }
  return out;
}

bool Trainer::is_trained(const std::string& name) const {
  return std::any_of(trained_.begin(), trained_.end(), [&](const Parameter& p) { return p.name == name; });
}

std::filesystem::path Trainer::save(const std::filesystem::path& out) const {
  CheckpointContent content;
  content.state.step = done_;
  content.state.seed = recipe_.seed;
  content.state.data_position = static_cast<uint64_t>(done_ * recipe_.accumulate);
  content.state.config = describe(recipe_);
  nlohmann::json numbers;
  for (const auto& [key, value] : model_.config) numbers[key] = value;
  content.state.more["family"] = model_.family->name();
  content.state.more["config"] = numbers;
  for (const auto& [name, t] : tensors_) {
    if (is_trained(name) || model_.weights.contains(name)) content.weights.push_back(spec_of(name, t->type()));
    if (is_moment(name)) content.optimizer.push_back(spec_of(name, t->type()));
  }
  std::vector<uint8_t> buffer;
  content.fetch = [&](const TensorSpec& spec) -> std::span<const uint8_t> {
    const run::DeviceTensorRef& t = tensors_.at(spec.name);
    buffer.resize(static_cast<size_t>(t->bytes()));
    t->download(buffer.data(), t->bytes());
    return {buffer.data(), static_cast<size_t>(spec.blob_bytes())};
  };
  if (model_.tokenizer) content.files["tokenizer.json"] = model_.tokenizer->to_json();
  return save_checkpoint(out, content, static_cast<int>(recipe_.keep));
}

void Trainer::restore(const std::filesystem::path& folder) {
  const Checkpoint checkpoint = load_checkpoint(folder, model_.family->library().formats());
  const auto take = [&](const TensorFile& file, const std::string& name, run::DeviceTensor& to) {
    const StoredTensor& stored = file.get(name);
    const TensorSpec expected = spec_of(name, to.type());
    if (stored.shape != expected.shape || stored.blob_bytes() != expected.blob_bytes()) {
      throw user_error("{}: tensor '{}' has another shape than in this run; resume with the recipe it was made with",
                       folder.string(), name);
    }
    const std::vector<uint8_t> blob = stored.blob();
    to.upload(blob.data(), static_cast<int64_t>(blob.size()));
  };
  for (auto& [name, t] : tensors_) {
    if (is_trained(name) || model_.weights.contains(name)) take(*checkpoint.weights, name, *t);
    if (is_moment(name)) take(*checkpoint.optimizer, name, *t);
  }
  if (checkpoint.state.seed != recipe_.seed) {
    throw user_error("{} was made with seed {}, this run has seed {}", folder.string(), checkpoint.state.seed,
                     recipe_.seed);
  }
  done_ = checkpoint.state.step;
}

std::string Trainer::explain() const {
  return step_ ? step_->explain() : accumulate_->explain() + apply_->explain();
}

}  // namespace lumen::model
