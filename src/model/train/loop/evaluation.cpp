#include "model/train/loop/evaluation.h"

#include <algorithm>

#include "base/error.h"
#include "model/infer/generate/generate.h"
#include "model/templates/chat.h"

namespace lumen::model::train {
namespace {

constexpr const char *kValidationLoss = "validation_loss", *kValidationKl = "validation_kl";
constexpr const char* kAverageLoss = "ema.validation_loss";  // of the mean of the weights
constexpr std::string_view kTaskFile = ".toml";

bool is_cost(const std::string& metric) {
  return metric == kValidationKl || metric.ends_with("loss") || metric.ends_with("perplexity");
}

// A short text needs no KV cache of the model's whole context.
int64_t sample_context(const infer::LoadedModel& loaded, size_t prompt, int64_t made) {
  return std::min<int64_t>(infer::session_options(loaded.model(), {}).context, prompt + made + 1);
}

// The tokens of a prompt: a text to continue, or a user's message in a chat.
std::vector<text::TokenId> prompt_tokens(const text::Tokenizer& tokenizer, const std::string& prompt, bool is_chat) {
  if (!is_chat) return tokenizer.encode(prompt, {.add_special = true});
  const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", prompt}}};
  return chat_tokens(tokenizer, templates::choose_template("", tokenizer).parse(), messages,
                     nlohmann::ordered_json::object());
}

std::string go_on_with(const infer::LoadedModel& loaded, const std::string& prompt, bool is_chat, int64_t tokens,
                       const std::atomic<bool>* stop) {
  std::vector<text::TokenId> ids;
  try {
    ids = prompt_tokens(*loaded.model().tokenizer, prompt, is_chat);
  } catch (const Error& error) {
    return fmt::format("(the prompt cannot be read: {})", error.what());
  }
  if (ids.empty()) return {};
  infer::SessionOptions session;
  session.context = sample_context(loaded, ids.size(), tokens);
  if (std::ssize(ids) >= session.context) return "(the prompt is longer than the context)";
  infer::SamplerOptions greedy;
  greedy.temperature = 0;
  infer::GenerateOptions generate;
  generate.predict = std::min(tokens, session.context - std::ssize(ids));
  return infer::Generator(loaded, session, greedy, generate)
      .answer(
          ids, false, [](std::string_view) {}, [stop] { return !(stop && stop->load()); })
      .text;
}

}  // namespace

double TrainingEvaluation::figure(const std::string& metric) const {
  if (metric == kValidationLoss) return validation_loss;
  if (metric == kValidationKl && validation_kl) return *validation_kl;
  if (const auto found = figures.find(metric); found != figures.end()) return found->second;
  std::string known = kValidationLoss;
  for (const auto& [name, value] : figures) known += ", " + name;
  throw Error(Exit::usage, fmt::format("evaluations have no figure '{}'", metric), "there are " + known);
}

bool is_better(const std::string& metric, double value, double than) {
  return is_cost(metric) ? value < than : value > than;
}

TrainingEvaluator::TrainingEvaluator(const recipe::Recipe& recipe) : sample_tokens_(recipe.sample_tokens) {
  options_.data = recipe.eval_data;
  options_.limit = recipe.eval_limit;
  for (const std::string& task : recipe.eval_tasks) {
    std::string name = task;
    if (task.ends_with(kTaskFile)) {
      const std::vector<std::string> before = library_.names();
      library_.add_file(task);
      for (const std::string& one : library_.names())
        if (std::find(before.begin(), before.end(), one) == before.end()) name = one;
      if (name == task) name = std::filesystem::path(task).stem().string();
    }
    (void)library_.get(name);
    if (options_.data.empty() && library_.folder_of(name).empty())
      throw Error(Exit::usage, fmt::format("the task '{}' comes without its data", name),
                  "--eval-data DIR names their folder; docs/guide/evaluating.md names the files");
    tasks_.push_back(std::move(name));
  }
  for (size_t at = 0; at < recipe.samples.size();) {
    const size_t end = std::min(recipe.samples.find('\n', at), recipe.samples.size());
    if (end > at) prompts_.push_back(recipe.samples.substr(at, end - at));
    at = end + 1;
  }
  const bool of_task = std::any_of(tasks_.begin(), tasks_.end(), [&](const std::string& name) {
    return recipe.metric.starts_with(name + ".") || !library_.get(name).members.empty();
  });
  const bool is_known = recipe.metric == kValidationLoss || (recipe.metric == kValidationKl && recipe.eval_kl) ||
                        (recipe.metric == kAverageLoss && recipe.optimizer.ema_decay > 0);
  if (!is_known && !of_task)
    throw Error(
        Exit::usage, fmt::format("--metric {}: no evaluation has such a figure", recipe.metric),
        "it is validation_loss, validation_kl with --eval-kl, ema.validation_loss with --ema, or TASK.FIGURE of "
        "a task that --eval-tasks names");
}

void TrainingEvaluator::ask(const infer::LoadedModel& loaded, const std::atomic<bool>* stop,
                            const std::function<void(const std::string&)>& told, TrainingEvaluation& out) const {
  for (const std::string& name : tasks_) {
    const auto tell = [&](const eval::EvalProgress& p) { told(fmt::format("{} {}/{}", p.task, p.done, p.all)); };
    for (const eval::TaskResult& r :
         evaluate(loaded, library_, name, options_, tell, [stop] { return !(stop && stop->load()); }))
      for (const eval::Figure& f : r.figures) out.figures[r.task + "." + f.name] = f.value;
  }
}

std::vector<TrainingEvaluation::Sample> TrainingEvaluator::go_on(const infer::LoadedModel& loaded, bool is_chat,
                                                                 const std::atomic<bool>* stop) const {
  std::vector<TrainingEvaluation::Sample> out;
  for (const std::string& prompt : prompts_)
    out.push_back({prompt, go_on_with(loaded, prompt, is_chat, sample_tokens_, stop)});
  return out;
}

std::optional<std::vector<TrainingEvaluation::Sample>> TrainingEvaluator::samples(Trainer& trainer,
                                                                                  const std::atomic<bool>* stop) const {
  std::vector<TrainingEvaluation::Sample> out;
  if (prompts_.empty()) return out;
  const Trainer::Snapshot now = trainer.snapshot();
  try {
    out = go_on(infer::LoadedModel(trainer.engine(), now.model, now.adapters), trainer.batches().has_chats(), stop);
  } catch (const Error& e) {
    if (e.code() == Exit::interrupted) return std::nullopt;
    throw;
  }
  if (stop && stop->load()) return std::nullopt;
  return out;
}

std::optional<TrainingEvaluation> TrainingEvaluator::run(Trainer& trainer, int64_t rows, const std::atomic<bool>* stop,
                                                         const std::function<void(const std::string&)>& told) {
  TrainingEvaluation out;
  out.validation_loss = trainer.evaluate(rows, stop);
  if (out.validation_loss < 0) return std::nullopt;
  if (trainer.recipe().eval_kl) {
    out.validation_kl = trainer.divergence(rows, stop);
    if (stop && stop->load()) return std::nullopt;
  }
  if (trainer.has_average()) {
    const double loss = trainer.evaluate_average(rows, stop);
    if (loss < 0) return std::nullopt;
    out.figures[kAverageLoss] = loss;
  }
  if (tasks_.empty() && prompts_.empty()) return out;
  const Trainer::Snapshot now = trainer.snapshot();
  const infer::LoadedModel loaded(trainer.engine(), now.model, now.adapters);
  try {
    ask(loaded, stop, told, out);
    out.samples = go_on(loaded, trainer.batches().has_chats(), stop);
  } catch (const Error& e) {
    if (e.code() == Exit::interrupted) return std::nullopt;
    throw;
  }
  if (stop && stop->load()) return std::nullopt;
  return out;
}

}  // namespace lumen::model::train
