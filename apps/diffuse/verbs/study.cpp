// lumen diffuse study RUN --data FOLDER -o FOLDER: ways to quantize a run compared by the images it draws, as a table
// and a page
#include "model/report/study.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/diffuse/quality.h"
#include "apps/diffuse/stored.h"
#include "apps/diffuse/verbs/verbs.h"
#include "apps/images/picture.h"
#include "apps/spread/spread.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/file/lock.h"
#include "base/log.h"
#include "cli/output.h"
#include "cli/paths/paths.h"
#include "cli/settings/declare.h"
#include "model/file/checkpoint.h"
#include "model/report/chart.h"

namespace lumen::cli {
namespace {

constexpr int64_t kShownRows = 1;
constexpr const char *kWithout = "smoothquant", *kWithSegments = "segments";  // differ in segments alone

struct DiffuseStudyFlags {
  std::string run, data, classifier, out, family, shape;
  std::vector<std::string> settings, methods;
  int64_t images = 200, seeds = 1, seed = 1, classifier_steps = 1500;
  CalibrationFlags calibration;
};

struct WidthSetting {
  std::string name;
  diffuse::QuantizeFormats formats;
};

WidthSetting width_setting(const std::string& text, const FormatLibrary& formats) {
  const size_t named = text.find('='), comma = text.find(',');
  if (named == std::string::npos || comma == std::string::npos || comma < named)
    throw usage_error("--in takes NAME=WEIGHTS,ACTIVATIONS, not '{}'", text);
  return {text.substr(0, named),
          {formats.get(text.substr(named + 1, comma - named - 1)), formats.get(text.substr(comma + 1))}};
}

// What images of one seed came out as, beside those of the float network from the same noise.
struct ImageQuality {
  double psnr = 0, ssim = 0, cosine = 0, frechet = 0, accuracy = 0;
};
using QualityValue = double ImageQuality::*;

// A product's error: by name, and whether the graph shows a modulation there: what SiLU made, cut into segments.
struct ProductError {
  std::string weight;
  bool is_modulation = false;
  double relative = 0, error = 0;
};

struct QuantizedArm {
  std::string setting, method;
  std::vector<ImageQuality> seeds;
  std::vector<ProductError> products;  // of the first seed
  std::vector<float> shown;            // some images of the first seed
};

apps::Spread spread_of(const QuantizedArm& arm, QualityValue value) {
  std::vector<double> values;
  for (const ImageQuality& q : arm.seeds) values.push_back(q.*value);
  return apps::spread_of(values);
}

std::string mean_text(const QuantizedArm& arm, QualityValue value, int digits) {
  const apps::Spread s = spread_of(arm, value);
  if (s.count < 2) return fmt::format("{:.{}f}", s.mean, digits);
  return fmt::format("{:.{}f} +- {:.{}f}", s.mean, digits, s.deviation, digits);
}

double mean_of(const QuantizedArm& arm, QualityValue value) {
  return spread_of(arm, value).mean;
}

class DiffuseStudy {
 public:
  DiffuseStudy(const Shared& shared, const DiffuseStudyFlags& flags)
      : flags_(flags), library_(shared.library()), engine_(shared.engine()) {
    for (const std::string& text : flags.settings) settings_.push_back(width_setting(text, library_->formats()));
    for (const std::string& name : flags.methods) methods_.push_back(diffuse::quantize_method(name));
    if (methods_.empty()) methods_ = diffuse::quantize_methods();
    drawing_ = diffuse::load_drawing(engine_, *library_, flags.run);
    if (!drawing_.change.empty()) throw user_error("{} is quantized already", flags.run);
    size_ = network().config("size");
    if (network().config("channels") != 1) throw user_error("similarities are of gray images");
    for (int64_t i = 0; i < flags.images; ++i) labels_.push_back(i % network().config("classes"));
  }

  // `keep` sees what there is after each seed.
  bool run(const std::function<void()>& keep) {
    ready_classifier();
    for (int64_t i = 0; i < flags_.seeds && !interrupted(); ++i) {
      one_seed(flags_.seed - 1 + i);
      if (!interrupted()) keep();
    }
    return !interrupted();
  }

  const std::vector<QuantizedArm>& arms() const { return arms_; }
  double test_accuracy() const { return test_accuracy_; }
  int64_t feature_width() const { return width_; }
  std::string picture(const std::vector<float>& images) const {
    return apps::picture_uri(apps::picture_of(images, size_, 1, network_classes()));
  }
  // Modulations' errors under the two methods that differ in segments alone, by setting; empty without both.
  std::vector<std::array<std::string, 5>> segment_errors() const;

 private:
  apps::Network& network() { return *drawing_.network; }
  int64_t network_classes() const { return drawing_.network->config("classes"); }

  void ready_classifier() {
    const apps::Images train = apps::read_images(flags_.data, "train");
    apps::NetworkSettings s;
    s.family = flags_.family;
    s.size = flags_.shape;
    s.config = {{"size", double(size_)}, {"classes", double(network().config("classes"))}};
    s.optimizer.weight_decay = 0;
    const std::filesystem::path own = flags_.classifier.empty() ? std::filesystem::path(flags_.out) / "classifier"
                                                                : std::filesystem::path(flags_.classifier);
    if (!flags_.classifier.empty() && !model::file::latest_checkpoint(own))
      throw user_error("{}: no checkpoint of a classifier", flags_.classifier);
    Progress progress;
    classifier_ = diffuse::image_classifier(
        engine_, *library_, s, train, own, flags_.classifier_steps,
        [&](int64_t step, double loss) {
          progress.update(fmt::format("classifier | step {}/{} | loss {:.4f}", step, flags_.classifier_steps, loss));
        },
        &interrupted());
    if (classifier_->config("size") != size_)
      throw user_error("the classifier is of {} pixels, the run of {}", classifier_->config("size"), size_);
    const apps::Images test = apps::read_images(flags_.data, "t10k");
    std::vector<int64_t> all(test.count);
    std::iota(all.begin(), all.end(), 0);
    const diffuse::Classified seen = diffuse::classified(*classifier_, apps::framed(test, all, size_));
    width_ = seen.width;
    test_features_ = seen.features;
    test_accuracy_ = seen.accuracy(test.labels);
    progress.finish(fmt::format("classifier | accuracy {:.4f} on {} images", test_accuracy_, test.count));
  }

  std::vector<float> draw(int64_t seed, const std::string& change, const std::string& what) {
    diffuse::Sampling how = flags_.calibration.how;
    how.seed = seed + 1;
    how.change = change;
    how.sampler = diffuse::usual_sampler(network());
    Progress progress;
    return diffuse::sampled(network(), labels_, how, &interrupted(), [&](int64_t done) {
      progress.update(fmt::format("seed {} | {} | {} of {} images", seed + 1, what, done, labels_.size()));
    });
  }

  QuantizedArm& arm(const std::string& setting, const std::string& method) {
    for (QuantizedArm& a : arms_)
      if (a.setting == setting && a.method == method) return a;
    return arms_.emplace_back(QuantizedArm{setting, method, {}, {}, {}});
  }

  void one_seed(int64_t seed) {
    const std::vector<float> reference = draw(seed, "", "float");
    if (interrupted()) return;
    const diffuse::Classified seen = diffuse::classified(*classifier_, reference);
    ImageQuality own{diffuse::kMostDecibels, 1, 0, 0, seen.accuracy(labels_)};
    own.frechet = diffuse::frechet_distance(seen.features, test_features_, width_);
    keep(arm("float", "-"), own, reference, seed);
    Progress progress;
    std::vector<graph::LeftWeight> left;
    const std::vector<diffuse::ProductReads> reads = flags_.calibration.reads(network(), seed, progress, left);
    for (const WidthSetting& setting : settings_) {
      bool is_told = seed != flags_.seed - 1;
      for (const diffuse::QuantizeMethod& method : methods_) {
        if (interrupted()) return;
        if (method.name == "svdquant" && flags_.calibration.rank == 0) continue;
        const diffuse::QuantizedWeights weights =
            diffuse::quantize_network(engine_, network(), reads, method, setting.formats, flags_.calibration.rank);
        if (!is_told) note(setting.name + ": " + in_codes_text(network(), reads, weights, left));
        is_told = true;
        diffuse::use_quantized(network(), weights, diffuse::kQuantizedChange);
        const std::vector<float> images =
            draw(seed, diffuse::kQuantizedChange, fmt::format("{} {}", setting.name, method.name));
        if (interrupted()) return;
        QuantizedArm& to = arm(setting.name, method.name);
        if (seed == flags_.seed - 1) to.products = product_errors(reads, weights);
        keep(to, compared(reference, seen, images), images, seed);
      }
    }
  }

  static std::vector<ProductError> product_errors(const std::vector<diffuse::ProductReads>& reads,
                                                  const diffuse::QuantizedWeights& weights) {
    std::vector<ProductError> out;
    for (size_t i = 0; i < reads.size(); ++i)
      out.push_back({reads[i].site.weight, reads[i].site.is_polar && !reads[i].site.row_segments.empty(),
                     weights[i].error / std::max(weights[i].signal, 1e-30), weights[i].error});
    return out;
  }

  ImageQuality compared(const std::vector<float>& reference, const diffuse::Classified& seen,
                        const std::vector<float>& images) {
    const diffuse::Classified now = diffuse::classified(*classifier_, images);
    return {diffuse::peak_signal_to_noise(reference, images, size_ * size_),
            diffuse::structural_similarity(reference, images, size_),
            diffuse::cosine_distance(seen.features, now.features, width_),
            diffuse::frechet_distance(now.features, seen.features, width_), now.accuracy(labels_)};
  }

  void keep(QuantizedArm& to, const ImageQuality& quality, const std::vector<float>& images, int64_t seed) {
    to.seeds.push_back(quality);
    const int64_t some = std::min<int64_t>(std::ssize(images), kShownRows * network_classes() * size_ * size_);
    if (seed == flags_.seed - 1) to.shown.assign(images.begin(), images.begin() + some);
    note(fmt::format("seed {} | {} {} | PSNR {:.2f} dB, accuracy {:.3f}", seed + 1, to.setting, to.method, quality.psnr,
                     quality.accuracy));
  }

  const DiffuseStudyFlags& flags_;
  model::arch::LibraryRef library_;
  run::Engine engine_;
  std::vector<WidthSetting> settings_;
  std::vector<diffuse::QuantizeMethod> methods_;
  diffuse::DrawingNetwork drawing_;
  std::unique_ptr<apps::Network> classifier_;
  int64_t size_ = 0, width_ = 0;
  std::vector<int32_t> labels_;
  std::vector<float> test_features_;
  double test_accuracy_ = 0;
  std::vector<QuantizedArm> arms_;
};

std::vector<std::array<std::string, 5>> DiffuseStudy::segment_errors() const {
  const auto find = [&](const std::string& setting, const char* method) {
    return std::ranges::find_if(arms_,
                                [&](const QuantizedArm& a) { return a.setting == setting && a.method == method; });
  };
  std::vector<std::array<std::string, 5>> out;
  for (const WidthSetting& s : settings_) {
    const auto without = find(s.name, kWithout), with = find(s.name, kWithSegments);
    if (without == arms_.end() || with == arms_.end()) continue;
    double before = 0, after = 0;
    const auto row = [&](const std::string& name, double a, double b) {
      out.push_back({s.name, name, fmt::format("{:.4f}", a), fmt::format("{:.4f}", b),
                     fmt::format("{:.1f} %", a > 0 ? 100 * (1 - b / a) : 0)});
    };
    for (size_t i = 0; i < with->products.size(); ++i) {
      if (!with->products[i].is_modulation) continue;
      before += without->products[i].error * without->products[i].error;
      after += with->products[i].error * with->products[i].error;
      row(with->products[i].weight, without->products[i].error, with->products[i].error);
    }
    row("all of them", std::sqrt(before), std::sqrt(after));
  }
  return out;
}

model::report::Table study_table(const std::vector<QuantizedArm>& arms) {
  model::report::Table out{{"in", "method", "PSNR dB", "SSIM", "feature cosine distance", "FID-m", "accuracy"}, {}, 2};
  for (const QuantizedArm& a : arms) {
    const bool is_float = a.setting == "float";
    out.rows.push_back({a.setting, a.method, is_float ? "-" : mean_text(a, &ImageQuality::psnr, 2),
                        is_float ? "-" : mean_text(a, &ImageQuality::ssim, 4),
                        is_float ? "-" : mean_text(a, &ImageQuality::cosine, 5),
                        mean_text(a, &ImageQuality::frechet, 3), mean_text(a, &ImageQuality::accuracy, 3)});
  }
  return out;
}

model::report::Table segment_table(const DiffuseStudy& study) {
  model::report::Table out{{"in", "modulation", "error without segments", "with", "less by"}, {}, 2};
  for (const auto& row : study.segment_errors()) out.rows.emplace_back(row.begin(), row.end());
  return out;
}

std::string study_json(const DiffuseStudy& study, const DiffuseStudyFlags& flags) {
  nlohmann::ordered_json all = {{"images", flags.images},
                                {"seeds", flags.seeds},
                                {"steps", flags.calibration.how.steps},
                                {"guidance", flags.calibration.how.guidance},
                                {"rank", flags.calibration.rank},
                                {"classifier_accuracy", study.test_accuracy()},
                                {"feature_width", study.feature_width()}};
  for (const QuantizedArm& a : study.arms()) {
    nlohmann::ordered_json one = {{"in", a.setting}, {"method", a.method}};
    for (const ImageQuality& q : a.seeds)
      one["seeds"].push_back({{"psnr", q.psnr},
                              {"ssim", q.ssim},
                              {"feature_cosine_distance", q.cosine},
                              {"fid_m", q.frechet},
                              {"accuracy", q.accuracy}});
    for (const ProductError& p : a.products)
      one["products"].push_back({{"weight", p.weight}, {"relative_error", p.relative}, {"error", p.error}});
    all["arms"].push_back(std::move(one));
  }
  return all.dump(2) + "\n";
}

std::string study_page(const DiffuseStudy& study, const DiffuseStudyFlags& flags) {
  std::vector<model::report::Tile> tiles = {
      {"classifier", fmt::format("{:.2f} %", 100 * study.test_accuracy()), "of test images"}};
  for (const QuantizedArm& a : study.arms())
    if (a.setting == "float")
      tiles.push_back({"float", fmt::format("{:.1f} %", 100 * mean_of(a, &ImageQuality::accuracy)), "of images right"});
  const std::string what = fmt::format(
      "{} images from {} seeds each, {} steps, guidance {}; calibrated by {} other images. PSNR (range: max - min of "
      "each float image), SSIM and the cosine distance of a classifier's {} features are of pairs from the same noise. "
      "FID-m: Frechet distance of those features to the float network's images; of the float network itself to test "
      "images. Accuracy: images that the classifier takes for what they should show. Rank of low-rank branches: {}.",
      flags.images, flags.seeds, flags.calibration.how.steps, flags.calibration.how.guidance, flags.calibration.count,
      study.feature_width(), flags.calibration.rank);
  std::vector<model::report::Picture> pictures;
  for (const QuantizedArm& a : study.arms()) pictures.push_back({a.setting + " " + a.method, study.picture(a.shown)});
  return model::report::html_page(model::report::Study{
      "Quantized diffusion",
      what,
      tiles,
      {{"Compared", "", {study_table(study.arms())}},
       {"Errors of modulations, smoothquant without and with segments", "", {segment_table(study)}},
       {"Images from the same noise", "", {}, {}, pictures}}});
}

int diffuse_study(const Shared& shared, const DiffuseStudyFlags& flags) {
  const std::filesystem::path out = flags.out;
  const FolderLock lock(out);
  catch_interrupts();
  DiffuseStudy study(shared, flags);
  std::string tables;
  const auto keep = [&] {
    tables = model::report::text_table(study_table(study.arms()));
    if (const model::report::Table segments = segment_table(study); !segments.rows.empty())
      tables += "\n" + model::report::text_table(segments);
    write_file_atomic(out / "study.txt", tables);
    write_file_atomic(out / "study.json", study_json(study, flags));
    write_file_atomic(out / "study.html", study_page(study, flags));
  };
  if (!study.run(keep)) return exit_code(Exit::interrupted);
  put(tables + fmt::format("\nwrote {}, study.txt and study.json\n", (out / "study.html").string()));
  return 0;
}

}  // namespace

void add_diffuse_study(CLI::App& app, Command& command) {
  auto flags = std::make_shared<DiffuseStudyFlags>();
  CLI::App* sub = app.add_subcommand("study", "Compare quantization methods of a run by its generated images");
  add_settings(*sub, "run", flags->run, "--data", flags->data, "--out", flags->out, "--in", flags->settings,
               "--methods", flags->methods, "--classifier", flags->classifier, "--family", flags->family, "--shape",
               flags->shape, "--classifier-steps", flags->classifier_steps, "--images", flags->images, "--seeds",
               flags->seeds, "--seed", flags->seed);
  flags->calibration.add(*sub);
  set_action(*sub, command, flags, diffuse_study);
}

}  // namespace lumen::cli
