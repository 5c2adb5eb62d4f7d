// lumen recommend plan, apply, serve: the cloud and the device
#include <algorithm>

#include "apps/recommend/verbs/verbs.h"
#include "apps/recommend/wire.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/stopwatch.h"
#include "cli/output.h"
#include "cli/settings/declare.h"

namespace lumen::cli {
namespace {

constexpr uint64_t kLargestPlan = 1 << 20;

std::unique_ptr<recommend::Recommender> load_planned(run::Engine& engine, const model::arch::Library& library,
                                                     const std::string& run) {
  auto model = recommend::Recommender::load(engine, library, best_of(run));
  if (!model->has_plans())
    throw Error(Exit::user, fmt::format("{} was trained without plans", run),
                "train a family that is planned, see docs/guide/recommend.md");
  return model;
}

recommend::Plan read_plan(const std::filesystem::path& file) {
  return recommend::unpack_plan(read_file(file, kLargestPlan), file.string());
}

// What the cloud knows: plans for whom it knows, and the usual one.
class Planner {
 public:
  Planner(recommend::Recommender& model, const std::filesystem::path& run)
      : model_(model), usual_(read_plan(run / kUsualPlan)) {
    recommend::require_plan_of(usual_, model.matrices());
  }
  recommend::Plan plan(const recommend::Ask& ask) {
    if (ask.backbone != model_.backbone()) throw user_error("the device has another backbone");
    for (const recommend::ItemId item : ask.recent)
      if (item < 1 || item > model_.items()) throw user_error("item {} of {}", item, model_.items());
    if (std::ssize(ask.recent) < kLeastKnown) return usual_;
    return model_.plans({&ask.recent, 1}).front();
  }

 private:
  recommend::Recommender& model_;
  recommend::Plan usual_;
};

struct PlanFlags {
  std::string run, items, cloud, out;
  double patience = 10;
};

int plan(const Shared& shared, const PlanFlags& flags) {
  const model::arch::LibraryRef library = shared.library();
  run::Engine engine = shared.engine();
  const auto model = load_planned(engine, *library, flags.run);
  const recommend::Ask ask{model->backbone(), items_named(flags.items, item_names(flags.run))};
  std::string said;
  recommend::Plan plan;
  if (flags.cloud.empty()) {
    Planner planner(*model, flags.run);
    planner.plan(ask);  // compiles
    const Stopwatch watch;
    plan = planner.plan(ask);
    said = fmt::format("{:.2f} ms", 1e3 * watch.seconds());
  } else {
    const recommend::Received received =
        recommend::ask_for_plan(recommend::parse_address(flags.cloud), ask, flags.patience);
    plan = received.plan;
    recommend::require_plan_of(plan, model->matrices());
    said = fmt::format("{:.2f} ms, {} bytes sent, {} received", received.seconds * 1e3, received.bytes_out,
                       received.bytes_in);
  }
  // What has been written is there whatever happens then: beside, synced, renamed.
  const std::string bytes = recommend::pack_plan(plan);
  write_file_atomic(flags.out, bytes);
  put(fmt::format("wrote {}: {} bytes, of which {} are classes of {} channels; {}\n", flags.out, bytes.size(),
                  (plan.classes.size() + 3) / 4, plan.classes.size(), said));
  return 0;
}

struct ApplyFlags {
  std::string run, plan, items, table = "normal";
  int64_t top = 10;
};

int apply(const Shared& shared, const ApplyFlags& flags) {
  const model::arch::LibraryRef library = shared.library();
  run::Engine engine = shared.engine();
  const auto model = load_planned(engine, *library, flags.run);
  const std::vector<std::string> names = item_names(flags.run);
  const std::vector<std::vector<recommend::ItemId>> history = {items_named(flags.items, names)};
  const recommend::BitTable table = recommend::bit_table(flags.table);
  const recommend::Plan plan = read_plan(flags.plan);
  model->apply(plan, table);  // quantizes what the device has once
  Stopwatch watch;
  model->apply(plan, table);
  const double applied = 1e3 * watch.seconds();
  (void)model->scores(history);  // compiles
  watch.restart();
  const std::vector<float> scores = model->scores(history);
  const double answered = 1e3 * watch.seconds();
  std::vector<recommend::ItemId> best;
  for (recommend::ItemId item = 1; item <= model->items(); ++item)
    if (std::find(history[0].begin(), history[0].end(), item) == history[0].end()) best.push_back(item);
  const auto better = [&](recommend::ItemId a, recommend::ItemId b) {
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
  };
  const size_t top = std::min<size_t>(flags.top, best.size());
  std::partial_sort(best.begin(), best.begin() + top, best.end(), better);
  std::string out;
  for (size_t i = 0; i < top; ++i)
    out += fmt::format("{:>3}. {:<24} {:.4f}\n", i + 1, names.at(best[i]), scores[best[i]]);
  int64_t whole_bytes = 0;
  for (const recommend::PlannedMatrix& m : model->matrices()) whole_bytes += 4 * m.channels * m.columns;
  put(out + fmt::format("table {}: {:.2f} bits for each weight, {} bytes packed of {} in f32; applied in {:.2f} ms, "
                        "answered in {:.2f} ms\n",
                        flags.table, recommend::average_bits(plan, model->matrices(), table),
                        recommend::packed_bytes(plan, model->matrices(), table), whole_bytes, applied, answered));
  return 0;
}

struct ServeFlags {
  std::string run, listen = "127.0.0.1:7070";
  recommend::CloudLimits limits;
};

int serve(const Shared& shared, const ServeFlags& flags) {
  const model::arch::LibraryRef library = shared.library();
  run::Engine engine = shared.engine();
  const auto model = load_planned(engine, *library, flags.run);
  Planner planner(*model, flags.run);
  (void)planner.plan({model->backbone(), {1, 1, 1}});  // compiles
  catch_interrupts();
  const recommend::Address address = recommend::parse_address(flags.listen);
  const recommend::CloudCounts counts = recommend::serve_plans(
      address, flags.limits, [&](const recommend::Ask& ask) { return planner.plan(ask); },
      [&](int port) {
        put(fmt::format("listening at {}:{}\n", address.host, port));
        finish_output();
      },
      interrupted());
  put(fmt::format("{} plans for {} connections, {} refused; {} bytes in, {} out\n", counts.answered, counts.connections,
                  counts.refused, counts.bytes_in, counts.bytes_out));
  return 0;
}

}  // namespace

void add_recommend_plan(CLI::App& app, Command& command) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* sub = app.add_subcommand("plan", "Get the plan for a user: here, or from a cloud");
  add_settings(*sub, "run", flags->run, "--items", flags->items, "--cloud", flags->cloud, "--patience", flags->patience,
               "--out", flags->out);
  set_action(*sub, command, flags, plan);
}

void add_recommend_apply(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ApplyFlags>();
  CLI::App* sub = app.add_subcommand("apply", "Recommend with a plan applied, as a device does");
  add_settings(*sub, "run", flags->run, "--plan", flags->plan, "--items", flags->items, "--table", flags->table,
               "--top", flags->top);
  set_action(*sub, command, flags, apply);
}

void add_recommend_serve(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* sub = app.add_subcommand("serve", "Run the cloud: make plans on request of devices");
  add_settings(*sub, "run", flags->run, "--listen", flags->listen, "--connections", flags->limits.connections, "--rate",
               flags->limits.rate, "--idle", flags->limits.seconds, "--asks", flags->limits.asks);
  set_action(*sub, command, flags, serve);
}

}  // namespace lumen::cli
