// lumen recommend study DATA: everything plans are compared with, on the same data, several seeds, as a table and a
// page
#include "model/report/study.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/recommend/sensitivity/sensitivity.h"
#include "apps/recommend/verbs/verbs.h"
#include "apps/spread/spread.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/file/lock.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/infer/measure/correlation.h"
#include "model/report/chart.h"

namespace lumen::cli {
namespace {

constexpr int kEqualBits = 3;
constexpr int64_t kAgreeingUsers = 200;

struct StudyFlags {
  DataFlags data;
  std::string out, family, planned, objective = "candidates";
  std::vector<std::string> config;
  recommend::RecommenderSettings settings;
  std::vector<std::string> only;
  int64_t epochs = 30, planned_epochs = 0, seeds = 3, users = 0, eval_every = 5, tuned_users = 50, tune_steps = 5;
};
constexpr const char *kTrainedPart = "trained", *kAwarePart = "aware", *kFrozenPart = "frozen",
                     *kFrozenBitsPart = "frozen-bits", *kPlannedPart = "planned";

// One way to have a recommender on a device, measured once for each seed.
struct Arm {
  std::string name;
  double bits = 32;         // of a weight, on average
  double sent = 0;          // bytes that go to a device to make it the user's
  double milliseconds = 0;  // of one core or more, to make it the user's
  std::vector<recommend::Evaluation> seeds;
  // In plans: Spearman's correlation of channels' classes with how much the user's own loss depends on them, and the
  // same of classes of another user, means over users, for each seed.
  std::vector<double> agreement, agreement_of_others;
};

apps::Spread spread_of(const Arm& arm, double (*value)(const recommend::Evaluation&)) {
  std::vector<double> values;
  for (const recommend::Evaluation& e : arm.seeds) values.push_back(value(e));
  return apps::spread_of(values);
}
std::string spread_text(const Arm& arm, double (*value)(const recommend::Evaluation&)) {
  const apps::Spread s = spread_of(arm, value);
  return fmt::format("{:.4f} +- {:.4f}", s.mean, s.deviation);
}
double full_ndcg(const recommend::Evaluation& e) {
  return e.full.ndcg10;
}
double full_hit(const recommend::Evaluation& e) {
  return e.full.hit10;
}
double drawn_ndcg(const recommend::Evaluation& e) {
  return e.sampled.ndcg10;
}
double drawn_hit(const recommend::Evaluation& e) {
  return e.sampled.hit10;
}

class Study {
 public:
  Study(const Shared& shared, const StudyFlags& flags)
      : flags_(flags), library_(shared.library()), engine_(shared.engine()), split_(flags.data.read()) {
    test_.users = flags.users;
    test_.stop = validation_.stop = &interrupted();
    validation_.test = false;
    validation_.users = 2000;
  }

  // `keep` sees what there is after each part of each seed.
  void run(const std::function<void(const std::vector<Arm>&)>& keep) {
    arm("popularity", 0, 0, 0).seeds.push_back(recommend::evaluate_popularity(split_, test_));
    for (int64_t i = 0; i < flags_.seeds; ++i) {
      const int64_t seed = int64_t(flags_.settings.seed) + i;
      const auto part = [&](const char* name, void (Study::*made)(int64_t)) {
        if (!flags_.only.empty() && std::ranges::find(flags_.only, name) == flags_.only.end()) return;
        (this->*made)(seed);
        keep(arms_);
      };
      part(kTrainedPart, &Study::trained);
      part(kAwarePart, &Study::aware);
      part(kFrozenPart, &Study::frozen);
      part(kFrozenBitsPart, &Study::frozen_in_bits);
      part(kPlannedPart, &Study::planned);
    }
  }
  const recommend::Split& split() const { return split_; }

 private:
  using Settings = recommend::RecommenderSettings;

  Arm& arm(const std::string& name, double bits, double sent, double milliseconds) {
    const auto at = std::find_if(arms_.begin(), arms_.end(), [&](const Arm& a) { return a.name == name; });
    Arm& out = at == arms_.end() ? arms_.emplace_back() : *at;
    out.name = name;
    out.bits = bits;
    out.sent = sent;
    out.milliseconds = milliseconds;
    return out;
  }

  recommend::Evaluation validated(recommend::Recommender& model) {
    if (!model.has_plans()) return measured(model, split_, validation_);
    model.use(recommend::bit_table("normal"));
    recommend::EvaluationOptions options = validation_;
    const auto plans = plans_for(model, histories_of(split_, options), usual_plan(model, split_));
    options.plans = plans;
    return measured(model, split_, options);
  }

  // Trained to the end, and as it was when validation was best.
  std::unique_ptr<recommend::Recommender> train(const std::string& what, Settings settings) {
    const bool plans = settings.family == flags_.planned;
    const int64_t epochs = plans && flags_.planned_epochs > 0 ? flags_.planned_epochs : flags_.epochs;
    settings.config["items"] = split_.all.items();
    auto out = std::make_unique<recommend::Recommender>(engine_, *library_, settings);
    recommend::Recommender::State best;
    double most = -1;
    Progress progress;
    while (out->epochs() < epochs) {
      const auto loss = out->train_epoch(split_, &interrupted());
      if (!loss) throw Error(Exit::interrupted, "interrupted");
      progress.update(
          fmt::format("seed {} | {} | epoch {}/{} | loss {:.4f}", settings.seed, what, out->epochs(), epochs, *loss));
      if (out->epochs() % flags_.eval_every != 0 && out->epochs() != epochs) continue;
      const double now = validated(*out).full.ndcg10;
      if (now <= most) continue;
      most = now;
      best = out->state();
    }
    progress.finish(fmt::format("seed {} | {} | validation NDCG@10 {:.4f}", settings.seed, what, most));
    out->set_state(best);
    return out;
  }

  int64_t weights(const recommend::Recommender& model) const {
    int64_t sum = 0;
    for (const recommend::PlannedMatrix& m : model.matrices()) sum += m.channels * m.columns;
    return sum;
  }
  Settings settings(int64_t seed) const {
    Settings out = flags_.settings;
    out.family = flags_.family;
    out.seed = seed;
    return out;
  }
  static recommend::BitTable alike(int bits) { return recommend::bit_table(fmt::format("{0},{0},{0},{0}", bits)); }

  void trained(int64_t seed) {
    const auto model = train("float", settings(seed));
    const double all = weights(*model);
    arm("(a) trained, float", 32, 4 * all, 0).seeds.push_back(measured(*model, split_, test_));
    for (const int bits : {2, kEqualBits, 4}) {
      model->use(alike(bits));
      arm(fmt::format("(b) of (a), {} bits alike", bits), bits, bits * all / 8, 0)
          .seeds.push_back(measured(*model, split_, test_));
    }
    model->use_masters();
    tuned(*model);
  }
  void aware(int64_t seed) {
    Settings s = settings(seed);
    s.config["fake_bits"] = kEqualBits;
    measure_alike("(c) trained aware of 3 bits", *train("aware of 3 bits", s));
  }
  void measure_alike(const char* name, recommend::Recommender& model) {
    arm(name, kEqualBits, kEqualBits * double(weights(model)) / 8, 0).seeds.push_back(measured(model, split_, test_));
  }

  // Some users' devices take gradient steps on their own histories, each from (a).
  void tuned(recommend::Recommender& model) {
    if (flags_.tuned_users == 0) return;
    recommend::EvaluationOptions some = test_;
    some.users = flags_.tuned_users;
    const auto began_as = model.state();
    recommend::Evaluation sums, before = measured(model, split_, some);
    double milliseconds = 0;
    const std::vector<int64_t> users = recommend::tested_users(split_, some);
    const auto can_learn = [&](int64_t user) { return split_.training(user).size() >= 2; };
    if (const auto first = std::ranges::find_if(users, can_learn); first != users.end())
      model.fine_tune(split_, *first);  // compiles
    for (const int64_t user : users) {
      model.set_state(began_as);
      const Stopwatch watch;
      if (can_learn(user))
        for (int64_t i = 0; i < flags_.tune_steps; ++i) model.fine_tune(split_, user);
      milliseconds += 1e3 * watch.seconds() / std::ssize(users);
      recommend::Split own = split_;
      own.tested = {user};
      const recommend::Evaluation e = measured(model, own, test_);
      add(sums.full, e.full);
      add(sums.sampled, e.sampled);
    }
    for (recommend::Quality* q : {&sums.full, &sums.sampled})
      for (double* part : {&q->hit5, &q->hit10, &q->ndcg5, &q->ndcg10}) *part /= std::ssize(users);
    model.set_state(began_as);
    arm(fmt::format("(i) (a) of {} users", users.size()), 32, 0, 0).seeds.push_back(before);
    arm(fmt::format("(i) .. each after {} steps of its own", flags_.tune_steps), 32, 0, milliseconds)
        .seeds.push_back(sums);
  }
  static void add(recommend::Quality& to, const recommend::Quality& q) {
    to.users += q.users;
    to.hit5 += q.hit5;
    to.hit10 += q.hit10;
    to.ndcg5 += q.ndcg5;
    to.ndcg10 += q.ndcg10;
  }

  // What an interrupted measurement has is that of some users alone: it is none.
  static recommend::Evaluation measured(recommend::Recommender& model, const recommend::Split& split,
                                        const recommend::EvaluationOptions& options) {
    const recommend::Evaluation out = recommend::evaluate(model, split, options);
    if (interrupted()) throw Error(Exit::interrupted, "interrupted");
    return out;
  }

  void frozen(int64_t seed) {
    Settings s = settings(seed);
    s.is_frozen = true;
    const auto model = train("frozen", s);
    arm("(d) frozen as drawn, float", 32, 4.0 * weights(*model), 0).seeds.push_back(measured(*model, split_, test_));
  }
  void frozen_in_bits(int64_t seed) {
    Settings s = settings(seed);
    s.is_frozen = true;
    s.frozen_bits = kEqualBits;
    measure_alike("(e) frozen, 3 bits alike", *train("frozen at 3 bits", s));
  }

  void planned(int64_t seed) {
    Settings s = settings(seed);
    s.family = flags_.planned;
    s.is_frozen = true;
    const auto model = train("planned", s);
    const auto histories = histories_of(split_, test_);
    const recommend::Plan usual = usual_plan(*model, split_);
    const auto plans = plans_for(*model, histories, usual), others = permuted(plans);
    const double sent = std::ssize(recommend::pack_plan(usual)), took = plan_time(*model, histories);
    for (const recommend::BitTable& table : recommend::bit_tables()) {
      model->use(table);
      double bits = 0;
      for (const recommend::Plan& p : plans)
        bits += recommend::average_bits(p, model->matrices(), table) / std::ssize(plans);
      const auto measure = [&](const char* name, std::span<const recommend::Plan> which, double bytes) {
        recommend::EvaluationOptions options = test_;
        options.plans = which;
        arm(fmt::format("{}, {}", name, table.name), bits, bytes, took)
            .seeds.push_back(measured(*model, split_, options));
      };
      measure("(f) a plan for each user", plans, sent);
      if (table.name != "normal") continue;
      agree(*model, seed, *std::ranges::find(arms_, std::string("(f) a plan for each user, normal"), &Arm::name));
      measure("(g) another user's plan", others, sent);
      measure("(h) one plan for all", {&usual, 1}, sent);
    }
  }

  // How far plans agree with gradients.
  void agree(recommend::Recommender& model, int64_t seed, Arm& to) {
    std::vector<int64_t> users;
    for (const int64_t user : recommend::tested_users(split_, test_))
      if (split_.training(user).size() >= 2 && std::ssize(users) < kAgreeingUsers) users.push_back(user);
    if (users.size() < 2) return;
    const auto truths = recommend::channel_sensitivities(model, split_, users, uint64_t(seed));
    std::vector<std::vector<recommend::ItemId>> seen;
    for (const int64_t user : users) seen.push_back(split_.training(user));
    const std::vector<recommend::Plan> plans = model.plans(seen);
    double own = 0, other = 0;
    for (size_t i = 0; i < users.size(); ++i)
      for (const bool is_own : {true, false}) {
        const recommend::Plan& p = plans[is_own ? i : (i + 1) % plans.size()];
        const std::vector<double> classes(p.classes.begin(), p.classes.end());
        const double same = model::infer::rank_correlation(classes, truths[i].of_channels);
        // Equal numbers have none.
        if (std::isfinite(same)) (is_own ? own : other) += same / double(users.size());
      }
    to.agreement.push_back(own);
    to.agreement_of_others.push_back(other);
  }

  // For one user, the mean of some.
  static double plan_time(recommend::Recommender& model, const std::vector<std::vector<recommend::ItemId>>& histories) {
    const size_t n = std::min<size_t>(50, histories.size());
    (void)model.plans({histories.data(), 1});  // compiles
    const Stopwatch watch;
    for (size_t i = 0; i < n; ++i) (void)model.plans({&histories[i], 1});
    return 1e3 * watch.seconds() / n;
  }

  const StudyFlags& flags_;
  model::arch::LibraryRef library_;
  run::Engine engine_;
  recommend::Split split_;
  recommend::EvaluationOptions test_, validation_;
  std::vector<Arm> arms_;
};

std::vector<Arm> in_order(std::vector<Arm> arms) {
  std::stable_sort(arms.begin(), arms.end(), [](const Arm& a, const Arm& b) { return a.name < b.name; });
  return arms;
}

model::report::Table table_of(const std::vector<Arm>& arms) {
  model::report::Table out{
      {"what", "bits", "bytes sent", "ms", "NDCG@10 full", "HR@10 full", "NDCG@10 of 101", "HR@10 of 101"}, {}, 1};
  for (const Arm& a : arms)
    out.rows.push_back({a.name, fmt::format("{:.2f}", a.bits), fmt::format("{:.0f}", a.sent),
                        a.milliseconds > 0 ? fmt::format("{:.2f}", a.milliseconds) : "-", spread_text(a, full_ndcg),
                        spread_text(a, full_hit), spread_text(a, drawn_ndcg), spread_text(a, drawn_hit)});
  return out;
}

std::string agreement_text(const std::vector<Arm>& arms) {
  std::string out;
  for (const Arm& a : arms) {
    if (a.agreement.empty()) continue;
    const apps::Spread own = apps::spread_of(a.agreement), other = apps::spread_of(a.agreement_of_others);
    out += fmt::format(
        "Channels' classes and how much the user's loss depends on them, Spearman's correlation: {:.3f} +- {:.3f}; "
        "with "
        "another user's classes {:.3f} +- {:.3f}.\n",
        own.mean, own.deviation, other.mean, other.deviation);
  }
  return out;
}

std::string page_of(const std::vector<Arm>& arms, const StudyFlags& flags, const recommend::Split& split) {
  model::report::Series alike{"(b) all channels alike", {}, 1, false, true},
      planned{"(f) a plan for each user", {}, 0, false, true};
  for (const Arm& a : arms) {
    if (a.bits <= 0 || a.bits > 8) continue;
    if (a.name.starts_with("(b)")) alike.points.push_back({a.bits, spread_of(a, full_ndcg).mean});
    if (a.name.starts_with("(f)")) planned.points.push_back({a.bits, spread_of(a, full_ndcg).mean});
  }
  for (model::report::Series* s : {&alike, &planned})
    std::sort(s->points.begin(), s->points.end(), [](const auto& a, const auto& b) { return a.x < b.x; });
  model::report::Chart chart{"NDCG@10, full ranking",           "", {planned, alike}, false, true,
                             "bits for each weight, on average"};
  const std::string what = fmt::format(
      "{} users, {} items, {} interactions; {} seeds, {} epochs ({} of plans, each with about half of "
      "the targets); leave one out. Means and deviations "
      "over "
      "seeds. Full ranking: all items but those the user had. Of 101: the answer and 100 drawn items. Ties count half. "
      "Bytes sent make a device the user's; ms: to make its plan, or to take its own steps.",
      split.all.users.size(), split.all.items(), split.all.count(), flags.seeds, flags.epochs,
      flags.planned_epochs > 0 ? flags.planned_epochs : flags.epochs);
  return model::report::html_page(
      model::report::Study{"Channels planned for each user",
                           what,
                           {},
                           {{"Compared", agreement_text(arms), {table_of(arms)}}, {"Bits", "", {}, {chart}}}});
}

std::string json_of(const std::vector<Arm>& arms) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Arm& a : arms) {
    nlohmann::ordered_json one = {
        {"name", a.name}, {"bits", a.bits}, {"bytes_sent", a.sent}, {"milliseconds", a.milliseconds}};
    if (!a.agreement.empty()) one["agreement"] = {{"own", a.agreement}, {"of_others", a.agreement_of_others}};
    for (const recommend::Evaluation& e : a.seeds)
      one["seeds"].push_back(
          {{"full", {{"hr10", e.full.hit10}, {"ndcg10", e.full.ndcg10}, {"hr5", e.full.hit5}, {"ndcg5", e.full.ndcg5}}},
           {"of101", {{"hr10", e.sampled.hit10}, {"ndcg10", e.sampled.ndcg10}}},
           {"users", e.full.users}});
    all.push_back(std::move(one));
  }
  return all.dump(2) + "\n";
}

int study(const Shared& shared, StudyFlags flags) {
  const std::filesystem::path out = flags.out;
  const FolderLock lock(out);
  flags.settings.by_candidates = flags.objective == "candidates";
  for (const std::string& text : flags.config) {
    const size_t at = text.find('=');
    char* end = nullptr;
    const double value = at == std::string::npos ? 0 : std::strtod(text.c_str() + at + 1, &end);
    if (at == std::string::npos || at == 0 || at + 1 == text.size() || *end != 0 || !std::isfinite(value))
      throw usage_error("--config takes KEY=NUMBER, not '{}'", text);
    flags.settings.config[text.substr(0, at)] = value;
  }
  catch_interrupts();
  Study study(shared, flags);
  std::vector<Arm> arms;
  study.run([&](const std::vector<Arm>& now) {
    arms = in_order(now);
    write_file_atomic(out / "recommend.json", json_of(arms));
    write_file_atomic(out / "recommend.html", page_of(arms, flags, study.split()));
  });
  put(model::report::text_table(table_of(arms)) + agreement_text(arms) +
      fmt::format("wrote {} and recommend.json\n", (out / "recommend.html").string()));
  return 0;
}

}  // namespace

void add_recommend_study(CLI::App& app, Command& command) {
  auto flags = std::make_shared<StudyFlags>();
  CLI::App* sub = app.add_subcommand("study", "Compare plans with all alternatives: a table and a page");
  flags->data.add(*sub);
  recommend::RecommenderSettings& s = flags->settings;
  add_settings(*sub, "--out", flags->out, "--family", flags->family, "--planned", flags->planned, "--config",
               flags->config, "--objective", flags->objective, "--candidates", s.candidates, "--epochs", flags->epochs,
               "--planned-epochs", flags->planned_epochs, "--eval-every", flags->eval_every, "--seeds", flags->seeds,
               "--seed", s.seed, "--only", flags->only, "--batch", s.batch, "--lr", s.rate, "--tau-steps", s.tau_steps,
               "--users", flags->users, "--tuned-users", flags->tuned_users, "--tune-steps", flags->tune_steps);
  set_action(*sub, command, flags, study);
}

}  // namespace lumen::cli
