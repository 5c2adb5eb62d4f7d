#include <algorithm>
#include <cmath>

#include "apps/recommend/recommend.h"
#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/structured/json.h"
#include "model/arch/model.h"
#include "model/file/checkpoint.h"
#include "model/recipe/optimizer/optimizer.h"

namespace lumen::recommend {
namespace {

constexpr const char* kPlanned = "planned";  // role of matrices
constexpr const char* kBank = "_bank";       // suffix of their names: their values in each class
constexpr int64_t kUsersAtOnce = 128;        // per batch of scores and plans
constexpr uint64_t kBatchDraws = 0x6261746368, kTableDraws = 0x7461626c65, kSeedDraws = 0x73656564;

int64_t number(const graph::Config& config, const char* key, int64_t otherwise) {
  const auto at = config.find(key);
  return at == config.end() ? otherwise : std::llround(at->second);
}

model::recipe::OptimizerSettings optimizer_settings(const RecommenderSettings& settings) {
  model::recipe::OptimizerSettings out;
  out.beta2 = settings.beta2;
  out.weight_decay = 0;
  out.max_norm = 0;
  return out;
}

// Number of matrices, channels and columns of [L, C, K] or [C, K].
struct Extents {
  int64_t count = 1, channels = 0, columns = 0;
};
Extents extents_of(const model::arch::Parameter& p) {
  if (p.shape.size() != 2 && p.shape.size() != 3)
    throw user_error("parameter '{}' of role '{}' has {} axes, not 2 or 3", p.name, kPlanned, p.shape.size());
  const size_t n = p.shape.size();
  return {n == 3 ? p.shape[0].number() : 1, p.shape[n - 2].number(), p.shape[n - 1].number()};
}

std::string settings_text(const RecommenderSettings& s) {
  nlohmann::json config = nlohmann::json::object();
  for (const auto& [key, value] : s.config) config[key] = value;
  return json_print({{"family", s.family},
                     {"config", config},
                     {"seed", s.seed},
                     {"frozen", s.is_frozen},
                     {"frozen_bits", s.frozen_bits},
                     {"by_candidates", s.by_candidates},
                     {"candidates", s.candidates},
                     {"batch", s.batch},
                     {"rate", s.rate},
                     {"beta2", s.beta2},
                     {"tau", s.tau},
                     {"last_tau", s.last_tau},
                     {"tau_steps", s.tau_steps},
                     {"tables", s.tables}},
                    "settings", 2);
}

double real(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json& value = json_member(object, key, where);
  if (!value.is_number()) throw user_error("{}: \"{}\" is no number", where, key);
  return value.get<double>();
}

RecommenderSettings parse_settings(const std::string& text, const std::string& where) {
  const nlohmann::json all = parse_json(text, where);
  RecommenderSettings s;
  s.family = json_text(all, "family", where);
  const nlohmann::json& config = json_member(all, "config", where);
  if (!config.is_object()) throw user_error("{}: \"config\" is no object", where);
  for (const auto& [key, value] : config.items()) s.config[key] = real(config, key.c_str(), where);
  const auto whole = [&](const char* key, int64_t least, int64_t most) {
    const int64_t value = json_integer(all, key, where);
    if (value < least || value > most) throw user_error("{}: \"{}\" is {}", where, key, value);
    return value;
  };
  s.seed = whole("seed", 0, 0xffffffff);
  s.is_frozen = json_boolean(all, "frozen", false, where);
  s.by_candidates = json_boolean(all, "by_candidates", false, where);
  s.frozen_bits = whole("frozen_bits", 0, kMostBits);
  s.candidates = whole("candidates", 0, int64_t{1} << 30);
  s.batch = whole("batch", 1, 1 << 16);
  s.tau_steps = whole("tau_steps", 1, int64_t{1} << 40);
  for (const auto& [key, to] :
       {std::pair("rate", &s.rate), {"beta2", &s.beta2}, {"tau", &s.tau}, {"last_tau", &s.last_tau}})
    *to = real(all, key, where);
  s.tables.clear();
  for (const nlohmann::json& name : json_member(all, "tables", where)) {
    if (!name.is_string()) throw user_error("{}: \"tables\" has an entry that is not a string", where);
    s.tables.push_back(name.get<std::string>());
  }
  return s;
}

}  // namespace

Recommender::Recommender(run::Engine& engine, const model::arch::Library& library, RecommenderSettings settings)
    : engine_(engine), library_(library), settings_(std::move(settings)), family_(library.family(settings_.family)) {
  const char* loss_name = settings_.by_candidates ? "loss_candidates" : "loss_pairs";
  for (const char* name : {loss_name, "scores"})
    if (!family_->has_function(name))
      throw Error(Exit::usage, fmt::format("family '{}' has no function '{}'", settings_.family, name),
                  "recommenders are described in docs/guide/recommend.md");
  settings_.config = family_->config("", settings_.config);
  measured_ = settings_.config;
  if (measured_.contains("dropout")) measured_["dropout"] = 0;
  const bool plans = family_->has_function("plan") && family_->has_function("profile");
  form_ = {number(measured_, "length", 0), number(measured_, "targets", 0), plans ? number(measured_, "recent", 0) : 0,
           settings_.by_candidates, settings_.candidates};
  if (form_.length < 1 || number(measured_, "items", 0) < 1)
    throw user_error("family '{}' has no config keys 'items' and 'length' above 0", settings_.family);
  parameters_ = family_->parameters(settings_.config);
  uint32_t salt = 0;
  for (const model::arch::Parameter& p : parameters_) {
    const model::arch::Weight w = model::arch::initial_weight(*family_, settings_.config, p, settings_.seed, ++salt);
    put_weight(p.name, w.f32());
    if (p.role == kPlanned) {
      const Extents e = extents_of(p);
      for (int64_t i = 0; i < e.count; ++i) {
        matrices_.push_back({fmt::format("{}.{}", p.name, i), e.channels, e.columns});
        const auto part = w.f32().subspan(i * e.channels * e.columns, e.channels * e.columns);
        masters_.emplace_back(part.begin(), part.end());
      }
    }
    if (!p.frozen && !(settings_.is_frozen && p.role == kPlanned)) trained_.push_back(p);
  }
  optimizer_ = std::make_shared<model::recipe::Optimizer>(library_, optimizer_settings(settings_));
  if (settings_.is_frozen && settings_.frozen_bits > 0 && !has_plans()) {
    put_matrices(settings_.frozen_bits);
    for (size_t m = 0; m < masters_.size(); ++m) masters_[m] = in_bits(m, settings_.frozen_bits);
    in_bits_.clear();
  }
}

Recommender::~Recommender() = default;

int64_t Recommender::items() const {
  return number(measured_, "items", 0);
}
int64_t Recommender::length() const {
  return form_.length;
}
int64_t Recommender::trained_numbers() const {
  int64_t sum = 0;
  for (const model::arch::Parameter& p : trained_) sum += p.count();
  return sum;
}

void Recommender::put_weight(const std::string& name, std::span<const float> numbers) {
  const auto p = std::find_if(parameters_.begin(), parameters_.end(),
                              [&](const model::arch::Parameter& q) { return q.name == name; });
  LUMEN_CHECK(p != parameters_.end() && p->count() == std::ssize(numbers), "{}", name);
  run::DeviceTensorRef& tensor = tensors_[name];
  if (!tensor) tensor = std::make_shared<run::DeviceTensor>(engine_.device(), graph::Type{p->shape, {}});
  tensor->upload(numbers.data(), numbers.size_bytes());
}

std::vector<float> Recommender::weight(const std::string& name) const {
  const run::DeviceTensorRef& tensor = tensors_.at(name);
  std::vector<float> out(tensor->bytes() / sizeof(float));
  tensor->download(out.data(), tensor->bytes());
  return out;
}

std::vector<float> Recommender::matrix(size_t index) const {
  size_t at = 0;
  for (const model::arch::Parameter& p : parameters_) {
    if (p.role != kPlanned) continue;
    const Extents e = extents_of(p);
    if (index - at >= size_t(e.count)) {
      at += e.count;
      continue;
    }
    const std::vector<float> all = weight(p.name);
    const auto begin = all.begin() + (index - at) * e.channels * e.columns;
    return {begin, begin + e.channels * e.columns};
  }
  LUMEN_CHECK(false, "matrix {}", index);
  return {};
}

uint64_t Recommender::backbone() const {
  std::string all = settings_.family;
  for (const auto& [key, value] : measured_) all += fmt::format(" {}={}", key, value);
  for (const std::vector<float>& m : masters_)
    all.append(reinterpret_cast<const char*>(m.data()), m.size() * sizeof(float));
  return hash_text(all).low;
}

const std::vector<float>& Recommender::in_bits(size_t matrix, int bits) {
  std::vector<float>& out = in_bits_[{matrix, bits}];
  if (!out.empty()) return out;
  const PlannedMatrix& m = matrices_[matrix];
  for (int64_t c = 0; c < m.channels; ++c) {
    const QuantizedChannel q = quantize_channel(std::span(masters_[matrix]).subspan(c * m.columns, m.columns), bits);
    for (int64_t k = 0; k < m.columns; ++k) out.push_back(q.value(k));
  }
  return out;
}

void Recommender::put_matrices(int bits) {
  size_t at = 0;
  for (const model::arch::Parameter& p : parameters_) {
    if (p.role != kPlanned) continue;
    std::vector<float> all;
    for (int64_t i = 0; i < extents_of(p).count; ++i, ++at) {
      const std::vector<float>& one = bits > 0 ? in_bits(at, bits) : masters_[at];
      all.insert(all.end(), one.begin(), one.end());
    }
    put_weight(p.name, all);
  }
}

void Recommender::fill_banks(const BitTable& table) {
  const std::string text = fmt::format("{}", fmt::join(table.bits, ","));
  if (text == table_) return;
  table_ = text;
  size_t at = 0;
  for (const model::arch::Parameter& p : parameters_) {
    if (p.role != kPlanned) continue;
    std::vector<float> all;
    for (int64_t i = 0; i < extents_of(p).count; ++i, ++at)
      for (const int bits : table.bits) {
        const std::vector<float>& one = in_bits(at, bits);
        all.insert(all.end(), one.begin(), one.end());
      }
    put_weight(p.name + kBank, all);
  }
}

void Recommender::use(const BitTable& table) {
  if (has_plans()) return fill_banks(table);
  if (table_.empty()) {
    for (size_t m = 0; m < matrices_.size(); ++m) masters_[m] = matrix(m);
    in_bits_.clear();
  }
  table_ = table.name;
  put_matrices(table.bits.back());
}

void Recommender::use_masters() {
  if (has_plans() || table_.empty()) return;
  table_.clear();
  put_matrices(0);
}

void Recommender::apply(const Plan& plan, const BitTable& table) {
  require_plan_of(plan, matrices_);
  if (!measured_.contains("applied")) throw user_error("family '{}' has no config key 'applied'", settings_.family);
  measured_["applied"] = 1;
  is_applied_ = true;
  size_t at = 0, channel = 0;
  for (const model::arch::Parameter& p : parameters_) {
    if (p.role != kPlanned) continue;
    std::vector<float> all;
    for (int64_t i = 0; i < extents_of(p).count; ++i, ++at) {
      const PlannedMatrix& m = matrices_[at];
      for (int64_t c = 0; c < m.channels; ++c) {
        const std::vector<float>& from = in_bits(at, table.bits[plan.classes[channel++]]);
        all.insert(all.end(), from.begin() + c * m.columns, from.begin() + (c + 1) * m.columns);
      }
    }
    put_weight(p.name, all);
  }
}

Recommender::State Recommender::state() const {
  State out;
  for (const auto& [name, tensor] : tensors_) out[name] = weight(name);
  return out;
}

void Recommender::set_state(const State& state) {
  for (const auto& [name, tensor] : tensors_) {
    const auto at = state.find(name);
    if (at == state.end())
      tensor->clear();  // an optimizer state that was not saved
    else
      tensor->upload(at->second.data(), tensor->bytes());
  }
}

model::device_tensors::BoundProgram Recommender::compile(const graph::Graph& g, const graph::Bindings& symbols) {
  return model::device_tensors::bound_program(
      engine_, g, symbols, [&](const std::string& name) -> run::DeviceTensorRef* {
        const bool is_parameter = std::any_of(parameters_.begin(), parameters_.end(),
                                              [&](const model::arch::Parameter& p) { return p.name == name; });
        return is_parameter || model::recipe::is_optimizer_state(name) ? &tensors_[name] : nullptr;
      });
}

model::device_tensors::BoundProgram& Recommender::loss(const graph::Bindings& symbols) {
  std::string key = "loss";
  for (const auto& [symbol, value] : symbols) key += fmt::format(" {}={}", symbol, value);
  model::device_tensors::BoundProgram& found = programs_[key];
  if (found.program) return found;
  graph::Graph g = family_->function(settings_.by_candidates ? "loss_candidates" : "loss_pairs", settings_.config);
  g = model::recipe::training_step(graph::bind_symbols(std::move(g), symbols), trained_, *optimizer_);
  found = compile(g, {});
  return found;
}

model::device_tensors::BoundProgram& Recommender::function(const std::string& name, int64_t rows) {
  model::device_tensors::BoundProgram& found = programs_[fmt::format("{} {}", name, rows)];
  if (!found.program)
    found = compile(family_->function(name, measured_), {{"B", rows}, {"T", form_.length}, {"P", form_.recent}});
  return found;
}

double Recommender::step(const ExampleBatch& batch) {
  model::device_tensors::BoundProgram& c = loss(batch.symbols);
  std::array<float, kClasses> bits{};
  if (has_plans()) {
    const size_t drawn = Draws(settings_.seed, kTableDraws, steps_).below(std::ssize(settings_.tables));
    const BitTable table = bit_table(settings_.tables[drawn]);
    fill_banks(table);
    std::copy(table.bits.begin(), table.bits.end(), bits.begin());
  }
  for (const auto& [name, numbers] : batch.integers) c.put(name, numbers.data(), std::ssize(numbers) * sizeof(int32_t));
  for (const auto& [name, numbers] : batch.numbers) c.put(name, numbers.data(), std::ssize(numbers) * sizeof(float));
  const double done = std::min(1.0, 1.0 * steps_ / settings_.tau_steps);
  const float tau = settings_.tau * std::pow(settings_.last_tau / settings_.tau, done);
  const uint32_t seed = Draws(settings_.seed, kSeedDraws, steps_).next() >> 32;
  c.put("tau", &tau, sizeof tau);
  c.put("bits", bits.data(), sizeof bits);
  c.put("seed", &seed, sizeof seed);
  for (const auto& [name, value] : optimizer_->numbers(steps_ + 1, settings_.rate)) {
    const float one = value;
    c.put(name, &one, sizeof one);
  }
  c.program->run();
  const double loss = c.finite_loss(steps_ + 1);
  ++steps_;
  return loss;
}

std::optional<double> Recommender::train_epoch(const Split& split, const std::atomic<bool>* stop) {
  use_masters();
  const std::vector<UserWindow> all = epoch_examples(split, form_, settings_.seed, epochs_);
  if (all.empty())
    throw Error(Exit::user, "no user has two interactions that training may see", "a user needs four in all");
  const int64_t batches = (std::ssize(all) + settings_.batch - 1) / settings_.batch;
  double sum = 0;
  std::vector<UserWindow> chosen(settings_.batch);
  for (int64_t b = 0; b < batches; ++b) {
    if (stop && *stop) return std::nullopt;
    // The last batch is padded from the front.
    for (int64_t i = 0; i < settings_.batch; ++i) chosen[i] = all[(b * settings_.batch + i) % std::ssize(all)];
    sum += step(training_batch(split, form_, chosen, Draws(settings_.seed, kBatchDraws, steps_)));
  }
  ++epochs_;
  return sum / batches;
}

double Recommender::fine_tune(const Split& split, int64_t user) {
  if (split.training(user).size() < 2)
    throw Error(Exit::user, fmt::format("user {} has no two interactions that training may see", user),
                "leave such a user's network as it is");
  const UserWindow one = last_window(split, form_, user);
  return step(training_batch(split, form_, {&one, 1}, Draws(settings_.seed, kBatchDraws, steps_)));
}

std::vector<float> Recommender::profiles(std::span<const std::vector<ItemId>> histories) {
  LUMEN_CHECK(has_plans());
  const int64_t rows = histories.size() == 1 ? 1 : kUsersAtOnce;
  model::device_tensors::BoundProgram& c = function("profile", rows);
  std::vector<float> out;
  std::vector<int32_t> recent(rows * form_.recent);
  const int64_t width = c.program->result(model::arch::kResult)->bytes() / (rows * int64_t{sizeof(float)});
  std::vector<float> some(rows * width);
  for (size_t first = 0; first < histories.size(); first += rows) {
    const size_t n = std::min<size_t>(rows, histories.size() - first);
    std::fill(recent.begin(), recent.end(), 0);
    for (size_t i = 0; i < n; ++i)
      put_last(histories[first + i], std::span(recent).subspan(i * form_.recent, form_.recent));
    c.put("recent", recent.data(), std::ssize(recent) * sizeof(int32_t));
    c.program->run();
    c.program->result(model::arch::kResult)->download(some.data(), std::ssize(some) * sizeof(float));
    out.insert(out.end(), some.begin(), some.begin() + n * width);
  }
  return out;
}

std::vector<Plan> Recommender::plans_of(const std::vector<float>& profiles, int64_t users) {
  const int64_t rows = users == 1 ? 1 : kUsersAtOnce;
  model::device_tensors::BoundProgram& c = function("plan", rows);
  Plan empty;
  for (const PlannedMatrix& m : matrices_) empty.layers.push_back(m.channels);
  const int64_t width = std::ssize(profiles) / users;
  const int64_t channels = c.program->result(model::arch::kResult)->bytes() / (rows * int64_t{sizeof(int32_t)});
  std::vector<int32_t> classes(rows * channels);
  std::vector<float> some(rows * width);
  std::vector<Plan> out;
  for (int64_t first = 0; first < users; first += rows) {
    const int64_t n = std::min(rows, users - first);
    std::copy_n(profiles.begin() + first * width, n * width, some.begin());
    c.put("z", some.data(), std::ssize(some) * sizeof(float));
    c.program->run();
    c.program->result(model::arch::kResult)->download(classes.data(), std::ssize(classes) * sizeof(int32_t));
    for (int64_t i = 0; i < n; ++i) {
      Plan& plan = out.emplace_back(empty);
      plan.classes.assign(classes.begin() + i * channels, classes.begin() + (i + 1) * channels);
      require_plan_of(plan, matrices_);
    }
  }
  return out;
}

std::vector<Plan> Recommender::plans(std::span<const std::vector<ItemId>> histories) {
  if (histories.empty()) return {};
  return plans_of(profiles(histories), std::ssize(histories));
}

Plan Recommender::mean_plan(std::span<const std::vector<ItemId>> histories) {
  const std::vector<float> all = profiles(histories);
  const size_t width = all.size() / std::max<size_t>(1, histories.size());
  std::vector<double> sum(width);
  for (size_t i = 0; i < all.size(); ++i) sum[i % width] += all[i];
  std::vector<float> mean;
  for (const double s : sum) mean.push_back(s / std::ssize(histories));
  return plans_of(mean, 1).front();
}

std::vector<float> Recommender::scores(std::span<const std::vector<ItemId>> histories,
                                       std::span<const Plan* const> plans) {
  LUMEN_CHECK(has_plans() && !is_applied_ ? plans.size() == 1 || plans.size() == histories.size() : plans.empty());
  const int64_t rows = histories.size() == 1 ? 1 : kUsersAtOnce, width = items() + 1;
  model::device_tensors::BoundProgram& c = function("scores", rows);
  std::vector<float> out(histories.size() * width), some(rows * width);
  std::vector<int32_t> seen(rows * form_.length), classes;
  for (size_t first = 0; first < histories.size(); first += rows) {
    const size_t n = std::min<size_t>(rows, histories.size() - first);
    std::fill(seen.begin(), seen.end(), 0);
    classes.clear();
    for (int64_t i = 0; i < rows; ++i) {
      const size_t user = std::min<size_t>(first + i, histories.size() - 1);
      put_last(histories[user], std::span(seen).subspan(i * form_.length, form_.length));
      if (plans.empty()) continue;
      const Plan& plan = *plans[plans.size() == 1 ? 0 : user];
      classes.insert(classes.end(), plan.classes.begin(), plan.classes.end());
    }
    c.put("items", seen.data(), std::ssize(seen) * sizeof(int32_t));
    if (!plans.empty()) c.put("classes", classes.data(), std::ssize(classes) * sizeof(int32_t));
    c.program->run();
    c.program->result(model::arch::kResult)->download(some.data(), std::ssize(some) * sizeof(float));
    std::copy_n(some.begin(), n * width, out.begin() + first * width);
  }
  return out;
}

std::filesystem::path Recommender::save(const std::filesystem::path& folder, int keep) const {
  model::file::CheckpointContent content;
  content.state.step = steps_;
  content.state.seed = settings_.seed;
  content.state.config = settings_text(settings_);
  content.state.more = {{"epochs", epochs_}};
  // Banks are recomputed from the matrices.
  model::device_tensors::add_tensors(content, tensors_, [](const std::string& name) { return !name.ends_with(kBank); });
  return model::file::save_checkpoint(folder, content, keep);
}

void Recommender::restore(const std::filesystem::path& folder) {
  const model::file::Checkpoint checkpoint = model::file::load_checkpoint(folder, library_.formats());
  for (const model::arch::Parameter& p : parameters_)
    if (!p.name.ends_with(kBank))
      model::device_tensors::take_tensor(tensors_, engine_, checkpoint.weights->get(p.name), folder);
  for (const model::file::StoredTensor& stored : checkpoint.optimizer->tensors())
    model::device_tensors::take_tensor(tensors_, engine_, stored, folder);
  steps_ = checkpoint.state.step;
  epochs_ = json_integer(checkpoint.state.more, "epochs", folder.string());
  for (size_t m = 0; m < matrices_.size(); ++m) masters_[m] = matrix(m);
}

std::unique_ptr<Recommender> Recommender::load(run::Engine& engine, const model::arch::Library& library,
                                               const std::filesystem::path& folder) {
  const auto newest = model::file::latest_checkpoint(folder);
  if (!newest)
    throw Error(Exit::user, fmt::format("{}: no checkpoint of a recommender", folder.string()),
                "`lumen recommend train` makes one");
  const model::file::Checkpoint checkpoint = model::file::load_checkpoint(*newest, library.formats());
  auto out = std::make_unique<Recommender>(engine, library, parse_settings(checkpoint.state.config, newest->string()));
  out->restore(*newest);
  return out;
}

}  // namespace lumen::recommend
