// lumen federate study DATA -o DIR: all methods on all partitions, one table, one page
#include "model/report/study.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "apps/federate/verbs/verbs.h"
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

constexpr int64_t kLastRounds = 3;  // whose mean is the final accuracy
constexpr uint64_t kLargestStudy = uint64_t{1} << 30;
constexpr size_t kMostPoints = 60;  // of a curve on the page

struct FederateStudyFlags {
  FederateFlags run;
  std::string data, out;
  std::vector<std::string> how = {"iid", "dir:0.5", "dir:0.1"}, with;
  int64_t clients = 20, examples = 0, seeds = 1;
  federate::SimulationSettings simulation;
};

// A method on a partition, run by run.
struct FederateArm {
  std::string how;
  federate::FederateMethod method{};
  std::vector<federate::Simulated> seeds;
};

std::vector<federate::SimulatedRound> evaluated(const federate::Simulated& s) {
  std::vector<federate::SimulatedRound> out;
  for (const federate::SimulatedRound& r : s.rounds)
    if (r.is_evaluated) out.push_back(r);
  return out;
}

double final_of(const federate::Simulated& s, double federate::SimulatedRound::* what) {
  const auto rounds = evaluated(s);
  const int64_t n = std::min<int64_t>(kLastRounds, std::ssize(rounds));
  double sum = 0;
  for (int64_t i = std::ssize(rounds) - n; i < std::ssize(rounds); ++i) sum += rounds[size_t(i)].*what;
  return sum / double(n);
}

double best_of(const federate::Simulated& s) {
  double best = 0;
  for (const auto& r : evaluated(s)) best = std::max(best, r.coded_accuracy);
  return best;
}

// Simulated seconds until an accuracy is first reached; none: never.
std::optional<double> time_to(const federate::Simulated& s, double accuracy) {
  for (const auto& r : evaluated(s))
    if (r.coded_accuracy >= accuracy) return r.seconds;
  return std::nullopt;
}

// The mean accuracy over simulated time until `end`, straight lines between evaluations.
double area_of(const federate::Simulated& s, double end) {
  double sum = 0, at = 0, accuracy = 0;
  for (const auto& r : evaluated(s)) {
    const double until = std::min(r.seconds, end);
    const double there =
        r.seconds > at ? accuracy + (r.coded_accuracy - accuracy) * (until - at) / (r.seconds - at) : r.coded_accuracy;
    sum += (until - at) * (accuracy + there) / 2;
    at = until;
    accuracy = there;
    if (r.seconds >= end) return sum / end;
  }
  return (sum + (end - at) * accuracy) / end;
}

std::string spread_text(const std::vector<double>& values, int digits, double factor = 1) {
  const apps::Spread s = apps::spread_of(values);
  if (s.count == 0) return "-";
  const std::string mean = fmt::format("{:.{}f}", factor * s.mean, digits);
  return s.count == 1 ? mean : fmt::format("{} ± {:.{}f}", mean, factor * s.deviation, digits);
}

// What a row of the table says.
struct ArmFigures {
  std::vector<double> coded, plain, seconds, to_target, area, aware, overhead, compute, link, set_up;
};

class FederateStudy {
 public:
  FederateStudy(const Shared& shared, FederateStudyFlags& flags)
      : flags_(flags), library_(shared.library()), engine_(shared.engine()) {
    const federate::FederateSettings plain = flags.run.of(*library_);
    all_ = some_examples(read_examples(flags.data, "train", plain, *library_), flags.examples, plain.seed);
    test_ = read_examples(flags.data, "t10k", plain, *library_);
    flags.simulation.run = flags.run.of(*library_, all_);
  }

  // The runs of another study's federate.json: they are not made again.
  void take(const std::string& file) {
    const nlohmann::json all = parse_json(read_file(file, kLargestStudy), file);
    if (!all.is_array()) throw user_error("{} is no study", file);
    for (const nlohmann::json& one : all) {
      FederateArm& arm = arm_of(json_text(one, "data", file), federate::named_method(json_text(one, "method", file)));
      for (const nlohmann::json& run : json_member(one, "seeds", file)) arm.seeds.push_back(run_of(run, file));
    }
  }

  // `keep` is called behind each run.
  void run(const std::function<void()>& keep) {
    for (const std::string& how : flags_.how)
      for (int64_t k = 0; k < flags_.seeds; ++k) one(how, size_t(k), keep);
  }

  const std::vector<FederateArm>& arms() const { return arms_; }
  const federate::Examples& data() const { return all_; }

  const federate::Simulated& at(const std::string& how, federate::FederateMethod method, size_t seed) const {
    return std::find_if(arms_.begin(), arms_.end(),
                        [&](const FederateArm& a) { return a.how == how && a.method == method; })
        ->seeds.at(seed);
  }

  ArmFigures figures(const FederateArm& arm) const {
    ArmFigures out;
    for (size_t k = 0; k < arm.seeds.size(); ++k) {
      const federate::Simulated& s = arm.seeds[k];
      out.coded.push_back(final_of(s, &federate::SimulatedRound::coded_accuracy));
      out.plain.push_back(final_of(s, &federate::SimulatedRound::accuracy));
      out.seconds.push_back(s.rounds.back().seconds);
      if (const auto t = time_to(s, target(arm.how, k))) out.to_target.push_back(*t);
      out.area.push_back(area_of(s, shared_time(arm.how, k)));
      double aware = 0, compute = 0, link = 0, set_up = 0;
      for (const auto& r : s.rounds) {
        aware += r.aware / double(s.rounds.size());
        compute += r.compute;
        link += r.link;
        set_up += r.set_up;
      }
      out.aware.push_back(aware);
      out.overhead.push_back(s.overhead / s.rounds.back().seconds);
      out.compute.push_back(compute);
      out.link.push_back(link);
      out.set_up.push_back(set_up);
    }
    return out;
  }

  // The best accuracy of all in P; and the time that the fastest of the quantized methods takes in all.
  double target(const std::string& how, size_t seed) const {
    return best_of(at(how, federate::FederateMethod::after, seed));
  }
  double shared_time(const std::string& how, size_t seed) const {
    double least = std::numeric_limits<double>::infinity();
    for (const FederateArm& a : arms_)
      if (a.how == how && a.method != federate::FederateMethod::whole)
        least = std::min(least, a.seeds.at(seed).rounds.back().seconds);
    return least;
  }

 private:
  static double real_of(const nlohmann::json& object, const char* key, const std::string& file) {
    const nlohmann::json& value = json_member(object, key, file);
    if (!value.is_number()) throw user_error("{}: \"{}\" is no number", file, key);
    return value.get<double>();
  }

  static federate::Simulated run_of(const nlohmann::json& run, const std::string& file) {
    federate::Simulated out;
    out.overhead = real_of(run, "overhead", file);
    out.wall = real_of(run, "wall", file);
    for (const nlohmann::json& line : json_member(run, "rounds", file)) {
      federate::SimulatedRound r;
      for (const auto& [key, to] : {std::pair("seconds", &r.seconds),
                                    {"loss", &r.loss},
                                    {"aware", &r.aware},
                                    {"compute", &r.compute},
                                    {"link", &r.link},
                                    {"set_up", &r.set_up}})
        *to = real_of(line, key, file);
      r.is_evaluated = line.contains("accuracy");
      if (r.is_evaluated) {
        r.accuracy = real_of(line, "accuracy", file);
        r.coded_accuracy = real_of(line, "coded_accuracy", file);
      }
      out.rounds.push_back(r);
    }
    if (out.rounds.empty() || !out.rounds.back().is_evaluated) throw user_error("{}: a run without an end", file);
    return out;
  }

  FederateArm& arm_of(const std::string& how, federate::FederateMethod method) {
    for (FederateArm& a : arms_)
      if (a.how == how && a.method == method) return a;
    return arms_.emplace_back(FederateArm{how, method, {}});
  }

  void one(const std::string& how, size_t number, const std::function<void()>& keep) {
    const uint64_t seed = flags_.simulation.run.seed + number;
    federate::SimulationSettings settings = flags_.simulation;
    settings.run.seed = seed;
    settings.run.network.seed = uint32_t(seed);
    const federate::Parts parts = parts_named(how, all_, flags_.clients, seed);
    federate::Simulation simulation(engine_, *library_, settings, all_, parts, test_);
    for (const federate::FederateMethod method : federate::methods()) {
      FederateArm& arm = arm_of(how, method);
      if (arm.seeds.size() > number) continue;
      federate::Simulated done = simulation.run(method, {}, &interrupted());
      if (interrupted()) throw Error(Exit::interrupted, "interrupted");
      note(fmt::format(
          "{} | seed {} | {} | {:.0f} s simulated | accuracy {:.4f}, {:.4f} in the format | {:.0f} % in Q | "
          "{} real",
          how, seed, federate::method_name(method), done.rounds.back().seconds,
          final_of(done, &federate::SimulatedRound::accuracy),
          final_of(done, &federate::SimulatedRound::coded_accuracy), 100 * done.rounds.back().aware,
          format_duration(done.wall)));
      arm.seeds.push_back(std::move(done));
      keep();
    }
  }

  FederateStudyFlags& flags_;
  model::arch::LibraryRef library_;
  run::Engine engine_;
  federate::Examples all_, test_;
  std::vector<FederateArm> arms_;
};

model::report::Table study_table(const FederateStudy& study) {
  model::report::Table out{{"data", "method", "accuracy in the format", "of the average", "simulated s",
                            "s to P's best", "area", "in Q", "compute s", "link s", "set-up s", "choosing"},
                           {},
                           2};
  for (const FederateArm& arm : study.arms()) {
    const ArmFigures f = study.figures(arm);
    std::string reached = spread_text(f.to_target, 0);
    if (!f.to_target.empty() && f.to_target.size() < arm.seeds.size())
      reached += fmt::format(" ({} of {})", f.to_target.size(), arm.seeds.size());
    out.rows.push_back({arm.how, federate::method_name(arm.method), spread_text(f.coded, 2, 100),
                        spread_text(f.plain, 2, 100), spread_text(f.seconds, 0), reached, spread_text(f.area, 2, 100),
                        fmt::format("{:.0f} %", 100 * apps::spread_of(f.aware).mean),
                        fmt::format("{:.0f}", apps::spread_of(f.compute).mean),
                        fmt::format("{:.1f}", apps::spread_of(f.link).mean),
                        fmt::format("{:.1f}", apps::spread_of(f.set_up).mean),
                        fmt::format("{:.5f} %", 100 * apps::spread_of(f.overhead).mean)});
  }
  return out;
}

// What chosen allocations are held to, partition by partition, means over seeds.
model::report::Table bars_table(const FederateStudy& study, const FederateStudyFlags& flags) {
  using M = federate::FederateMethod;
  model::report::Table out{{"data", "P's best sooner than Q, times", "final, minus P's", "final, minus Q's",
                            "area, minus random's", "area, minus coarse's", "choosing"},
                           {},
                           1};
  for (const std::string& how : flags.how) {
    std::vector<double> sooner, after, aware, drawn, coarse, overhead;
    for (size_t k = 0; k < size_t(flags.seeds); ++k) {
      const auto coded = [&](M m) { return final_of(study.at(how, m, k), &federate::SimulatedRound::coded_accuracy); };
      const auto area = [&](M m) { return area_of(study.at(how, m, k), study.shared_time(how, k)); };
      const auto own = time_to(study.at(how, M::full, k), study.target(how, k)),
                 all_aware = time_to(study.at(how, M::aware, k), study.target(how, k));
      if (own && all_aware) sooner.push_back(*all_aware / *own);
      after.push_back(100 * (coded(M::full) - coded(M::after)));
      aware.push_back(100 * (coded(M::full) - coded(M::aware)));
      drawn.push_back(100 * (area(M::full) - area(M::drawn)));
      coarse.push_back(100 * (area(M::full) - area(M::coarse)));
      const federate::Simulated& s = study.at(how, M::full, k);
      overhead.push_back(s.overhead / s.rounds.back().seconds);
    }
    out.rows.push_back({how,
                        sooner.empty()
                            ? "never reached by both"
                            : fmt::format("{} ({} of {})", spread_text(sooner, 2), sooner.size(), flags.seeds),
                        spread_text(after, 2), spread_text(aware, 2), spread_text(drawn, 2), spread_text(coarse, 2),
                        fmt::format("{:.5f} %", 100 * apps::spread_of(overhead).mean)});
  }
  return out;
}

std::string table_text(const model::report::Table& table) {
  const auto columns = [](const std::string& text) {
    return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
  };
  std::vector<int64_t> width;
  for (const std::string& head : table.head) width.push_back(columns(head));
  for (const auto& row : table.rows)
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], columns(row[i]));
  std::string out;
  const auto add = [&](const std::vector<std::string>& row) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string room(size_t(width[i] - columns(row[i])), ' ');
      out += (i > 0 ? "  " : "") + (i < table.texts ? row[i] + room : room + row[i]);
    }
    out += '\n';
  };
  add(table.head);
  for (const auto& row : table.rows) add(row);
  return out;
}

std::string study_page(const FederateStudy& study, const FederateStudyFlags& flags) {
  const federate::FederateSettings& s = flags.simulation.run;
  std::vector<model::report::Chart> charts;
  for (const std::string& how : flags.how) {
    model::report::Chart accuracy{
        how + ": accuracy with weights in their format", "%", {}, false, false, "simulated seconds"};
    model::report::Chart shares{how + ": clients in Q", "%", {}, false, true, "simulated seconds"};
    for (const FederateArm& arm : study.arms()) {
      if (arm.how != how) continue;
      model::report::Series curve{federate::method_name(arm.method), {}, int(arm.method)};
      for (const auto& r : evaluated(arm.seeds[0])) curve.points.push_back({r.seconds, 100 * r.coded_accuracy});
      curve.points = model::report::thinned(curve.points, kMostPoints);
      accuracy.series.push_back(curve);
      if (arm.method != federate::FederateMethod::full && arm.method != federate::FederateMethod::coarse) continue;
      model::report::Series share{federate::method_name(arm.method), {}, int(arm.method)};
      for (const auto& r : arm.seeds[0].rounds) share.points.push_back({r.seconds, 100 * r.aware});
      share.points = model::report::thinned(share.points, kMostPoints);
      shares.series.push_back(share);
    }
    charts.push_back(std::move(accuracy));
    charts.push_back(std::move(shares));
  }
  const std::string what = fmt::format(
      "{} {}, {} examples, {} clients of which {} train in a round, {} rounds of {} epochs, batches "
      "of "
      "{}, rate {}; weights {}, activations {}, uploads {}; {} seeds. Time is reckoned: {} examples a second in float "
      "on "
      "the fastest of three classes of devices, a step of Q {:.2f} times as long. Accuracy is that of the average with "
      "its weights in their format, the mean of the last {} evaluations, on {} examples that no client has. Area: its "
      "mean over the time that the fastest quantized method takes. Curves are those of the first seed.",
      s.network.family, s.network.size, study.data().count(), flags.clients, s.sampled, s.rounds, s.epochs, s.batch,
      s.rate, s.weights, s.activations, s.upload, flags.seeds, flags.simulation.float_rate,
      1 + flags.simulation.fake_share, kLastRounds, flags.simulation.tested);
  return model::report::html_page(
      model::report::Study{"Federated training: who quantizes how",
                           what,
                           {},
                           {{"What chosen allocations are held to", "", {bars_table(study, flags)}},
                            {"Compared", "", {study_table(study)}},
                            {"Over time", "", {}, charts}}});
}

std::string study_json(const FederateStudy& study) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const FederateArm& arm : study.arms()) {
    nlohmann::ordered_json one = {{"data", arm.how}, {"method", federate::method_name(arm.method)}};
    for (size_t k = 0; k < arm.seeds.size(); ++k) {
      const federate::Simulated& s = arm.seeds[k];
      nlohmann::ordered_json rounds = nlohmann::ordered_json::array();
      for (const auto& r : s.rounds) {
        nlohmann::ordered_json line = {{"seconds", r.seconds}, {"loss", r.loss}, {"aware", r.aware},
                                       {"compute", r.compute}, {"link", r.link}, {"set_up", r.set_up}};
        if (r.is_evaluated) {
          line["accuracy"] = r.accuracy;
          line["coded_accuracy"] = r.coded_accuracy;
        }
        rounds.push_back(std::move(line));
      }
      one["seeds"].push_back({{"overhead", s.overhead}, {"wall", s.wall}, {"rounds", rounds}});
    }
    all.push_back(std::move(one));
  }
  return all.dump(1) + "\n";
}

int federate_study(const Shared& shared, FederateStudyFlags flags) {
  const std::filesystem::path out = flags.out;
  const FolderLock lock(out);
  catch_interrupts();
  FederateStudy study(shared, flags);
  for (const std::string& file : flags.with) study.take(file);
  // What was run is there for --with when the study does not come to its end.
  study.run([&] { write_file_atomic(out / "federate.json", study_json(study)); });
  const model::report::Table bars = bars_table(study, flags), table = study_table(study);
  write_file_atomic(out / "federate.json", study_json(study));
  write_file_atomic(out / "federate.txt", table_text(table) + "\n" + table_text(bars));
  write_file_atomic(out / "federate.html", study_page(study, flags));
  put(table_text(table) + "\n" + table_text(bars) +
      fmt::format("wrote {}, federate.json and federate.txt\n", (out / "federate.html").string()));
  return 0;
}

}  // namespace

void add_federate_study(CLI::App& app, Command& command) {
  auto flags = std::make_shared<FederateStudyFlags>();
  flags->run.settings.sampled = 10;
  CLI::App* sub = app.add_subcommand("study", "Compare all methods on several partitions: a table and a page");
  add_settings(*sub, "data", flags->data, "--out", flags->out);
  flags->run.add(*sub, false);
  add_settings(*sub, "--how", flags->how, "--clients", flags->clients, "--examples", flags->examples, "--with",
               flags->with, "--seeds", flags->seeds);
  add_simulation_flags(*sub, flags->simulation);
  set_action(*sub, command, flags, federate_study);
}

}  // namespace lumen::cli
