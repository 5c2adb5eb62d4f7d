// lumen classify: its commands together, `eval` and `quantize`
#include "apps/classify/verbs/verbs.h"

#include <algorithm>

#include "apps/classify/classify.h"
#include "apps/draws/draws.h"
#include "apps/image_fit/image_fit.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "cli/output.h"
#include "cli/settings/declare.h"

namespace lumen::cli {
namespace {

constexpr uint64_t kLargestRanges = uint64_t{1} << 28, kCalibrationDraws = 0x63616c69;
constexpr int64_t kBatch = 16;

struct EvalImagesFlags {
  std::string run, data;
  int64_t images = 0;
  bool is_float = false;
};

struct ClassifyQuantizeFlags {
  std::string run, data, ranges = "estimate", per = "tensor";
  classify::RangeWay way;
  int64_t count = 16, seed = 1;
  std::vector<std::string> floats;
};

graph::Bindings batch_of(int64_t n) {
  return {{"B", n}};
}

nlohmann::json ranges_json(const ClassifyQuantizeFlags& flags, const classify::Calibration& calibration) {
  return {{"ranges", flags.ranges},
          {"per", flags.per},
          {"gamma", flags.way.gamma},
          {"whole_alpha", flags.way.whole_alpha},
          {"depthwise_static", flags.way.depthwise_fixed},
          {"fixed_norms", flags.way.norms_fixed},
          {"floats", flags.floats},
          {"calibration", classify::to_json(calibration)}};
}

int quantize_classifier(const Shared& shared, ClassifyQuantizeFlags flags) {
  const model::arch::LibraryRef library = shared.library();
  flags.way.source = classify::range_source(flags.ranges);
  flags.way.per = classify::range_per(flags.per);
  const apps::Images images = apps::read_images(flags.data, "train");
  run::Engine engine = shared.engine();
  const auto network = load_classifier(engine, *library, flags.run);
  apps::require_images_fit(images, *network);
  const int64_t batch = std::min({kBatch, flags.count, images.count});
  classify::RangedNetwork ranged(*network, kLogits, batch_of(batch), flags.floats);
  ranged.calibrate(calibration_batches(images, *network, flags.count, batch, flags.seed));
  const std::filesystem::path out = std::filesystem::path(flags.run) / kRangesFile;
  write_file_atomic(out, json_print(ranges_json(flags, ranged.calibration()), "ranges", 1) + "\n");
  const apps::NetworkInputs some = calibration_batches(images, *network, batch, batch, flags.seed).front();
  const classify::RangedNetwork::Result seen = ranged.run(some, flags.way, true);
  put(
      fmt::format("{} products, {} bytes of weights where floats have {}; {}; {:.4f} % of the results of {} images are "
                  "beyond their range\nwrote {}\n",
                  ranged.products().size(), ranged.weight_bytes(), 4 * network->trained_numbers(), flags.way.name(),
                  100 * seen.clipped / std::max(1.0, seen.counted), batch, out.string()));
  return 0;
}

int eval_classifier(const Shared& shared, const EvalImagesFlags& flags) {
  const model::arch::LibraryRef library = shared.library();
  const apps::Images images = apps::read_images(flags.data, "t10k");
  run::Engine engine = shared.engine();
  const auto network = load_classifier(engine, *library, flags.run);
  apps::require_images_fit(images, *network);
  catch_interrupts();
  const int64_t batch = std::min(kBatch, images.count), count = flags.images > 0 ? flags.images : images.count;
  const double whole = classify::recognized(
      images, *network, count, batch, [&](const auto& inputs) { return network->run(kLogits, inputs); },
      &interrupted());
  put(fmt::format("float: recognized {:.2f} % of {} images\n", 100 * whole, std::min(count, images.count)));
  const std::filesystem::path file = std::filesystem::path(flags.run) / kRangesFile;
  if (flags.is_float || !std::filesystem::exists(file)) return 0;
  const auto [way, floats, calibration] = read_ranges(flags.run);
  classify::RangedNetwork ranged(*network, kLogits, batch_of(batch), floats);
  ranged.set_calibration(calibration);
  const classify::RangeWay& used = way;
  double clipped = 0, counted = 0;
  const double own = classify::recognized(
      images, *network, count, batch,
      [&](const auto& inputs) {
        classify::RangedNetwork::Result r = ranged.run(inputs, used, true);
        clipped += r.clipped;
        counted += r.counted;
        return r.numbers;
      },
      &interrupted());
  put(fmt::format("8 bits, {}: recognized {:.2f} %; {:.4f} % of results beyond their range\n", way.name(), 100 * own,
                  100 * clipped / std::max(1.0, counted)));
  return 0;
}

struct ClassifyExportFlags {
  std::string run, out, target = "neon";
};

int export_classifier(const Shared& shared, const ClassifyExportFlags& flags) {
  const model::arch::LibraryRef library = shared.library();
  const std::filesystem::path out = flags.out;
  run::Engine engine = shared.engine();
  const auto network = load_classifier(engine, *library, flags.run);
  const KeptRanges kept = read_ranges(flags.run);
  classify::RangedNetwork ranged(*network, kLogits, batch_of(1), kept.floats);
  ranged.set_calibration(kept.calibration);
  const run::PortableProgram made = ranged.exported(kept.way, flags.target);
  std::filesystem::create_directories(out);
  write_file_atomic(out / "kernels.o", made.object);
  write_file_atomic(out / "model.c", made.source);
  put(fmt::format(
      "wrote {}: for {}, {} launches of {} kernels; flash: {} bytes of constants, {} of objects with code; RAM: {} "
      "bytes without the stack\n",
      flags.out, flags.target, made.launches, made.kernels, made.constant_bytes, made.object.size(), made.arena_bytes));
  return 0;
}

}  // namespace

KeptRanges read_ranges(const std::string& run) {
  const std::filesystem::path file = std::filesystem::path(run) / kRangesFile;
  const std::string where = file.string();
  if (!std::filesystem::exists(file))
    throw Error(Exit::user, fmt::format("{} was not calibrated", run), "lumen classify quantize does");
  const nlohmann::json all = parse_json(read_file(file, kLargestRanges), where);
  KeptRanges out;
  out.way.source = classify::range_source(json_text(all, "ranges", where));
  out.way.per = classify::range_per(json_text(all, "per", where));
  out.way.gamma = json_integer(all, "gamma", where);
  if (out.way.gamma < 1 || out.way.gamma > 64) throw user_error("{}: gamma {}", where, out.way.gamma);
  out.way.whole_alpha = json_boolean(all, "whole_alpha", false, where);
  out.way.depthwise_fixed = json_boolean(all, "depthwise_static", false, where);
  out.way.norms_fixed = json_boolean(all, "fixed_norms", false, where);
  for (const nlohmann::json& name : json_member(all, "floats", where)) {
    if (!name.is_string()) throw user_error("{}: \"floats\" holds no names", where);
    out.floats.push_back(name.get<std::string>());
  }
  out.calibration = classify::calibration_of(json_member(all, "calibration", where), where);
  return out;
}

std::unique_ptr<apps::Network> load_classifier(run::Engine& engine, const model::arch::Library& library,
                                               const std::string& run) {
  auto network = apps::Network::load(engine, library, run);
  if (!network->has(kLogits)) throw user_error("{} is a run of a family without {}", run, kLogits);
  return network;
}

std::vector<apps::NetworkInputs> calibration_batches(const apps::Images& images, const apps::Network& network,
                                                     int64_t count, int64_t batch, uint64_t seed) {
  std::vector<apps::NetworkInputs> out;
  for (int64_t first = 0; first < count; first += batch)
    out.push_back(classify::images_of(
        images, network, apps::batch_of_passes(images.count, seed ^ kCalibrationDraws, first / batch, batch)));
  return out;
}

void add_classify_eval(CLI::App& app, Command& command) {
  auto flags = std::make_shared<EvalImagesFlags>();
  CLI::App* sub = app.add_subcommand("eval", "Accuracy of a run on the t10k part, in floats and quantized");
  add_settings(*sub, "run", flags->run, "data", flags->data, "--images", flags->images, "--float", flags->is_float);
  set_action(*sub, command, flags, eval_classifier);
}

void add_classify_quantize(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ClassifyQuantizeFlags>();
  CLI::App* sub = app.add_subcommand("quantize", "Calibrate 8-bit products on a few images; eval uses it then");
  add_settings(*sub, "run", flags->run, "data", flags->data, "--ranges", flags->ranges, "--per", flags->per, "--gamma",
               flags->way.gamma, "--whole-alpha", flags->way.whole_alpha, "--depthwise-static",
               flags->way.depthwise_fixed, "--fixed-norms", flags->way.norms_fixed, "--keep-float", flags->floats,
               "--images", flags->count, "--seed", flags->seed);
  set_action(*sub, command, flags, quantize_classifier);
}

void add_classify_export(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ClassifyExportFlags>();
  CLI::App* sub = app.add_subcommand(
      "export", "Write a quantized run as an object and C that need no library, one image at a time");
  add_settings(*sub, "run", flags->run, "--out", flags->out, "--target", flags->target);
  set_action(*sub, command, flags, export_classifier);
}

void add_classify(CLI::App& app, Command& command) {
  CLI::App* sub = app.add_subcommand("classify",
                                     "Train image classifiers, and run them in 8 bits with ranges "
                                     "estimated before a layer runs");
  sub->require_subcommand(1);
  for (auto* add :
       {add_classify_train, add_classify_eval, add_classify_quantize, add_classify_export, add_classify_study})
    add(*sub, command);
}

}  // namespace lumen::cli
