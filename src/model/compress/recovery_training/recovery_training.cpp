#include "model/compress/recovery_training/recovery_training.h"

#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/file/folder.h"
#include "base/log.h"
#include "base/structured/json_numbers.h"
#include "base/threads/team.h"
#include "graph/ir/text.h"
#include "model/compress/quantize.h"

namespace lumen::model::compress {
namespace {

constexpr double kFirst = 0.9, kSecond = 0.99;  // of Adam's moments
constexpr double kLast = 0.05;                  // of the rate, at the end
constexpr int kSaves = 10;                      // in a run
constexpr const char *kKind = "work", *kState = "state";

}  // namespace

// Trainable state of a weight or vector: logarithms of its groups' factors, or its numbers.
struct RecoveryTraining::Moving {
  std::unique_ptr<ScaledBlob> blob;  // null: a vector
  std::vector<float> x, first, second, best, slope;
  double size = 1;  // scale of a step of rate 1

  // The saved tensors.
  std::array<std::vector<float>*, 4> states() { return {&x, &first, &second, &best}; }
  std::vector<float> factors(const std::vector<float>& logarithms) const {
    std::vector<float> out(logarithms.size());
    for (size_t i = 0; i < out.size(); ++i) out[i] = std::exp(logarithms[i]);
    return out;
  }
};

RecoveryTraining::RecoveryTraining(run::Engine& engine, const arch::Model& rounded, const arch::Model* teacher,
                                   std::span<const text::TokenId> text, RecoveryTrainingOptions options)
    : engine_(engine),
      rounded_(rounded),
      options_(std::move(options)),
      loss_(engine, rounded, text, options_.run, {}, teacher),
      key_(key(text, teacher)) {
  for (const arch::Parameter& p : rounded.parameters)
    if (!p.frozen) add(p);
  if (moving_.empty())
    throw user_error("the model has nothing that can be trained while its codes stay fixed{}",
                     left_.empty() ? "" : ": " + left_[0]);
  if (options_.folder.empty()) return;
  lock_ = std::make_unique<FolderLock>(options_.folder);
  SealedFolderOptions quiet;
  quiet.quiet = true;
  files_ = std::make_unique<SealedFolder>(options_.folder, quiet);
  if (!files_->usable())
    throw Error(Exit::user,
                fmt::format("the work cannot be kept in '{}': {}", options_.folder.string(), files_->trouble()),
                "name another folder with --work-folder");
}

RecoveryTraining::~RecoveryTraining() = default;

void RecoveryTraining::add(const arch::Parameter& p) {
  const arch::Weight& w = rounded_.weights.at(p.name);
  auto m = std::make_unique<Moving>();
  if (w.is_f32()) {
    if (!options_.vectors || !p.is_vector()) return;
    m->x.assign(w.f32().begin(), w.f32().end());
    double squares = 0;
    for (const float v : m->x) squares += double{v} * v;
    m->size = std::sqrt(squares / std::max<size_t>(m->x.size(), 1));
    if (!(m->size > 0)) m->size = 0.01;
  } else {
    if (!options_.scales) return;
    const FormatRef& f = w.type.element.format;
    std::string why;
    const std::optional<ScaleFields> scales = find_scale_fields(*f, &why);
    if (!scales) {
      const std::string line = fmt::format("scales of '{}' stay: {}", f->name, why);
      if (std::ranges::find(left_, line) == left_.end()) left_.push_back(line);
      return;
    }
    m->blob = std::make_unique<ScaledBlob>(f, *scales, w.rows(), w.columns(),
                                           std::span<const uint8_t>(w.bytes.data(), w.bytes.size()));
    m->x.assign(m->blob->groups(), 0);
  }
  m->first.assign(m->x.size(), 0);
  m->second = m->slope = m->first;
  m->best = m->x;
  moving_[p.name] = std::move(m);
}

int64_t RecoveryTraining::trained() const {
  int64_t out = 0;
  for (const auto& [name, m] : moving_) out += std::ssize(m->x);
  return out;
}

std::string RecoveryTraining::key(std::span<const text::TokenId> text, const arch::Model* teacher) const {
  const RecoveryTrainingOptions& o = options_;
  std::string all;
  for (const auto& identity : o.identities) all += identity->sampled() + "\n";
  all += fmt::format("{}\n{} {} {} {} {} {} {}\n", o.source, o.scales, o.vectors, o.steps, o.rate, o.step_windows,
                     o.seed, teacher != nullptr);
  all += fmt::format("{} {} {} {}\n", o.run.length, o.run.batch, o.run.bos, int(o.run.products.scalar));
  for (const arch::Parameter& p : rounded_.parameters)
    all += fmt::format("{} {}\n", p.name, graph::print(rounded_.weights.at(p.name).type));
  all += hash_bytes(text.data(), text.size_bytes()).hex();
  return hash_text(all).hex();
}

std::vector<float> RecoveryTraining::numbers(const std::string& name) const {
  const arch::Weight& w = rounded_.weights.at(name);
  const auto found = moving_.find(name);
  if (found == moving_.end()) return values_of(engine_, w);
  const Moving& m = *found->second;
  if (!m.blob) return m.x;
  return engine_.decode(w.type.element.format, m.blob->times(m.factors(m.x)).data(), w.rows(), w.columns());
}

// Adam without decay.
void RecoveryTraining::move(double rate) {
  ++moves_;
  const double first = 1 - std::pow(kFirst, moves_), second = 1 - std::pow(kSecond, moves_);
  for (const auto& entry : moving_) {
    Moving* const m = entry.second.get();
    const float step = rate * m->size;
    parallel_for(0, std::ssize(m->x), [&](int64_t i) {
      const float g = m->slope[i];
      m->first[i] = kFirst * m->first[i] + (1 - kFirst) * g;
      m->second[i] = kSecond * m->second[i] + (1 - kSecond) * g * g;
      const double root = std::sqrt(m->second[i] / second);
      if (root > 0) m->x[i] -= step * (m->first[i] / first) / root;
    });
    m->slope.assign(m->slope.size(), 0);
  }
}

void RecoveryTraining::look(int step) {
  const double value = loss_.value([&](const std::string& name) { return numbers(name); });
  if (step == 0) before_ = after_ = value;
  if (!(value < after_)) return;
  after_ = value;
  best_step_ = step;
  for (const auto& [name, m] : moving_) m->best = m->x;
}

bool RecoveryTraining::run(const std::function<void(const RecoveryTrainingProgress&)>& progress,
                           const std::function<bool()>& stop) {
  int done = load();
  if (done == 0) look(0);
  WindowDraw draw(loss_.windows(), options_.step_windows, options_.seed);
  for (int step = 0; step < done; ++step) (void)draw.next();
  const int steps = options_.steps, between = std::max(steps / kSaves, 1);
  for (; done < steps;) {
    const double cost = loss_.gradients(
        draw.next(), [&](const std::string& name) { return numbers(name); },
        [&](const std::string& name, std::vector<float> gradient) {
          const auto found = moving_.find(name);
          if (found == moving_.end()) return;
          Moving& m = *found->second;
          if (m.blob) gradient = m.blob->sums(gradient, numbers(name));
          for (size_t i = 0; i < gradient.size(); ++i) m.slope[i] += gradient[i];
        });
    if (!std::isfinite(cost))
      throw Error(Exit::numeric, fmt::format("step {} costs {}", done + 1, cost), "a smaller --rate may help");
    move(options_.rate * (kLast + (1 - kLast) * 0.5 * (1 + std::cos(std::numbers::pi * done / steps))));
    ++done;
    if (progress) progress({done, steps, cost});
    if (is_looked_at(done, steps)) look(done);
    const bool stops = done < steps && stop && stop();
    if (stops || done == steps || done % between == 0) save(done);
    if (stops) return false;
  }
  require_same_models();
  return true;
}

void RecoveryTraining::require_same_models() {
  std::string now;
  for (const auto& identity : options_.identities) now += identity->whole() + "\n";
  if (models_.empty()) models_ = now;
  if (models_ == now) return;
  remove_folder();
  throw Error(Exit::verify,
              fmt::format("the work kept in '{}' is of other models, which equal these in the bytes that were compared "
                          "at the start; it is removed",
                          options_.folder.string()),
              "run the command again: it begins anew");
}

// Saves a line of JSON followed by all numbers, in the order of names.
void RecoveryTraining::save(int step) {
  if (!files_) return;
  require_same_models();
  const nlohmann::json told{{"key", key_},       {"models", models_}, {"step", step},
                            {"before", before_}, {"after", after_},   {"best", best_step_}};
  const auto file = files_->create(kKind, kState);
  if (!file) throw user_error("cannot write to '{}': {}", options_.folder.string(), files_->trouble());
  const std::string line = told.dump() + "\n";
  file->write(line.data(), line.size());
  for (const auto& [name, m] : moving_)
    for (const std::vector<float>* numbers : m->states()) file->write(numbers->data(), numbers->size() * sizeof(float));
  file->finish(true);
}

int RecoveryTraining::load() {
  if (!files_) return 0;
  if (options_.anew) files_->remove(kKind, kState);
  const SealedContents kept = files_->map(kKind, kState);
  if (kept.state == SealedContents::State::absent) return 0;
  const std::string file = (files_->path() / kKind / kState).string();
  if (kept.is_whole()) {
    const int step = take_state(kept.bytes);
    if (step > 0) return step;
  }
  warn(fmt::format("'{}' {}: every step is computed again", file,
                   kept.is_whole() ? "is of another version of Lumen" : kept.why));
  return 0;
}

// Returns the step; 0 where the state is malformed. Error where it is another run's.
int RecoveryTraining::take_state(std::span<const uint8_t> state) {
  const auto end = std::ranges::find(state, uint8_t{'\n'});
  const nlohmann::json told = nlohmann::json::parse(state.begin(), end, nullptr, false);
  if (end == state.end() || !told.is_object() || told.value("key", nlohmann::json()) != key_) {
    if (!told.is_object() || !told.contains("key")) return 0;
    throw Error(
        Exit::user,
        fmt::format("'{}' has the work of another run, with other models, text or options", options_.folder.string()),
        "remove the folder, name another one with --work-folder, or begin anew with --restart");
  }
  size_t bytes = 0;
  for (const auto& [name, m] : moving_)
    for (const std::vector<float>* numbers : m->states()) bytes += numbers->size() * sizeof(float);
  std::span<const uint8_t> rest = state.subspan(end - state.begin() + 1);
  if (rest.size() != bytes) return 0;
  try {
    moves_ = json_within(told, "step", 1, options_.steps, "state");
    before_ = told.at("before").get<double>();
    after_ = told.at("after").get<double>();
    best_step_ = json_within(told, "best", 0, options_.steps, "state");
    models_ = told.at("models").get<std::string>();
  } catch (const Error&) {
    return moves_ = 0;
  } catch (const nlohmann::json::exception&) {
    return moves_ = 0;
  }
  for (const auto& [name, m] : moving_)
    for (std::vector<float>* numbers : m->states()) {
      std::memcpy(numbers->data(), rest.data(), numbers->size() * sizeof(float));
      rest = rest.subspan(numbers->size() * sizeof(float));
    }
  return moves_;
}

arch::Model RecoveryTraining::result() const {
  arch::Model out = rounded_;
  for (const auto& [name, m] : moving_) {
    arch::Weight& w = out.weights.at(name);
    if (m->blob)
      w.bytes = m->blob->times(m->factors(m->best));
    else
      w = arch::f32_weight(w.type.shape, m->best);
  }
  return out;
}

void RecoveryTraining::remove_folder() {
  if (!files_) return;
  std::error_code ignored;
  remove_tree(files_->path(), ignored);
  files_.reset();
  lock_.reset();
  std::filesystem::remove(options_.folder, ignored);  // only if it is empty
}

}  // namespace lumen::model::compress
