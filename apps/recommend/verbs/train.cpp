// lumen recommend train DATA -o RUN
#include <algorithm>
#include <cmath>

#include "apps/recommend/verbs/verbs.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/file/lock.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "cli/command.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/file/checkpoint.h"

namespace lumen::cli {
namespace {

struct RecommendTrainFlags {
  DataFlags data;
  std::string out, family, objective = "pairs";
  std::vector<std::string> config;
  recommend::RecommenderSettings settings;
  int64_t epochs = 20, eval_every = 5, eval_users = 2000, patience = 0;
  bool resume = false;
};

// The quality that runs are compared by, on validation.
double measured(recommend::Recommender& model, const recommend::Split& split, const RecommendTrainFlags& flags) {
  recommend::EvaluationOptions options{.test = false, .users = flags.eval_users, .stop = &interrupted()};
  std::vector<recommend::Plan> plans;
  if (model.has_plans()) {
    model.use(recommend::bit_table("normal"));
    plans = plans_for(model, histories_of(split, options), usual_plan(model, split));
    options.plans = plans;
  }
  return recommend::evaluate(model, split, options).full.ndcg10;
}

void save_best(recommend::Recommender& model, const recommend::Split& split, const std::filesystem::path& out) {
  model.save(out / kBestFolder, 1);
  if (model.has_plans()) write_file_atomic(out / kUsualPlan, recommend::pack_plan(usual_plan(model, split)));
}

std::string names_text(const recommend::Interactions& all) {
  std::string out;
  for (int64_t i = 1; i <= all.items(); ++i) out += all.item_names[i] + "\n";
  return out;
}

int train_epochs(recommend::Recommender& model, const recommend::Split& split, const RecommendTrainFlags& flags) {
  const std::filesystem::path out = flags.out;
  double best =
      model.epochs() > 0
          ? measured(*recommend::Recommender::load(model.engine(), model.library(), best_of(out)), split, flags)
          : -1;
  int64_t without = 0;
  Progress progress;
  while (model.epochs() < flags.epochs) {
    const Stopwatch watch;
    const auto loss = model.train_epoch(split, &interrupted());
    if (!loss) {
      note(fmt::format("interrupted; --resume goes on from epoch {}",
                       model.epochs() / flags.eval_every * flags.eval_every));
      return exit_code(Exit::interrupted);
    }
    const double seconds = watch.seconds();
    std::string line =
        fmt::format("epoch {}/{} | loss {:.4f} | {}", model.epochs(), flags.epochs, *loss, format_duration(seconds));
    if (model.epochs() % flags.eval_every != 0 && model.epochs() != flags.epochs) {
      progress.update(line);
    } else {
      const double now = measured(model, split, flags);
      if (interrupted()) return exit_code(Exit::interrupted);
      model.save(out);
      line += fmt::format(" | validation NDCG@10 {:.4f}", now);
      without = now > best ? 0 : without + 1;
      if (now > best) {
        best = now;
        save_best(model, split, out);
      }
      put(line + "\n");
      if (flags.patience > 0 && without >= flags.patience) {
        note(fmt::format("no better for {} evaluations", without));
        break;
      }
    }
  }
  put(fmt::format("wrote {}: best validation NDCG@10 {:.4f}\n", (out / kBestFolder).string(), best));
  return 0;
}

int recommend_train(const Shared& shared, RecommendTrainFlags flags) {
  const std::filesystem::path out = flags.out;
  const model::arch::LibraryRef library = shared.library();
  run::Engine engine = shared.engine();
  const recommend::Split split = flags.data.read();
  const FolderLock lock(out);
  std::unique_ptr<recommend::Recommender> model;
  if (flags.resume) {
    model = recommend::Recommender::load(engine, *library, out);
    if (model->items() != split.all.items() || read_file(out / kItemNames) != names_text(split.all))
      throw user_error("the data are not those that {} was trained on", flags.out);
  } else {
    if (model::file::latest_checkpoint(out))
      throw Error(Exit::usage, fmt::format("{} holds a run", flags.out),
                  "--resume goes on with it; or name another folder");
    if (flags.family.empty()) throw Error(Exit::usage, "no --family", "a recommender's, see docs/guide/recommend.md");
    for (const auto& [key, value] : named_numbers(flags.config)) flags.settings.config[key] = value;
    flags.settings.config["items"] = split.all.items();
    flags.settings.family = flags.family;
    flags.settings.by_candidates = flags.objective == "candidates";
    for (const std::string& table : flags.settings.tables) (void)recommend::bit_table(table);
    model = std::make_unique<recommend::Recommender>(engine, *library, flags.settings);
    write_file_atomic(out / kItemNames, names_text(split.all));
  }
  note(fmt::format("{}: {} numbers are trained", model->settings().family, model->trained_numbers()));
  catch_interrupts();
  const SavesWhenStopped epochs;
  return train_epochs(*model, split, flags);
}

}  // namespace

void add_recommend_train(CLI::App& app, Command& command) {
  auto flags = std::make_shared<RecommendTrainFlags>();
  CLI::App* sub = app.add_subcommand("train", "Train a recommender on interactions");
  flags->data.add(*sub);
  recommend::RecommenderSettings& s = flags->settings;
  add_settings(*sub, "--out", flags->out, "--family", flags->family, "--config", flags->config, "--objective",
               flags->objective, "--candidates", s.candidates, "--epochs", flags->epochs, "--batch", s.batch, "--lr",
               s.rate, "--seed", s.seed, "--freeze", s.is_frozen, "--freeze-bits", s.frozen_bits, "--tables", s.tables,
               "--tau-steps", s.tau_steps, "--eval-every", flags->eval_every, "--eval-users", flags->eval_users,
               "--patience", flags->patience, "--resume", flags->resume);
  sub->footer(
      "Examples:\n"
      "  lumen recommend sample -o made-up.txt\n"
      "  lumen recommend train made-up.txt --family NAME --objective candidates -o run");
  set_action(*sub, command, flags, recommend_train);
}

}  // namespace lumen::cli
