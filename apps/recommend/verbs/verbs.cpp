// lumen recommend: what its commands share, `sample` and `eval`
#include "apps/recommend/verbs/verbs.h"

#include <algorithm>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/file/checkpoint.h"

namespace lumen::cli {
namespace {

constexpr uint64_t kLargestNames = uint64_t{1} << 30;
constexpr size_t kUsualUsers = 2000;

struct EvalFlags {
  std::string run, table = "normal";
  DataFlags data;
  int64_t users = 0, seed = 1, bits = 0;  // bits: 0: floats
  bool validation = false;
};

int eval(const Shared& shared, const EvalFlags& flags) {
  const model::arch::LibraryRef library = shared.library();
  run::Engine engine = shared.engine();
  const recommend::Split split = flags.data.read();
  const auto model = recommend::Recommender::load(engine, *library, best_of(flags.run));
  if (split.all.items() != model->items())
    throw Error(Exit::user,
                fmt::format("the data has {} items, the run was trained on {}", split.all.items(), model->items()),
                "give the data that the run was trained on");
  recommend::EvaluationOptions options{.test = !flags.validation, .users = flags.users, .seed = uint64_t(flags.seed)};
  std::string out = kQualityHead;
  out += quality_text("popularity", recommend::evaluate_popularity(split, options));
  if (!model->has_plans()) {
    if (flags.bits > 0) model->use(recommend::bit_table(fmt::format("{0},{0},{0},{0}", flags.bits)));
    out += quality_text(flags.bits == 0 ? "model" : fmt::format("model, {} bits", flags.bits),
                        recommend::evaluate(*model, split, options));
    put(out);
    return 0;
  }
  const recommend::BitTable table = recommend::bit_table(flags.table);
  model->use(table);
  const recommend::Plan usual = usual_plan(*model, split);
  const auto plans = plans_for(*model, histories_of(split, options), usual), others = permuted(plans);
  double bits = 0;
  for (const recommend::Plan& plan : plans)
    bits += recommend::average_bits(plan, model->matrices(), table) / std::ssize(plans);
  for (const auto& [name, which] : {std::pair<const char*, std::span<const recommend::Plan>>{"a plan for each", plans},
                                    {"another's plan", others},
                                    {"one plan for all", {&usual, 1}}}) {
    options.plans = which;
    out += quality_text(name, recommend::evaluate(*model, split, options));
  }
  put(out + fmt::format("table {}: {:.3f} bits for each weight on average\n", flags.table, bits));
  return 0;
}

struct SampleFlags {
  std::string out;
  int64_t users = 600, items = 200, circle = 20, seed = 1;
};

int sample(const SampleFlags& flags) {
  const recommend::Interactions made = recommend::made_up(flags.users, flags.items, flags.circle, flags.seed);
  write_file_atomic(flags.out, recommend::interactions_text(made));
  put(fmt::format("wrote {}: {} users, {} items, {} interactions\n", flags.out, made.users.size(), made.items(),
                  made.count()));
  return 0;
}

}  // namespace

void DataFlags::add(CLI::App& app) {
  add_settings(app, "data", file, "--core", core);
}

recommend::Split DataFlags::read() const {
  recommend::Interactions all = recommend::read_interactions(file);
  if (core > 0) all = recommend::filtered(std::move(all), core, core);
  note(fmt::format("{}: {} users, {} items, {} interactions", file, all.users.size(), all.items(), all.count()));
  return recommend::Split(std::move(all));
}

std::filesystem::path best_of(const std::filesystem::path& run) {
  return model::file::latest_checkpoint(run / kBestFolder) ? run / kBestFolder : run;
}

std::vector<std::string> item_names(const std::filesystem::path& run) {
  std::vector<std::string> names(1);
  const std::string text = read_file(run / kItemNames, kLargestNames);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    names.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

std::vector<recommend::ItemId> items_named(const std::string& text, const std::vector<std::string>& names) {
  std::vector<recommend::ItemId> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const auto found = std::find(names.begin() + 1, names.end(), text.substr(at, end - at));
    if (found == names.end())
      throw user_error("item '{}' is none of the run's {}", printable(text.substr(at, end - at)), names.size() - 1);
    out.push_back(found - names.begin());
    at = end + 1;
  }
  return out;
}

std::string quality_text(const std::string& name, const recommend::Evaluation& e) {
  std::string out = fmt::format("{:<34}", name);
  for (const recommend::Quality& q : {e.full, e.sampled})
    out += fmt::format(" {:>6.4f} {:>6.4f} {:>6.4f}  {:>6.4f} ", q.hit5, q.hit10, q.ndcg5, q.ndcg10);
  return out + '\n';
}

std::vector<std::vector<recommend::ItemId>> histories_of(const recommend::Split& split,
                                                         const recommend::EvaluationOptions& options) {
  std::vector<std::vector<recommend::ItemId>> out;
  for (const int64_t user : recommend::tested_users(split, options)) out.push_back(split.seen(user, options.test));
  return out;
}

std::vector<recommend::Plan> plans_for(recommend::Recommender& model,
                                       const std::vector<std::vector<recommend::ItemId>>& histories,
                                       const recommend::Plan& usual) {
  std::vector<recommend::Plan> out = model.plans(histories);
  for (size_t i = 0; i < out.size(); ++i)
    if (std::ssize(histories[i]) < kLeastKnown) out[i] = usual;
  return out;
}

std::vector<recommend::Plan> permuted(const std::vector<recommend::Plan>& plans) {
  std::vector<recommend::Plan> out = plans;
  std::rotate(out.begin(), out.begin() + std::ssize(out) / 2, out.end());
  return out;
}

recommend::Plan usual_plan(recommend::Recommender& model, const recommend::Split& split) {
  std::vector<std::vector<recommend::ItemId>> some;
  for (size_t user = 0; user < split.all.users.size() && some.size() < kUsualUsers; ++user)
    some.push_back(split.training(user));
  return model.mean_plan(some);
}

void add_recommend_sample(CLI::App& app, Command& command) {
  auto flags = std::make_shared<SampleFlags>();
  CLI::App* sub = app.add_subcommand("sample", "Write synthetic interactions, to try the other commands with");
  add_settings(*sub, "--out", flags->out, "--users", flags->users, "--items", flags->items, "--circle", flags->circle,
               "--seed", flags->seed);
  set_action(*sub, command, flags, sample);
}

void add_recommend_eval(CLI::App& app, Command& command) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* sub = app.add_subcommand("eval", "Rank held-out items: full ranking and 100 drawn items");
  add_setting(*sub, "run", flags->run);
  flags->data.add(*sub);
  add_settings(*sub, "--table", flags->table, "--bits", flags->bits, "--users", flags->users, "--seed", flags->seed,
               "--validation", flags->validation);
  set_action(*sub, command, flags, eval);
}

void add_recommend(CLI::App& app, Command& command) {
  CLI::App* sub = app.add_subcommand("recommend", "Train recommenders, and plan their channels' bits for devices");
  sub->require_subcommand(1);
  for (auto* add : {add_recommend_sample, add_recommend_train, add_recommend_eval, add_recommend_serve,
                    add_recommend_plan, add_recommend_apply, add_recommend_study})
    add(*sub, command);
}

}  // namespace lumen::cli
