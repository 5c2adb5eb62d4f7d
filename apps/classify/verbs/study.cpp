// lumen classify study RUN FOLDER: static, dynamic and estimated ranges on images as they are and corrupted, as a table
// and a page
#include "model/report/study.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "apps/classify/classify.h"
#include "apps/classify/corrupt.h"
#include "apps/classify/verbs/verbs.h"
#include "apps/image_fit/image_fit.h"
#include "apps/spread/spread.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/file/lock.h"
#include "base/log.h"
#include "base/structured/json.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/report/chart.h"

namespace lumen::cli {
namespace {

using graph::RangePer;
using graph::RangeSource;

constexpr int64_t kStudyBatch = 16;
constexpr int kCostTurns = 15;  // of all ways, one behind the other: what else a machine does touches all of them

struct ClassifyStudyFlags {
  std::string run, data, out;
  int64_t images = 1000, seeds = 3, count = 16;
  std::vector<std::string> floats;
};

// One way to run the classifier, measured once for each seed.
struct RangeArm {
  std::string name;
  classify::RangeWay way;
  bool is_float = false;
  std::vector<double> clean, bad, clean_clipped, bad_clipped;
  std::vector<double> milliseconds;  // in turns with the other ways
  int64_t arena_bytes = 0;
};

std::vector<RangeArm> arms_of_study() {
  std::vector<RangeArm> out(1);
  out[0].name = "float";
  out[0].is_float = true;
  for (const RangePer per : {RangePer::tensor, RangePer::channel}) {
    for (const RangeSource source : {RangeSource::fixed, RangeSource::dynamic}) {
      out.emplace_back();
      out.back().way.source = source;
      out.back().way.per = per;
    }
    for (const int64_t gamma : {1, 2, 4}) {
      out.emplace_back();
      out.back().way.per = per;
      out.back().way.gamma = gamma;
    }
    out.emplace_back();
    out.back().way.per = per;
    out.back().way.whole_alpha = true;
  }
  for (RangeArm& a : out)
    if (!a.is_float) a.name = a.way.name();
  return out;
}

class ClassifyStudy {
 public:
  ClassifyStudy(const Shared& shared, const ClassifyStudyFlags& flags)
      : flags_(flags),
        library_(shared.library()),
        engine_(shared.engine()),
        network_(load_classifier(engine_, *library_, flags.run)),
        train_(apps::read_images(flags.data, "train")),
        test_(apps::read_images(flags.data, "t10k")),
        arms_(arms_of_study()) {
    for (const apps::Images* images : {&train_, &test_}) apps::require_images_fit(*images, *network_);
    batch_ = std::min({kStudyBatch, train_.count, test_.count, flags.count});
    many_ = std::make_unique<classify::RangedNetwork>(
        *network_, kLogits, apps::NetworkInputs{{}, {}, {{"B", batch_}}}.symbols, flags.floats);
  }

  const std::vector<RangeArm>& run() {
    for (int64_t seed = 1; seed <= flags_.seeds; ++seed) {
      many_->calibrate(calibration_batches(train_, *network_, flags_.count, batch_, seed));
      const apps::Images clean = some_of(seed), bad = classify::corrupted(clean, seed);
      for (RangeArm& a : arms_) {
        measure(a, clean, a.clean, a.clean_clipped);
        measure(a, bad, a.bad, a.bad_clipped);
        progress_.update(fmt::format("seed {} | {} | {:.2f} % of images as they are, {:.2f} % of corrupted ones", seed,
                                     a.name, 100 * a.clean.back(), 100 * a.bad.back()));
      }
      if (seed == 1) by_kind(clean, seed);
    }
    costs();
    progress_.finish(fmt::format("{} seeds of {} images", flags_.seeds, tested()));
    return arms_;
  }

  int64_t tested() const { return flags_.images > 0 ? std::min(flags_.images, test_.count) : test_.count; }
  const std::map<std::string, std::map<std::string, double>>& kinds() const { return kinds_; }
  const classify::RangedNetwork& ranged() const { return *many_; }
  const apps::Network& network() const { return *network_; }

 private:
  // Others for each seed.
  apps::Images some_of(int64_t seed) const {
    apps::Images out{tested(), test_.height, test_.width, test_.channels, {}, {}};
    const int64_t each = test_.height * test_.width * test_.channels;
    for (const int64_t image : apps::batch_of_passes(test_.count, uint64_t(seed), 0, tested())) {
      out.pixels.insert(out.pixels.end(), test_.pixels.begin() + image * each,
                        test_.pixels.begin() + (image + 1) * each);
      out.labels.push_back(test_.labels[image]);
    }
    return out;
  }

  double accuracy(const RangeArm& a, const apps::Images& images, double* clipped_part) {
    double clipped = 0, counted = 0;
    const double right = classify::recognized(
        images, *network_, 0, batch_,
        [&](const apps::NetworkInputs& inputs) {
          if (a.is_float) return network_->run(kLogits, inputs);
          classify::RangedNetwork::Result r = many_->run(inputs, a.way, true);
          clipped += r.clipped;
          counted += r.counted;
          return r.numbers;
        },
        &interrupted());
    *clipped_part = counted > 0 ? clipped / counted : 0;
    return right;
  }
  void measure(const RangeArm& a, const apps::Images& images, std::vector<double>& right,
               std::vector<double>& clipped) {
    double part = 0;
    right.push_back(accuracy(a, images, &part));
    clipped.push_back(part);
  }

  // Every corruption alone, at severity 5.
  void by_kind(const apps::Images& clean, int64_t seed) {
    for (int k = 0; k < classify::kCorruptions; ++k) {
      apps::Images bad = clean;
      for (int64_t i = 0; i < bad.count; ++i) classify::corrupt(bad, i, classify::Corruption(k), 5, uint64_t(seed));
      for (const RangeArm& a : arms_) {
        const bool is_usual = a.way.gamma == 1 && !a.way.whole_alpha && a.way.per == RangePer::tensor;
        double part = 0;
        if (is_usual)
          kinds_[std::string(classify::corruption_name(classify::Corruption(k)))][a.name] = accuracy(a, bad, &part);
      }
    }
  }

  // One image at a time, as a device sees them.
  void costs() {
    const apps::NetworkInputs one = calibration_batches(train_, *network_, 1, 1, 1).front();
    classify::RangedNetwork single(*network_, kLogits, one.symbols, flags_.floats);
    single.set_calibration(many_->calibration());
    (void)network_->run(kLogits, one);
    for (int turn = 0; turn < kCostTurns && !interrupted(); ++turn)
      for (RangeArm& a : arms_) {
        if (a.is_float) {
          run::Program& program = network_->program(kLogits, one.symbols, "");
          a.arena_bytes = program.arena_bytes();
          a.milliseconds.push_back(1e3 * program.measure(5));
          continue;
        }
        const classify::RangedNetwork::Cost cost = single.cost(one, a.way);
        a.arena_bytes = cost.arena_bytes;
        a.milliseconds.push_back(1e3 * cost.seconds);
      }
  }

  const ClassifyStudyFlags& flags_;
  model::arch::LibraryRef library_;
  run::Engine engine_;
  std::unique_ptr<apps::Network> network_;
  apps::Images train_, test_;
  std::vector<RangeArm> arms_;
  int64_t batch_ = 1;
  std::unique_ptr<classify::RangedNetwork> many_;
  std::map<std::string, std::map<std::string, double>> kinds_;  // by corruption, then by arm
  Progress progress_;
};

double middle_of(std::vector<double> x) {
  if (x.empty()) return 0;
  std::nth_element(x.begin(), x.begin() + std::ssize(x) / 2, x.end());
  return x[x.size() / 2];
}

std::string percent_text(const std::vector<double>& x) {
  const apps::Spread s = apps::spread_of(x);
  return fmt::format("{:.2f} +- {:.2f}", 100 * s.mean, 100 * s.deviation);
}

model::report::Table table_of_arms(const std::vector<RangeArm>& arms) {
  model::report::Table out{
      {"ranges", "clean %", "corrupted %", "clipped %", "clipped, corrupted %", "ms an image", "arena bytes"}, {}, 1};
  for (const RangeArm& a : arms) {
    const auto clipped = [&](const std::vector<double>& x) {
      return a.is_float ? std::string("-") : fmt::format("{:.4f}", 100 * apps::spread_of(x).mean);
    };
    out.rows.push_back({a.name, percent_text(a.clean), percent_text(a.bad), clipped(a.clean_clipped),
                        clipped(a.bad_clipped), fmt::format("{:.3f}", middle_of(a.milliseconds)),
                        fmt::format("{}", a.arena_bytes)});
  }
  return out;
}

model::report::Table table_of_kinds(const ClassifyStudy& study) {
  model::report::Table out{{"corruption at severity 5"}, {}, 1};
  for (const auto& [kind, by_arm] : study.kinds()) {
    if (out.head.size() == 1)
      for (const auto& [name, right] : by_arm) out.head.push_back(name);
    std::vector<std::string> row{kind};
    for (const auto& [name, right] : by_arm) row.push_back(fmt::format("{:.2f}", 100 * right));
    out.rows.push_back(std::move(row));
  }
  return out;
}

// Whether the bars of docs/guide/classify.md are reached, by the means over the seeds.
model::report::Table table_of_bars(const std::vector<RangeArm>& arms) {
  std::map<std::string, const RangeArm*> by_name;
  for (const RangeArm& a : arms) by_name[a.name] = &a;
  model::report::Table out{{"bar", "points", "reached"}, {}, 1};
  const auto mean = [&](const std::string& name, bool bad) {
    return 100 * apps::spread_of(bad ? by_name.at(name)->bad : by_name.at(name)->clean).mean;
  };
  for (const std::string per : {"tensor", "channel"}) {
    const std::string estimate = fmt::format("estimate per {}, gamma 1", per),
                      sparse = fmt::format("estimate per {}, gamma 4", per);
    const std::string dynamic = "dynamic per " + per, fixed = "static per " + per;
    const auto bar = [&](const std::string& what, double points, double least) {
      out.rows.push_back(
          {fmt::format("per {}: {}", per, what), fmt::format("{:+.2f}", points), points >= least ? "yes" : "no"});
    };
    bar("estimate within .5 of dynamic, clean", mean(estimate, false) - mean(dynamic, false), -0.5);
    bar("static within 1 of dynamic, clean", mean(fixed, false) - mean(dynamic, false), -1);
    bar("estimate at least static, corrupted", mean(estimate, true) - mean(fixed, true), 0);
    bar("estimate within 1 of dynamic, corrupted", mean(estimate, true) - mean(dynamic, true), -1);
    bar("gamma 4 within .3 of gamma 1, clean", mean(sparse, false) - mean(estimate, false), -0.3);
  }
  return out;
}

std::string text_of_table(const model::report::Table& table) {
  std::vector<size_t> width;
  for (const std::string& head : table.head) width.push_back(head.size());
  for (const auto& row : table.rows)
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  std::string out;
  const auto add = [&](const std::vector<std::string>& row) {
    for (size_t i = 0; i < row.size(); ++i)
      out += i < table.texts ? fmt::format("{:<{}}", row[i], width[i]) : fmt::format("  {:>{}}", row[i], width[i]);
    out += '\n';
  };
  add(table.head);
  for (const auto& row : table.rows) add(row);
  return out;
}

std::string json_of_arms(const std::vector<RangeArm>& arms, const ClassifyStudy& study) {
  nlohmann::json all = nlohmann::json::array();
  for (const RangeArm& a : arms)
    all.push_back({{"name", a.name},
                   {"clean", a.clean},
                   {"corrupted", a.bad},
                   {"clipped", a.clean_clipped},
                   {"clipped_corrupted", a.bad_clipped},
                   {"milliseconds", a.milliseconds},
                   {"arena_bytes", a.arena_bytes}});
  return json_print({{"ways", all}, {"by_corruption", study.kinds()}, {"images", study.tested()}}, "study", 1) + "\n";
}

std::string page_of_study(const std::vector<RangeArm>& arms, const ClassifyStudy& study,
                          const ClassifyStudyFlags& flags) {
  model::report::Series clean{"clean", {}, 0, false, true}, bad{"corrupted", {}, 1, false, true};
  for (const RangeArm& a : arms) {
    if (a.is_float || a.way.source != RangeSource::estimate || a.way.whole_alpha || a.way.per != RangePer::tensor)
      continue;
    clean.points.push_back({double(a.way.gamma), 100 * apps::spread_of(a.clean).mean});
    bad.points.push_back({double(a.way.gamma), 100 * apps::spread_of(a.bad).mean});
  }
  const model::report::Chart chart{"Recognized, estimate per tensor", "%", {clean, bad}, false, false, "gamma", true};
  const std::string what = fmt::format(
      "{} of {} numbers; {} seeds, each with {} images of the t10k part and other {} training images "
      "to "
      "calibrate on. Corrupted: each image by one random method at severity 3 to 5. Means and deviations over seeds. "
      "Clipped: results beyond their range. ms (medians of turns) and bytes of memory for values: one image at a "
      "time.",
      study.network().settings().family, study.network().trained_numbers(), flags.seeds, study.tested(), flags.count);
  return model::report::html_page(model::report::Study{"Ranges known before a layer runs",
                                                       what,
                                                       {},
                                                       {{"Compared", "", {table_of_arms(arms)}},
                                                        {"Bars", "", {table_of_bars(arms)}},
                                                        {"Each corruption", "", {table_of_kinds(study)}},
                                                        {"Positions looked at", "", {}, {chart}}}});
}

int classify_study(const Shared& shared, const ClassifyStudyFlags& flags) {
  const std::filesystem::path out = flags.out;
  const FolderLock lock(out);
  catch_interrupts();
  ClassifyStudy study(shared, flags);
  const std::vector<RangeArm>& arms = study.run();
  write_file_atomic(out / "classify.json", json_of_arms(arms, study));
  write_file_atomic(out / "classify.html", page_of_study(arms, study, flags));
  put(text_of_table(table_of_arms(arms)) + "\n" + text_of_table(table_of_bars(arms)) + "\n" +
      text_of_table(table_of_kinds(study)) +
      fmt::format("wrote {} and classify.json\n", (out / "classify.html").string()));
  return 0;
}

}  // namespace

void add_classify_study(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ClassifyStudyFlags>();
  CLI::App* sub = app.add_subcommand("study", "Compare static, dynamic and estimated ranges: a table and a page");
  add_settings(*sub, "run", flags->run, "data", flags->data, "--out", flags->out, "--images", flags->images, "--seeds",
               flags->seeds, "--calibrate", flags->count, "--keep-float", flags->floats);
  set_action(*sub, command, flags, classify_study);
}

}  // namespace lumen::cli
